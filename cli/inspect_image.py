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

    def view(self, source: str) -> Iterator[RenderableType]:
        """What is printed: one line for each setting."""
        from rich.text import Text

        heading = Text()
        heading.append("image", "bold cyan")
        heading.append(f"  {show(source)}", "dim")
        yield heading
        if not self.settings.get("tool"):
            yield "no generation settings in it"
            return
        made = table("setting", "value")
        for key, value in _flat(self.settings):
            made.add_row(show(key), show(value if isinstance(value, str) else json.dumps(value)))
        yield made


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
