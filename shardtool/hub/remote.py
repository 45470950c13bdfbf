"""Look into a source on the Hub without downloading weights.

A folder is laid out in which every file has its name and its size, but only configs, indexes and the headers of the
weights have contents. What judges the structure of a local folder judges this one, and the results are put into the
source's own name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from huggingface_hub import constants

from shardtool.checkpoint.folder import PICKLE_SUFFIXES
from shardtool.checkpoint.needed import Source, Wanted
from shardtool.errors import InputError, ShardtoolError
from shardtool.events import Advanced, Finished, Listener, Started
from shardtool.hub.cache import cached_commit, cached_paths, snapshot
from shardtool.hub.download import arriving
from shardtool.hub.fetch import fetch, needed_at, not_cached, not_here, not_in_cache
from shardtool.hub.listing import look_up, place_of, place_on_hub
from shardtool.hub.naming import PREFIX, error_as_on_hub, named_as_on_hub
from shardtool.hub.sketch import Sketch
from shardtool.hub.structure import Structure
from shardtool.hub.trouble import explained
from shardtool.source import HubSource, Outline

T = TypeVar("T")

TASK = "headers"


def look_into(
    source: HubSource, look: Callable[[Path], T], *, variant: str | None, offline: bool, on_event: Listener
) -> T:
    """``look(path)``, where ``path`` has the structure of ``source`` (see ``shardtool.obtain.look_into``)."""
    with structure_of(source, variant=variant, texts=False, offline=offline, on_event=on_event) as path:
        return named_as_on_hub(look(path))


@contextmanager
def structure_of(
    source: HubSource, *, variant: str | None, texts: bool, offline: bool, on_event: Listener
) -> Iterator[Path]:
    """A path with the structure of ``source`` (see ``shardtool.obtain.structure_of``)."""
    if offline or constants.HF_HUB_OFFLINE:
        yield _cached(source)
        return
    with _sketched(source) as sketch:
        place = sketch.place
        structure = Structure(sketch.root, place.below(sketch.listing.files), place.file, variant, texts)
        with explained(source):
            _lay_out(sketch, structure, on_event)
        yield sketch.root / (place.file or "")


@contextmanager
def outline_of(source: HubSource, wanted: Wanted, *, offline: bool, on_event: Listener) -> Iterator[Outline]:
    """What ``fetch`` would give, as an outline (see ``shardtool.obtain.outline_of``)."""
    if offline or constants.HF_HUB_OFFLINE:
        yield Outline(fetch(source, wanted, offline=True, on_event=on_event))
        return
    with _sketched(source) as sketch:
        with explained(source):
            outline = _outlined(sketch, wanted, on_event)
        if outline is not None:
            yield outline
            return
    yield Outline(fetch(source, wanted, offline=False, on_event=on_event))


def _outlined(sketch: Sketch, wanted: Wanted, on_event: Listener) -> Outline | None:
    """The files that are needed; ``None`` for pickles, whose structure is in their middle, and where all are here."""
    place, listing = sketch.place, sketch.listing
    needed = needed_at(place, Source(place.below(listing.files), sketch.read, place.shown), wanted)
    if needed.problems:
        raise InputError.of_all(needed.problems)
    weights = [name for names in needed.weights for name in names]
    missing = not_here(listing, map(place.path, needed.names))
    if not missing or any(name.endswith(PICKLE_SUFFIXES) for name in weights):
        return None
    sketch.lay(needed.names)
    sketch.fill(needed.small)
    _fill_headers(sketch, weights, on_event)
    return Outline(sketch.root / (place.file or ""), arriving(listing, missing))


@contextmanager
def _sketched(source: HubSource) -> Iterator[Sketch]:
    """An empty sketch of ``source``, and its own name in what goes wrong in the block."""
    listing = look_up(source)
    place = place_on_hub(source, listing)
    with TemporaryDirectory(prefix=PREFIX) as temporary:
        try:
            yield Sketch(Path(temporary) / place.shown, listing, place)
        except ShardtoolError as error:
            raise error_as_on_hub(error) from error


def _cached(source: HubSource) -> Path:
    revision = source.revision or constants.DEFAULT_REVISION
    commit = cached_commit(source.repo, revision)
    if commit is None:
        raise not_cached(source, revision)
    folder = snapshot(source.repo, commit)
    place = place_of(source, cached_paths(folder))
    if place is None:
        raise not_in_cache(source, commit)
    return folder / place.folder / (place.file or "")


def _lay_out(sketch: Sketch, structure: Structure, on_event: Listener) -> None:
    sketch.lay(name for name in structure.names if name.count("/") <= 1)  # components are no deeper
    sketch.fill(structure.first_files())
    sketch.fill(structure.small_files())
    _fill_headers(sketch, structure.weights(), on_event)


def _fill_headers(sketch: Sketch, weights: Sequence[str], on_event: Listener) -> None:
    on_event(Started(TASK, f"Reading the headers of {sketch.listing.repo}", len(weights), "files"))
    sketch.fill(weights, lambda: on_event(Advanced(TASK)), header_only=True)
    on_event(Finished(TASK))
