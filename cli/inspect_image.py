"""``inspect`` of an image: the settings that it was generated with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import show, table

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Image:
    """A picture and the settings found in it, as plain data."""

    path: Path
    settings: dict[str, Any]

    def data(self, source: str) -> dict[str, Any]:
        """The image for ``--json``."""
        return {"source": source, "path": str(self.path), "kind": "image", "settings": self.settings}

    def view(self, source: str, *, details: bool) -> Iterator[RenderableType]:
        """What is printed: one line for each setting; of our own record the ``details`` only if asked for."""
        from rich.text import Text

        heading = Text()
        heading.append("image", "bold cyan")
        heading.append(f"  {show(source)}", "dim")
        yield heading
        if not self.settings.get("tool"):
            yield "no generation settings in it"
            return
        made = table("setting", "value")
        found = dict(_flat(self.settings))
        shown = {key: value for key, value in found.items() if details or not _is_detail(key, found)}
        for key, value in shown.items():
            made.add_row(show(key), show(value if isinstance(value, str) else json.dumps(value)))
        yield made
        if len(shown) < len(found):
            yield Text(f"… and {len(found) - len(shown)} more (all of them with --verbose or --json)", "dim")


_DETAILS = (
    "parameters",
    "ai_mark",
    "record.schema",
    "record.key",
    "record.pixel_sha256",
    "record.model.components.",
    "record.model.configs.",
    "record.scheduler.",
    "record.environment.",
)
_TOLD = {
    "record.scheduler._class_name",
    *(f"record.environment.{key}" for key in ("shardtool", "torch", "diffusers", "device", "dtype")),
}


def _is_detail(key: str, found: dict[str, Any]) -> bool:
    """Whether ``key`` of a picture with our own record tells what is seldom asked, or what stands there already."""
    if "record.schema" not in found:
        return False
    if key.startswith("record.settings."):
        return bool(found.get(key.removeprefix("record.")) == found[key])
    return key.startswith(_DETAILS) and key not in _TOLD


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield prefix + key, value


def read_image(path: Path) -> Image:
    """The image at ``path`` with its settings."""
    from shardtool.images.reading import read_settings

    return Image(path, read_settings(path))
