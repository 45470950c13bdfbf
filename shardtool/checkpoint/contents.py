"""All that a source holds, read from its small files and headers: one part for a checkpoint, several for a pipeline.

``survey`` reads a local source. A source on the Hub gives the same ``Contents``, so whoever shows or judges them need
not know where the headers came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shardtool.checkpoint.config import read_config
from shardtool.checkpoint.folder import Kind, PipelineFolder, kind_of, read_pipeline, weights_in
from shardtool.checkpoint.inventory import Checkpoint, examine
from shardtool.checkpoint.resolve import Resolution, resolve
from shardtool.errors import InputError, Problem


@dataclass(frozen=True)
class Part:
    """A component, or the source itself. ``name`` is the component's (``"unet"``), or the file's or folder's.

    ``class_name`` is what the configs say it is, ``library`` where that class comes from. ``checkpoint`` is ``None``
    for parts without weights (a tokenizer) and for those too damaged to read, which have ``problems``.
    """

    name: str
    path: Path
    class_name: str | None
    library: str | None
    checkpoint: Checkpoint | None
    problems: tuple[Problem, ...]
    resolution: Resolution | None

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")


@dataclass(frozen=True)
class Contents:
    """A source. ``class_name`` is the pipeline's, or that of the only part; ``problems`` concern the source itself."""

    kind: Kind
    path: Path
    class_name: str | None
    parts: tuple[Part, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def all_problems(self) -> tuple[Problem, ...]:
        return self.problems + tuple(problem for part in self.parts for problem in part.problems)


def survey(path: Path, variant: str | None = None) -> Contents:
    """What lies at ``path``. Damage comes back as problems.

    Raises ``InputError`` where there is nothing to look into: no such path, no checkpoint, no such variant.
    """
    kind = kind_of(path)
    if kind == "pipeline":
        pipeline = read_pipeline(path)
        parts = tuple(_component(pipeline, name, variant) for name in pipeline.components)
        if variant is not None:
            _require_variant(path, variant, parts)
        return Contents(kind, path, pipeline.class_name, parts)
    part = _part(path.resolve().name if path.is_dir() else path.name, path, variant)
    return Contents(kind, path, part.class_name, (part,))


def _component(pipeline: PipelineFolder, name: str, variant: str | None) -> Part:
    library, class_name = pipeline.components[name]
    folder = pipeline.folder(name)
    if not folder.is_dir():
        message = f"{folder}: no such folder, though model_index.json names the component {name}"
        problem = Problem("component_missing", message, str(folder), hint="the download or copy is incomplete")
        return Part(name, folder, class_name, library, None, (problem,), None)
    if not weights_in(folder):
        return Part(name, folder, class_name, library, None, (), None)
    found = resolve(folder, variant, library=library)
    return _part(name, folder, found.variant, class_name=class_name, library=library, resolution=found)


def _part(
    name: str,
    path: Path,
    variant: str | None,
    *,
    class_name: str | None = None,
    library: str | None = None,
    resolution: Resolution | None = None,
) -> Part:
    problems: list[Problem] = []
    if path.is_dir():
        try:
            config = read_config(path)
        except InputError as error:
            problems.append(error.as_problem())
        else:
            class_name = (config.class_name if config else None) or class_name
        resolution = resolution or resolve(path, variant, library=library)
    found = examine(path, variant)
    return Part(name, path, class_name, library, found.checkpoint, (*problems, *found.problems), resolution)


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
