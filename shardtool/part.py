"""One component: its class, its config and the headers of its weights.

Reads JSON and headers only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardtool.checkpoint.classes import class_problem
from shardtool.checkpoint.config import missing_config
from shardtool.checkpoint.folder import names_in
from shardtool.checkpoint.inventory import Checkpoint, StoredTensor, examine
from shardtool.checkpoint.links import check_link
from shardtool.checkpoint.names import SETTINGS_NAMES
from shardtool.checkpoint.quantisation import method_of
from shardtool.checkpoint.strict_json import read_json_object
from shardtool.errors import InputError
from shardtool.events import Listener, Note, ignore


@dataclass(frozen=True)
class Part:
    """One component. ``checkpoint`` and ``config`` are ``None`` for one without weights (scheduler, tokenizer).

    ``library`` is ``diffusers``, ``transformers``, or the name of a module of ``diffusers.pipelines``.
    """

    name: str
    library: str
    class_name: str
    folder: Path
    config: Mapping[str, Any] | None = None
    checkpoint: Checkpoint | None = None

    @property
    def config_path(self) -> Path:
        return self.folder / "config.json"

    @property
    def quantised(self) -> str | None:
        """The method that its weights are quantised with, as its config calls it; ``None`` where they are not."""
        return method_of(self.config or {})

    @property
    def stored(self) -> Mapping[str, StoredTensor]:
        """The tensors of its checkpoint by name; of a part that has one."""
        if self.checkpoint is None:
            raise AssertionError(self.name)
        return self.checkpoint.tensors


def read_component(path: Path, *, variant: str | None = None, on_event: Listener = ignore) -> Part:
    """The one component at ``path``: a component folder, or a weights file with its ``config.json`` beside it.

    Raises ``InputError`` where config or headers are missing or damaged, or the class is none that may be loaded.
    """
    folder = path if path.is_dir() else path.parent
    config = config_of(folder)
    library, class_name = own_class(folder, config)
    check_class(folder / "config.json", folder.name, library, class_name)
    return Part(folder.name, library, class_name, folder, config, headers_of(path, variant, on_event))


def is_settings(folder: Path) -> bool:
    names = names_in(folder)
    return "config.json" not in names and any(name in names for name in SETTINGS_NAMES)


def config_of(folder: Path) -> Mapping[str, Any]:
    path = folder / "config.json"
    if path.name not in names_in(folder):
        raise InputError.of_all([missing_config(folder)])
    check_link(folder, path)
    return read_json_object(path, code="config_invalid")


def own_class(folder: Path, config: Mapping[str, Any]) -> tuple[str, str]:
    """(library, class) that a ``config.json`` names, as diffusers and transformers write it."""
    name = config.get("_class_name")
    if isinstance(name, str):
        return "diffusers", name
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures and isinstance(architectures[0], str):
        return "transformers", architectures[0]
    raise InputError(
        f"{folder / 'config.json'}: names no class (neither _class_name nor architectures)",
        code="config_invalid",
        path=folder / "config.json",
    )


def headers_of(path: Path, variant: str | None, on_event: Listener) -> Checkpoint:
    found = examine(path, variant)
    if found.errors:
        raise InputError.of_all(found.errors)
    for problem in found.problems:
        on_event(Note(problem.code, problem.message, warning=True))
    if found.checkpoint is None:  # without a checkpoint there is an error
        raise AssertionError(path)
    return found.checkpoint


def check_class(path: Path, name: str, library: str, class_name: str) -> None:
    if problem := class_problem(path, name, library, class_name):
        raise InputError.of_all([problem])
