"""Which component of a pipeline comes from where: its class, its config and the headers of its weights.

Reads JSON and headers only. Only classes of diffusers and transformers are let through: nothing that a
``model_index.json`` or a ``config.json`` names is imported from the checkpoint, and ``.py`` files in it are not opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shardtool.checkpoint.classes import needs_weights
from shardtool.checkpoint.folder import PipelineFolder, choose_weights, kind_of, names_in, read_pipeline
from shardtool.checkpoint.links import check_link
from shardtool.checkpoint.names import CONFIG_NAME, SCHEDULER_NAME, SETTINGS_NAMES
from shardtool.checkpoint.needed import TEXTS
from shardtool.checkpoint.strict_json import read_json_object
from shardtool.errors import InputError, Problem
from shardtool.events import Listener, ignore
from shardtool.part import Part, check_class, config_of, headers_of, is_settings, own_class


@dataclass(frozen=True)
class PipelineParts:
    """A pipeline class with its components by name and the other settings of ``model_index.json``.

    ``given`` are the configs of the components that the caller hands over ready-made; they have no part here.
    """

    path: Path
    class_name: str
    parts: Mapping[str, Part]
    settings: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def with_weights(self) -> Mapping[str, Part]:
        return {name: part for name, part in self.parts.items() if part.checkpoint is not None}

    def config(self, name: str) -> Mapping[str, Any] | None:
        """The config of a component; ``None`` where there is none."""
        part = self.parts.get(name)
        return self.given.get(name) if part is None else part.config

    def config_path(self, name: str) -> str:
        """Where that config is, for messages."""
        part = self.parts.get(name)
        return f"the {name} that was given" if part is None else str(part.config_path)


def read_parts(
    base: Path,
    overrides: Mapping[str, Path] | None = None,
    *,
    given: Mapping[str, Mapping[str, Any]] | None = None,
    variant: str | None = None,
    on_event: Listener = ignore,
) -> PipelineParts:
    """The parts of the pipeline folder ``base`` with ``overrides`` (component name → path) instead of its own.

    The overridden components of ``base`` are not looked at, nor those ``given`` ready-made (component name → config).
    Raises ``InputError`` with everything that is missing or damaged in any of them.
    """
    if kind_of(base) != "pipeline":
        raise InputError(
            f"{base}: is no pipeline (it has no model_index.json)",
            code="not_a_pipeline",
            path=base,
            hint="name a pipeline folder or repo as the model, and a single component with --unet or --component",
        )
    pipeline = read_pipeline(base)
    overrides, given = overrides or {}, given or {}
    _check_names(pipeline, {*overrides, *given})
    parts: dict[str, Part] = {}
    problems: list[Problem] = []
    for name, (library, class_name) in pipeline.components.items():
        if name in given:
            continue
        try:
            if name in overrides:
                parts[name] = _override(name, overrides[name], library, class_name, variant, on_event)
            else:
                check_class(base / "model_index.json", name, library, class_name)
                parts[name] = _own_part(pipeline, name, library, class_name, variant, on_event)
        except InputError as error:
            problems.extend(error.as_problems())
    if problems:
        raise InputError.of_all(problems)
    return PipelineParts(base, pipeline.class_name, parts, pipeline.settings, given)


def _check_names(pipeline: PipelineFolder, names: set[str]) -> None:
    for name in sorted(names - set(pipeline.components)):
        raise InputError(
            f"{pipeline.path}: {pipeline.class_name} has no component {name!r} to replace",
            code="component_unknown",
            path=pipeline.path,
            hint=f"it has: {', '.join(pipeline.components)}",
        )


def _own_part(
    pipeline: PipelineFolder, name: str, library: str, class_name: str, variant: str | None, on_event: Listener
) -> Part:
    folder = pipeline.folder(name)
    if not folder.is_dir():
        raise InputError(
            f"{folder}: missing, though model_index.json names the component {name!r}",
            code="component_missing",
            path=folder,
            hint="the download or copy is incomplete: fetch that folder, or give the component another source",
        )
    if is_settings(folder):
        return _inside(Part(name, library, class_name, folder))
    config = config_of(folder)
    return Part(name, library, class_name, folder, config, headers_of(folder, variant, on_event))


def _override(name: str, path: Path, library: str, class_name: str, variant: str | None, on_event: Listener) -> Part:
    """A component from elsewhere, which must be of the kind that the pipeline has in its place."""
    if path.is_dir() and (path / "model_index.json").exists():
        path = path / name
    if not path.exists():
        raise InputError(f"{path}: no such file or folder", code="file_missing", path=path)
    folder = path if path.is_dir() else path.parent
    if is_settings(folder):
        return _override_settings(_inside(Part(name, library, class_name, folder)))
    if not needs_weights(class_name) and CONFIG_NAME not in names_in(folder):
        raise InputError(
            f"{folder}: is no {class_name}: it holds none of {', '.join(SETTINGS_NAMES)}",
            code="component_invalid",
            path=folder,
            hint=f"give {name} another source",
        )
    config = config_of(folder)
    found_library, found_class = own_class(folder, config)
    if library == "transformers" and found_library == "transformers":
        found_class = class_name  # the pipeline says which head it uses; the strict check says whether it fits
    elif _kind(found_class) != _kind(class_name):
        raise InputError(
            f"{folder / 'config.json'}: its class is {found_class}, and that of the pipeline's {name} is {class_name}",
            code="partner_mismatch",
            path=folder / "config.json",
            hint=f"give {name} another source",
        )
    check_class(folder / "config.json", name, found_library, found_class)
    if path.is_dir() and variant is not None:
        variant = _variant_if_there(folder, variant)
    return Part(name, found_library, found_class, folder, config, headers_of(path, variant, on_event))


def _inside(part: Part) -> Part:
    """A part without weights, none of whose files is a link out of the checkpoint."""
    for name in names_in(part.folder):
        if name.endswith(TEXTS):
            check_link(part.folder, part.folder / name)
    return part


def _override_settings(part: Part) -> Part:
    """A part without weights from elsewhere; a scheduler says itself of which class it is."""
    if needs_weights(part.class_name):
        raise InputError(
            f"{part.folder}: holds no model, and the class of the pipeline's {part.name} is {part.class_name}",
            code="partner_mismatch",
            path=part.folder,
            hint=f"give {part.name} another source",
        )
    path = part.folder / SCHEDULER_NAME
    if part.name != "scheduler" or not path.exists():
        return part
    class_name = read_json_object(path, code="config_invalid").get("_class_name")
    if not isinstance(class_name, str):
        return part
    check_class(path, part.name, "diffusers", class_name)
    return replace(part, library="diffusers", class_name=class_name)


def _kind(class_name: str) -> str:
    """What a class can stand in for: any autoencoder for another, otherwise only the same class."""
    return "Autoencoder" if class_name.startswith(("Autoencoder", "AsymmetricAutoencoder")) else class_name


def _variant_if_there(folder: Path, variant: str) -> str | None:
    try:
        return choose_weights(folder, variant).name.variant
    except InputError:
        return None
