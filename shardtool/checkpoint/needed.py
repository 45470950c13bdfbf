"""Which files of a source are needed to use it: an explicit list, decided from file names and small files alone.

Of a component: its config, and of one variant the index with the shards that it names, or the single file. Of a
pipeline: ``model_index.json``, the same for every component that is wanted, and the text files of those components
that have no weights (tokenizers, the scheduler). Pickles are among them only where they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from shardtool.checkpoint.digests import DIGESTS_NAME
from shardtool.checkpoint.folder import PICKLE_SUFFIXES, choose_among, kind_among, read_pipeline, weights_among
from shardtool.checkpoint.index import read_index
from shardtool.checkpoint.names import (
    COMPONENT_STEMS,
    CONFIG_NAME,
    PIPELINE_NAME,
    SETTINGS_NAMES,
    WeightsName,
    parse_name,
    parse_pickle,
)
from shardtool.errors import InputError, Problem

Read: TypeAlias = Callable[[str], Path]
"""Where the small file of that name lies on this machine; it may have to be fetched for that."""

TEXTS = (".json", ".txt", ".model")
"""What tokenizers, schedulers and image processors consist of."""


@dataclass
class Needed:
    """Names relative to the source, with ``/``. ``weights`` has one list of files for each checkpoint.

    ``small`` are configs, indexes and digests; ``texts`` what components without weights consist of.
    """

    small: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    weights: list[list[str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [*self.small, *self.texts, *(name for names in self.weights for name in names)]


@dataclass(frozen=True)
class Source:
    """The ``names`` of all files below a source's root, which messages call ``where``."""

    names: Collection[str]
    read: Read
    where: Path

    def folder(self, prefix: str) -> list[str]:
        """The plain names of the files directly in a folder; ``""`` is the root."""
        start = f"{prefix}/" if prefix else ""
        below = (name.removeprefix(start) for name in self.names if name.startswith(start))
        return sorted(name for name in below if "/" not in name)


@dataclass(frozen=True)
class Wanted:
    """What of a source is wanted: a ``variant``, and of a pipeline ``components`` (``None``: all) ``without`` some.

    ``pickles``: pickled weights are taken where there are no others. ``or_default``: so are a component's default
    weights where it has no such variant.
    """

    variant: str | None = None
    components: Collection[str] | None = None
    without: Collection[str] = ()
    pickles: bool = False
    or_default: bool = False

    def takes(self, component: str) -> bool:
        return (self.components is None or component in self.components) and component not in self.without


def needed_files(source: Source, wanted: Wanted) -> Needed:
    """What of ``source``, a component or a pipeline, is needed.

    What is missing or damaged comes back as problems. Raises ``InputError`` where there is neither.
    """
    needed = Needed()
    names = source.folder("")
    match kind_among(names):
        case "pipeline":
            _pipeline(source, needed, wanted)
        case "component":
            _weights(source, needed, "", names, wanted)
        case None if wanted.components is not None and any(name in SETTINGS_NAMES for name in names):
            # A scheduler or a tokenizer by itself, which is to take the place of a pipeline's.
            needed.texts.extend(name for name in names if name.endswith(TEXTS))
        case None:
            raise _no_checkpoint(source)
    return needed


def needed_for_file(source: Source, name: str) -> Needed:
    """What is needed for one file in the source's root: an index takes its shards with it."""
    parsed = parse_name(name)
    if parsed is None or not parsed.is_index:
        return Needed(weights=[[name]])
    needed = Needed(small=[name])
    _indexed(source, needed, "", name)
    return needed


def _pipeline(source: Source, needed: Needed, wanted: Wanted) -> None:
    needed.small.append(PIPELINE_NAME)
    pipeline = read_pipeline(source.read(PIPELINE_NAME).parent)
    for component, (library, _) in pipeline.components.items():
        if not wanted.takes(component):
            continue
        names = source.folder(component)
        if not names:
            message = f"{source.where / component}: no such folder, though {PIPELINE_NAME} names the component"
            needed.problems.append(Problem("component_missing", message, str(source.where / component)))
        elif weights_among(names):
            _weights(source, needed, component, names, wanted, library)
        elif any(name.endswith(PICKLE_SUFFIXES) for name in names):
            _weights(source, needed, component, names, wanted)
        else:
            needed.texts.extend(f"{component}/{name}" for name in names if name.endswith(TEXTS))


def _present(names: Collection[str], wanted: Wanted) -> Wanted:
    """``wanted``, with the default weights where the component has none of that variant."""
    there = any(name.variant == wanted.variant for name in weights_among(names))
    return wanted if there else replace(wanted, variant=None)


def _weights(
    source: Source, needed: Needed, folder: str, names: list[str], wanted: Wanted, library: str | None = None
) -> None:
    """Add a component's files, as ``library`` would take them."""
    needed.small.extend(_inside(folder, name) for name in (CONFIG_NAME, DIGESTS_NAME) if name in names)
    if wanted.or_default:
        wanted = _present(names, wanted)
    if wanted.pickles and (pickled := _pickled(names, wanted.variant)):
        needed.weights.append([_inside(folder, name) for name in pickled])
        return
    try:
        found = choose_among(names, wanted.variant, source.where / folder)
    except InputError as error:
        needed.problems.append(error.as_problem())
        return
    first = found.first(library)
    if first in found.indexes:
        needed.small.append(_inside(folder, first))
        _indexed(source, needed, folder, first)
    else:  # shards without an index cannot be loaded, but an index can be rebuilt from them
        needed.weights.append([_inside(folder, name) for name in ([first] if first else found.shards)])


def _pickled(names: Collection[str], variant: str | None) -> list[str]:
    """The pickled weights of a variant, with their index, where they exist as pickles only."""
    for stem in COMPONENT_STEMS:
        name = WeightsName(stem, variant)
        if found := [text for text in names if parse_pickle(text) == name and name not in weights_among(names)]:
            return found
    return []


def _indexed(source: Source, needed: Needed, folder: str, index: str) -> None:
    """Add the shards that an index names."""
    try:
        shards = read_index(source.read(_inside(folder, index))).files
    except InputError as error:
        needed.problems.extend(error.as_problems())
        return
    present = source.folder(folder)
    absent = [name for name in shards if name not in present]
    if absent:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        path = source.where / folder / absent[0]
        message = f"{path}{more}: not there, though {index} names {len(shards)} shards"
        hint = "whoever made this checkpoint must add what is missing; a revision may still have it"
        needed.problems.append(Problem("shard_missing", message, str(path), hint=hint))
    needed.weights.append([_inside(folder, name) for name in shards])


def _inside(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _no_checkpoint(source: Source) -> InputError:
    folders = sorted({str(PurePosixPath(name).parent) for name in source.names if parse_name(PurePosixPath(name).name)})
    hint = f"it has weights in {', '.join(folders[:8])}: name one as SOURCE:FOLDER" if folders else None
    message = f"{source.where}: holds no {PIPELINE_NAME}, no {CONFIG_NAME} and no weights"
    return InputError(message, code="not_a_checkpoint", path=source.where, hint=hint)
