"""Which checkpoints of a source are meant, and which other files belong to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TypeAlias

from shardtool.checkpoint.digests import DIGESTS_NAME
from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.folder import (
    PICKLE_SUFFIXES,
    Kind,
    choose_weights,
    is_folder,
    kind_of,
    names_in,
    read_pipeline,
    weights_in,
)
from shardtool.checkpoint.inventory import Checkpoint, read_checkpoint
from shardtool.checkpoint.links import check_link
from shardtool.checkpoint.names import COMPONENT_STEMS, WeightsName, parse_pickle
from shardtool.errors import InputError, UsageError

DEFAULT_VARIANT = "default"
"""What ``--variant`` calls the weights without a variant in their name."""

Content: TypeAlias = Callable[[str], Iterator[bytes | memoryview]]
"""The bytes of the tensor of that name, in blocks, where no range of a file holds them."""

PickleReader: TypeAlias = Callable[[Path, WeightsName], tuple[Checkpoint, Content]]
"""Reads pickled weights: a file, or those of a name in a folder. Ranges in its checkpoint mean nothing."""

_HERE = PurePath()
_SKIPPED = {".git", ".cache", "__pycache__"}


@dataclass(frozen=True)
class Choice:
    """What of a source is wanted.

    ``variant``: only that one (``DEFAULT_VARIANT`` means the weights without one); otherwise each variant that is
    there, for itself. ``one_variant``: just one of each component, ``variant`` if it has it, else the default.
    ``components``: only those of a pipeline. ``read_pickle``: what reads pickled weights, where they are allowed.
    """

    variant: str | None = None
    one_variant: bool = False
    components: Sequence[str] = ()
    read_pickle: PickleReader | None = None


@dataclass(frozen=True)
class Selected:
    """A checkpoint of the source, and the folder of the result that it goes to, relative to the result's own."""

    place: PurePath
    checkpoint: Checkpoint
    content: Content | None = None

    @property
    def label(self) -> str:
        """What people call it: the component's name, or the file's; with the variant, if it has one."""
        name = self.checkpoint.name
        label = self.place.as_posix() if self.place.parts else name.stem
        return label if name.variant is None else f"{label} ({name.variant})"


@dataclass(frozen=True)
class Selection:
    """What is to be written anew (``parts``), and the files that go along, relative to ``source``.

    ``left_out``: pickled weights, and weights of other variants, which do not go along.
    """

    source: Path
    kind: Kind
    parts: tuple[Selected, ...]
    others: tuple[PurePath, ...] = ()
    left_out: tuple[PurePath, ...] = ()


def select(source: Path, choice: Choice) -> Selection:
    """What ``choice`` means in a file, a component or a pipeline.

    Raises ``InputError`` where the source is damaged or lacks what was asked for.
    """
    kind = kind_of(source)
    if choice.components and kind != "pipeline":
        raise UsageError(f"--component {choice.components[0]}: {source} is a {kind}, no pipeline", code="contradiction")
    if kind == "file":
        return Selection(source, kind, (_in_file(source, choice.read_pickle),))
    found = _in_component(source, _HERE, choice) if kind == "component" else _in_pipeline(source, choice)
    parts = tuple(found)
    others, left_out = _beside(source, parts)
    return Selection(source, kind, parts, others, left_out)


def _in_file(path: Path, read_pickle: PickleReader | None) -> Selected:
    pickled = path.suffix in PICKLE_SUFFIXES or parse_pickle(path.name) is not None
    if read_pickle is None or not pickled:
        return Selected(_HERE, read_checkpoint(path))
    return Selected(_HERE, *read_pickle(path, parse_pickle(path.name) or WeightsName(path.stem)))


def _in_component(folder: Path, place: PurePath, choice: Choice) -> Iterator[Selected]:
    pickled = pickled_in(folder) if choice.read_pickle is not None else set()
    names = [name for name in weights_in(folder) if name.stem in COMPONENT_STEMS]
    present = {name.variant: name for name in sorted({*names, *pickled}, key=lambda name: name.variant or "")}
    for variant in _variants(choice, list(present)):
        name = present.get(variant)
        if choice.read_pickle is not None and name in pickled and name not in names:
            yield Selected(place, *choice.read_pickle(folder, name))
        else:
            yield Selected(place, read_checkpoint(folder, variant))


