"""Look into a source on the Hub without downloading weights.

A folder is laid out in which every file has its name and its size, but only configs, indexes and the headers of the
weights have contents; they come by range requests, the weights' bytes are holes that take no room on the disk. What
judges the structure of a local folder judges this one, and the results are put into the source's own name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from huggingface_hub import constants, hf_hub_url
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_stream_backoff

from shardtool.checkpoint.header import MAX_HEADER
from shardtool.checkpoint.index import INDEX_LIMIT
from shardtool.errors import ShardtoolError
from shardtool.events import Advanced, Finished, Listener, Started, ignore
from shardtool.hub.cache import cached_commit, cached_paths, snapshot
from shardtool.hub.fetch import not_cached, not_in_cache
from shardtool.hub.listing import TIMEOUT, Listing, Place, look_up, place_of, place_on_hub
from shardtool.hub.naming import PREFIX, error_as_on_hub, named_as_on_hub
from shardtool.hub.structure import Structure
from shardtool.hub.trouble import explained
from shardtool.source import HubSource

T = TypeVar("T")

FIRST_READ = 32 * 1024
"""Bytes asked for at first; a header that is longer is completed with a second request."""

TASK = "headers"
_REQUESTS = 8


def look_into(
    source: HubSource, look: Callable[[Path], T], *, variant: str | None, offline: bool, on_event: Listener
) -> T:
    """``look(path)``, where ``path`` has the structure of ``source`` (see ``shardtool.source.look_into``)."""
    with structure_of(source, variant=variant, texts=False, offline=offline, on_event=on_event) as path:
        return named_as_on_hub(look(path))


@contextmanager
def structure_of(
    source: HubSource, *, variant: str | None, texts: bool, offline: bool, on_event: Listener
) -> Iterator[Path]:
    """A path with the structure of ``source`` (see ``shardtool.source.structure_of``)."""
    if offline or constants.HF_HUB_OFFLINE:
        yield _cached(source)
        return
    listing = look_up(source)
    place = place_on_hub(source, listing)
    with TemporaryDirectory(prefix=PREFIX) as temporary:
        root = Path(temporary) / place.shown
        structure = Structure(root, place.below(listing.files), place.file, variant, texts)
        with explained(source):
            _lay_out(listing, place, structure, on_event)
        try:
            yield root / (place.file or "")
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


def _lay_out(listing: Listing, place: Place, structure: Structure, on_event: Listener) -> None:
    root = structure.root
    for name in structure.names:
        if name.count("/") <= 1:  # components are no deeper
            _hole(root / name, listing.files[place.path(name)].size)
    with ThreadPoolExecutor(_REQUESTS) as pool:

        def fill(wanted: Sequence[str], listener: Listener = ignore, *, header_only: bool = False) -> None:
            starts = pool.map(lambda name: _start(listing, place.path(name), header_only=header_only), wanted)
            for name, start in zip(wanted, starts, strict=True):
                _fill(root / name, start)
                listener(Advanced(TASK))

        fill(structure.first_files())
        fill(structure.small_files())
        weights = structure.weights()
        on_event(Started(TASK, f"Reading the headers of {listing.repo}", len(weights), "files"))
        fill(weights, on_event, header_only=True)
        on_event(Finished(TASK))


def _hole(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def _fill(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.write(data)


def _start(listing: Listing, path: str, *, header_only: bool) -> bytes:
    """A small file, or the start of a file of weights up to the end of its header, if it has one."""
    size = listing.files[path].size
    if not header_only:
        return _range(listing, path, 0, min(size, INDEX_LIMIT))
    start = _range(listing, path, 0, min(size, FIRST_READ))
    end = 8 + int.from_bytes(start[:8], "little")
    if len(start) < end <= min(size, 8 + MAX_HEADER):
        start += _range(listing, path, len(start), end)
    return start


def _range(listing: Listing, path: str, begin: int, end: int) -> bytes:
    """The bytes from ``begin`` up to ``end`` of a file. A server that sends more is cut off."""
    if begin >= end:
        return b""
    url = hf_hub_url(listing.repo, path, revision=listing.commit)
    headers = {**build_hf_headers(), "Range": f"bytes={begin}-{end - 1}", "Accept-Encoding": "identity"}
    data = bytearray()
    with http_stream_backoff("GET", url, headers=headers, timeout=TIMEOUT, max_retries=2) as response:
        hf_raise_for_status(response)
        wanted = end if response.status_code == 200 else end - begin  # 200: the range was ignored
        for chunk in response.iter_raw():
            data += chunk
            if len(data) >= wanted:
                break
    return bytes(data[wanted - (end - begin) : wanted])
