"""Look into a source on the Hub without downloading weights.

A folder is laid out in which every file has its name and its size, but only configs, indexes and the headers of the
weights have contents; they come by range requests, the weights' bytes are holes that take no room on the disk. What
judges the structure of a local folder judges this one, and the results are put into the source's own name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

from huggingface_hub import constants, hf_hub_url
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_stream_backoff

from shardtool.checkpoint.header import MAX_HEADER, Header
from shardtool.checkpoint.index import INDEX_LIMIT
from shardtool.errors import ShardtoolError
from shardtool.events import Advanced, Finished, Listener, Started, ignore
from shardtool.hub.cache import cached_commit, cached_paths, snapshot
from shardtool.hub.fetch import not_cached, not_in_cache
from shardtool.hub.listing import TIMEOUT, Listing, Place, look_up, place_of, place_on_hub
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
    if offline or constants.HF_HUB_OFFLINE:
        return look(_cached(source))
    listing = look_up(source)
    place = place_on_hub(source, listing)
    with TemporaryDirectory(prefix="shardtool-") as temporary:
        root = Path(temporary) / place.shown
        with explained(source):
            _lay_out(listing, place, root, variant, on_event)
        try:
            return cast(T, _renamed(look(root / (place.file or "")), temporary))
        except ShardtoolError as error:
            raise _renamed_error(error, temporary) from error


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


def _lay_out(listing: Listing, place: Place, root: Path, variant: str | None, on_event: Listener) -> None:
    names = place.below(listing.files)
    for name in names:
        if name.count("/") <= 1:  # components are no deeper
            _hole(root / name, listing.files[place.path(name)].size)

    structure = Structure(root, names, place.file, variant)
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


def _renamed(value: Any, temporary: str) -> Any:
    """``value`` with every path and text that names the temporary folder named as on the Hub."""
    start = f"{temporary}/"
    match value:
        case str():
            return value.replace(start, "")
        case Path():
            return value.relative_to(temporary) if value.is_relative_to(temporary) else value
        case Header():
            return value
        case Mapping():
            return {key: _renamed(item, temporary) for key, item in value.items()}
        case tuple() | list():
            return type(value)(_renamed(item, temporary) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{field.name: _renamed(getattr(value, field.name), temporary) for field in fields(value)}
        )
    return value


def _renamed_error(error: ShardtoolError, temporary: str) -> ShardtoolError:
    problems: Sequence[Any] = _renamed(error.problems, temporary)
    message, hint, path = (_renamed(value, temporary) for value in (error.message, error.hint, error.path))
    return type(error)(message, code=error.code, hint=hint, path=path, tensor=error.tensor, problems=problems)
