"""All that a source holds, read from its small files and headers: one part for a checkpoint, several for a pipeline.

``survey`` reads a local source. A source on the Hub gives the same ``Contents``, so whoever shows or judges them need
not know where the headers came from.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shardtool.checkpoint.beside import beside_findings
from shardtool.checkpoint.classes import class_problems, needs_weights
from shardtool.checkpoint.config import Config, missing_config, read_config
from shardtool.checkpoint.folder import (
    Kind,
    PipelineFolder,
    WeightsFiles,
    choose_weights,
    is_folder,
    kind_of,
    read_pipeline,
    weights_in,
)
from shardtool.checkpoint.index import shards_of
from shardtool.checkpoint.inventory import Checkpoint, WeightsFile, examine, examine_weights
from shardtool.checkpoint.links import check_link
from shardtool.checkpoint.names import COMPONENT_STEMS, CONFIG_NAME, PIPELINE_NAME, SETTINGS_NAMES
from shardtool.checkpoint.quantisation import method_of
from shardtool.checkpoint.resolve import Resolution, resolve
from shardtool.checkpoint.strict_json import read_json_object
from shardtool.errors import InputError, Problem


@dataclass(frozen=True)
class Part:
    """A component, or the source itself. ``name`` is the component's (``"unet"``), or the file's or folder's.

    ``class_name`` is what the configs say it is, ``library`` where that class comes from, ``quantised`` the method that
    its weights are packed with. ``checkpoint`` is ``None`` for parts without weights (a tokenizer) and for those too
    damaged to read, which have ``problems``. ``files`` are its files of weights by name, ``None`` those that are
    missing or cannot be read.
    """

    name: str
    path: Path
    class_name: str | None
    library: str | None
    checkpoint: Checkpoint | None = None
    files: Mapping[str, WeightsFile | None] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    resolution: Resolution | None = None
    variant: str | None = None
    quantised: str | None = None

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def readable(self) -> tuple[WeightsFile, ...]:
        """Those of its ``files`` whose headers could be read."""
        return tuple(file for file in self.files.values() if file)


@dataclass(frozen=True)
class Contents:
    """A source. ``class_name`` is the pipeline's, or that of the only part; ``own_problems`` concern no part."""

    kind: Kind
    path: Path
    class_name: str | None
    parts: tuple[Part, ...]
    own_problems: tuple[Problem, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything that is wrong with the source and its parts."""
        return self.own_problems + tuple(problem for part in self.parts for problem in part.problems)


def survey(path: str | Path, variant: str | None = None, *, every_variant: bool = False) -> Contents:
    """What lies at ``path``, with the weights of one ``variant`` or, for ``every_variant``, a part for each there is.

    Damage comes back as problems. Raises ``InputError`` where there is nothing to look into: no such path, no
    checkpoint, no such variant.
    """
    path = Path(path)
    kind = kind_of(path)
    if kind != "pipeline":
        name = path.resolve().name if path.is_dir() else path.name
        parts = _with_weights(_part(name, path), variant, every_variant=every_variant)
        return Contents(kind, path, parts[0].class_name, parts)
    try:
        pipeline = read_pipeline(path)
    except InputError as error:
        return Contents(kind, path, None, (), (error.as_problem(),))
    parts = tuple(
        part
        for name in pipeline.components
        for part in _component(pipeline, name, variant, every_variant=every_variant)
    )
    if variant is not None:
        _require_variant(path, variant, parts)
    return Contents(kind, path, pipeline.class_name, parts, (*class_problems(pipeline), *beside_findings(path)))


def _component(pipeline: PipelineFolder, name: str, variant: str | None, *, every_variant: bool) -> tuple[Part, ...]:
    library, class_name = pipeline.components[name]
    part = _part(name, pipeline.path / name, library, class_name)
    problem = _unusable(pipeline, name)
    if problem or not weights_in(part.path):
        return (replace(part, problems=(problem,) if problem else tuple(_settings_problems(part.path))),)
    part = replace(part, resolution=resolve(part.path, variant, library=library))
    try:
        return _with_weights(part, variant, every_variant=every_variant)
    except InputError as error:  # several variants, and none of them the wanted one or the default
        return (replace(part, problems=(error.as_problem(),)),)


def _unusable(pipeline: PipelineFolder, name: str) -> Problem | None:
    """Why a component's folder cannot be looked into at all."""
    _, class_name = pipeline.components[name]
    try:
        folder = pipeline.folder(name)
    except InputError as error:
        return error.as_problem()
    hint = "the download or copy is incomplete: fetch it again"
    if not is_folder(folder):
        message = f"{folder}: no such folder, though {PIPELINE_NAME} names the component {name}"
        return Problem("component_missing", message, str(folder), hint=hint)
    try:
        if not weights_in(folder) and needs_weights(class_name):
            choose_weights(folder)  # says what is missing
    except InputError as error:
        return error.as_problem()
    return None


def _settings_problems(folder: Path) -> Iterator[Problem]:
    """What is wrong with the small files of a component that has no weights."""
    for name in SETTINGS_NAMES:
        path = folder / name
        if os.path.lexists(path):
            try:
                check_link(folder, path)
                read_json_object(path, code="config_invalid")
            except InputError as error:
                yield error.as_problem()


def _part(name: str, path: Path, library: str | None = None, class_name: str | None = None) -> Part:
    """A part before its weights are looked at."""
    config = _config_of(path) if is_folder(path) else None
    if config is None:
        return Part(name, path, class_name, library)
    return Part(name, path, config.class_name or class_name, library, quantised=method_of(config.values))


def _with_weights(part: Part, variant: str | None, *, every_variant: bool) -> tuple[Part, ...]:
    """The part with the chosen weights, or once for each of the weights in its folder.

    In a pipeline, where it has a ``resolution``, the chosen weights are those that would be loaded.
    """
    if not part.path.is_dir():
        found = examine(part.path)
        return (replace(part, checkpoint=found.checkpoint, files=found.files, problems=found.problems),)
    wanted = part.resolution.variant if part.resolution else variant
    chosen = _every_set(part.path) if every_variant else []
    chosen = chosen or [choose_weights(part.path, wanted or _only_variant(part.path))]
    part = replace(part, resolution=part.resolution or resolve(part.path, variant, library=part.library))
    beside = (*_config_missing(part, chosen), *beside_findings(part.path))
    parts: list[Part] = []
    for files in chosen:
        found = examine_weights(part.path, files)
        problems = found.problems if parts else (*found.problems, *beside)
        weights = replace(part, checkpoint=found.checkpoint, files=found.files, problems=problems)
        parts.append(replace(weights, variant=files.name.variant))
    return tuple(parts)


def _config_missing(part: Part, chosen: Sequence[WeightsFiles]) -> Iterator[Problem]:
    """A pipeline is broken where a component lacks its config.json; a folder by itself may hold weights alone."""
    of_pipeline = part.library is not None
    saved_by_diffusers = chosen[0].name.stem == COMPONENT_STEMS[0]
    if (of_pipeline or saved_by_diffusers) and not os.path.lexists(part.path / CONFIG_NAME):
        yield replace(missing_config(part.path), severity="error" if of_pipeline else "warning")


def _only_variant(folder: Path) -> str | None:
    """The variant of a folder that has no other weights."""
    variants = {name.variant for name in weights_in(folder) if name.stem in COMPONENT_STEMS}
    return variants.pop() if len(variants) == 1 else None


def _every_set(folder: Path) -> list[WeightsFiles]:
    """The sets of weights in a folder, without shards that belong to another set: its index names them all."""
    found = list(weights_in(folder).values())
    named = {name for files in found for index in files.indexes for name in shards_of(folder / index)}
    return [files for files in found if files.indexes or files.single or not set(files.shards) <= named]


def _config_of(folder: Path) -> Config | None:
    try:
        return read_config(folder)
    except InputError:  # examine() says what is wrong with it
        return None


def _require_variant(path: Path, variant: str, parts: tuple[Part, ...]) -> None:
    found = [part.resolution for part in parts if part.resolution]
    if any(resolution.outcome == "found" for resolution in found):
        return
    present = sorted({name or "default" for resolution in found for name in resolution.present})
    raise InputError(
        f"{path}: no component has a {variant} variant; present: {', '.join(present) or 'no weights'}",
        code="variant_absent",
        path=path,
        hint="leave out --variant",
    )
