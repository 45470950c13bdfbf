"""``config.json`` of a component: untrusted text that says which class is built and how large."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardtool.checkpoint.strict_json import read_json_object

CONFIG_NAME = "config.json"
CODE = "config_invalid"


@dataclass(frozen=True)
class Config:
    """A readable ``config.json``. ``class_name`` is ``None`` where it names no class; ``values`` is all it holds."""

    path: Path
    class_name: str | None
    values: dict[str, Any]


def read_config(folder: Path) -> Config | None:
    """The config of a component folder, or ``None`` where there is none.

    diffusers writes ``_class_name``, transformers ``architectures``. Raises ``InputError`` where the file is damaged.
    """
    path = folder / CONFIG_NAME
    if not path.exists() and not path.is_symlink():
        return None
    values = read_json_object(path, code=CODE)
    return Config(path, class_in(values), values)


def class_in(values: dict[str, Any]) -> str | None:
    """The class that a config names."""
    name = values.get("_class_name")
    if name is None and isinstance(values.get("architectures"), list):
        name = next(iter(values["architectures"]), None)
    return name if isinstance(name, str) else None
