"""Which checkpoints of a source are meant, and which other files belong to it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from shardtool.checkpoint.folder import Kind, choose_weights, kind_of, read_pipeline, weights_in
from shardtool.checkpoint.inventory import Checkpoint, read_checkpoint
from shardtool.checkpoint.names import COMPONENT_STEMS, parse_pickle
from shardtool.errors import InputError, UsageError

DEFAULT_VARIANT = "default"
"""What ``--variant`` calls the weights without a variant in their name."""

_HERE = PurePath()
_SKIPPED = {".git", ".cache", "__pycache__"}


@dataclass(frozen=True)
class Part:
    """A checkpoint of the source, and the folder of the result that it goes to, relative to the result's own."""

    place: PurePath
    checkpoint: Checkpoint

    @property
    def label(self) -> str:
        """What people call it: the component's name, or the file's; with the variant, if it has one."""
        name = self.checkpoint.name
        label = self.place.as_posix() if self.place.parts else name.stem
        return label if name.variant is None else f"{label} ({name.variant})"


@dataclass(frozen=True)
class Selection:
    """What is to be written anew (``parts``), and the files beside it that go along, relative to ``source``."""

    source: Path
    kind: Kind
    parts: tuple[Part, ...]
    others: tuple[PurePath, ...]


def select(source: Path, *, variant: str | None = None, components: Collection[str] = ()) -> Selection:
    """The checkpoints of a file, component or pipeline.

    Without ``variant``, every variant that is there is taken, each for itself; without ``components``, every component
    that has weights. Raises ``InputError`` where the source is damaged or lacks what was asked for.
    """
    kind = kind_of(source)
    if components and kind != "pipeline":
        raise UsageError(
            f"--component {next(iter(components))}: {source} is no pipeline, but a {kind}", code="contradiction"
        )
    if kind == "file":
        return Selection(source, kind, (Part(PurePath(), read_checkpoint(source)),), ())
    if kind == "component":
        parts = tuple(Part(PurePath(), checkpoint) for checkpoint in _in_component(source, variant))
    else:
        parts = tuple(_in_pipeline(source, variant, components))
    return Selection(source, kind, parts, tuple(_others(source, parts)))


def _in_component(folder: Path, variant: str | None) -> list[Checkpoint]:
    names = [name for name in weights_in(folder) if name.stem in COMPONENT_STEMS]
    if variant is None and len(names) > 1:
        return [read_checkpoint(folder, name.variant) for name in names]
    if variant is None and names:
        return [read_checkpoint(folder, names[0].variant)]
    return [read_checkpoint(folder, None if variant == DEFAULT_VARIANT else variant)]


def _in_pipeline(source: Path, variant: str | None, components: Collection[str]) -> Iterator[Part]:
    pipeline = read_pipeline(source)
    present = pipeline.with_weights()
    for name in components:
        if name not in present:
            raise InputError(
                f"{source}: has no component {name!r} with weights",
                code="component_absent",
                path=source,
                hint=f"its components with weights: {', '.join(present) or 'none'}",
            )
    chosen = [name for name in present if name in components] if components else present
    if not chosen:
        raise InputError(f"{source}: no component has safetensors weights", code="weights_missing", path=source)
    variants = {name: _variant_of(pipeline.folder(name), variant) for name in chosen}
    if variant not in (None, DEFAULT_VARIANT) and variant not in variants.values():
        choose_weights(pipeline.folder(chosen[0]), variant)  # says which variants there are
    for name in chosen:
        for checkpoint in _in_component(pipeline.folder(name), variants[name]):
            yield Part(PurePath(name), checkpoint)


def _variant_of(folder: Path, variant: str | None) -> str | None:
    """``variant``, or the default weights where a component has no such variant: the loaders do the same."""
    if variant is None or any(name.variant == variant for name in weights_in(folder)):
        return variant
    return DEFAULT_VARIANT


def _others(source: Path, parts: Sequence[Part]) -> Iterator[PurePath]:
    """Every other file below ``source``: no weights of the parts' folders, in whatever variant or container."""
    weights: dict[PurePath, set[str]] = {}
    for part in parts:
        names = weights.setdefault(part.place, set(weights_files(source / part.place)))
        names.update(file.path.name for file in part.checkpoint.files)
        if part.checkpoint.index is not None:
            names.add(part.checkpoint.index.path.name)
    for place, name in walk(source):
        if name not in weights.get(place, ()):
            yield place / name


def walk(folder: Path, place: PurePath = _HERE) -> Iterator[tuple[PurePath, str]]:
    """Every file below ``folder`` as (its folder relative to ``folder``, its name), sorted, links to folders included.

    Raises ``InputError`` for a link to a folder that holds it.
    """
    here = folder / place
    if place.parts and here.is_symlink() and here.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise InputError(f"{here}: is a link to a folder that holds it", code="unsafe_path", path=here)
    for entry in sorted(here.iterdir()):
        if not entry.is_dir():
            yield place, entry.name
        elif entry.name not in _SKIPPED:
            yield from walk(folder, place / entry.name)


def weights_files(folder: Path) -> Iterator[str]:
    """The files in a component's folder that hold or index weights under the names that loaders look for."""
    for name, files in weights_in(folder).items():
        if name.stem in COMPONENT_STEMS:
            yield from files
    for entry in folder.iterdir():
        if parse_pickle(entry.name) is not None:
            yield entry.name