def _variants(choice: Choice, present: Sequence[str | None]) -> Sequence[str | None]:
    """The variants to take of those that are present; one that is absent is refused when it is read."""
    if choice.variant is None and not choice.one_variant:
        return present or [None]
    wanted = None if choice.variant == DEFAULT_VARIANT else choice.variant
    if wanted in present or not choice.one_variant:
        return [wanted]
    return present if len(present) == 1 else [None]


def pickled_in(folder: Path) -> set[WeightsName]:
    """The names of the pickled weights in a component's folder."""
    return {name for text in names_in(folder) if (name := parse_pickle(text)) is not None}


def _in_pipeline(source: Path, choice: Choice) -> Iterator[Selected]:
    pipeline = read_pipeline(source)
    present = _with_weights(source, list(pipeline.components))
    for name in choice.components:
        if name not in present:
            raise InputError(
                f"{source}: has no component {name!r} with weights",
                code="component_absent",
                path=source,
                hint=f"its components with weights: {', '.join(present) or 'none'}",
            )
    chosen = [name for name in present if name in choice.components or not choice.components]
    if not chosen:
        raise InputError(f"{source}: no component has weights", code="weights_missing", path=source)
    variant = choice.variant
    if variant not in (None, DEFAULT_VARIANT) and not choice.one_variant:
        having = [name for name in chosen if any(found.variant == variant for found in _names_in(source / name))]
        if not having:
            choose_weights(source / chosen[0], variant)  # says which variants there are
        # A component without the variant gives its default weights, as the loaders do.
        choice = Choice(variant, True, choice.components, choice.read_pickle)
    for name in chosen:
        check_link(source, source / name)
        yield from _in_component(source / name, PurePath(name), choice)


def _with_weights(source: Path, components: Sequence[str]) -> list[str]:
    return [name for name in components if is_folder(source / name) and _names_in(source / name)]


def _names_in(folder: Path) -> set[WeightsName]:
    return {*weights_in(folder), *pickled_in(folder)}


def _beside(source: Path, parts: Sequence[Selected]) -> tuple[tuple[PurePath, ...], tuple[PurePath, ...]]:
    """The other files below ``source``: those that go along, and the parts' weights that are not read."""
    weights: dict[PurePath, set[str]] = {}
    read: set[PurePath] = set()
    for part in parts:
        checkpoint = part.checkpoint
        files = [file.path.name for file in checkpoint.files]
        files += [checkpoint.index.path.name] if checkpoint.index is not None else []
        weights.setdefault(part.place, set(_weights_files(source / part.place))).update(files)
        read.update(part.place / name for name in files)
    others, left_out = [], []
    for place, name in walk(source):
        if place in weights and name == DIGESTS_NAME:
            continue
        if name not in weights.get(place, ()):
            others.append(place / name)
        elif place / name not in read:
            left_out.append(place / name)
    return tuple(others), tuple(left_out)


def _weights_files(folder: Path) -> Iterator[str]:
    """The files in a component's folder that hold or index weights under the names that loaders look for."""
    for name, files in weights_in(folder).items():
        if name.stem in COMPONENT_STEMS:
            yield from files
    yield from (name for name in names_in(folder) if parse_pickle(name) is not None)


def walk(folder: Path, place: PurePath = _HERE, *, linked: bool = False) -> Iterator[tuple[PurePath, str]]:
    """Every file below ``folder`` as (its folder relative to ``folder``, its name), sorted; links are followed.

    ``linked`` says that ``place`` was reached through a link to a folder. Raises ``InputError`` for what may not be
    looked at, for a link that leads nowhere or out of ``folder``, and for a link to a folder below another such link:
    a few of those can stand for any number of files.
    """
    for name in names_in(folder / place):
        path = folder / place / name
        is_link = os.path.islink(path)  # noqa: PTH114 (no error where it may not be looked at)
        if is_link:
            check_link(folder, path)
        if not is_folder(path):
            if not os.path.exists(path):  # noqa: PTH110 (likewise)
                OpenFile(path).close()  # says why
            yield place, name
        elif is_link and linked:
            raise InputError(
                f"{path}: is a link to a folder, and lies below another link to one",
                code="link_nested",
                path=path,
                hint="put the folder itself there",
            )
        elif name not in _SKIPPED:
            yield from walk(folder, place / name, linked=linked or is_link)
