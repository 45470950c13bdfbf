"""A repo's files with their names and sizes, of which only as much has contents as is needed to judge the structure.

Small files come whole and weights up to the end of their headers, by range requests; the rest are holes, which take no
room on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import hf_hub_url
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_stream_backoff

from shardtool.checkpoint.header import MAX_HEADER
from shardtool.checkpoint.index import INDEX_LIMIT
from shardtool.errors import HubError
from shardtool.hub.listing import TIMEOUT, Listing, Place

FIRST_READ = 32 * 1024
"""Bytes asked for at first; a header that is longer is completed with a second request."""

_REQUESTS = 8


@dataclass(frozen=True)
class Sketch:
    """The files below ``place``, laid out in ``root`` under the names that they have there."""

    root: Path
    listing: Listing
    place: Place

    def lay(self, names: Iterable[str]) -> None:
        """Make holes of these files' sizes."""
        for name in names:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.truncate(self.listing.files[self.place.path(name)].size)

    def fill(
        self, names: Sequence[str], filled: Callable[[], None] = lambda: None, *, header_only: bool = False
    ) -> None:
        """Give files that are laid their contents, or their headers. ``filled`` is called for each of them.

        Raises what the client raises.
        """
        with ThreadPoolExecutor(_REQUESTS) as pool:
            paths = [self.place.path(name) for name in names]
            starts = pool.map(lambda path: _start(self.listing, path, header_only=header_only), paths)
            for name, start in zip(names, starts, strict=True):
                with (self.root / name).open("r+b") as file:
                    file.write(start)
                filled()

    def read(self, name: str) -> Path:
        """Where the contents of a small file lie."""
        self.lay([name])
        self.fill([name])
        return self.root / name


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
    """The bytes from ``begin`` up to ``end`` of a file. A server that sends more is cut off, less is an error."""
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
    if len(data) < wanted:
        size = listing.files[path].size
        raise HubError(
            f"{listing.repo}/{path}: ends at byte {end - wanted + len(data):,}, the Hub's record says {size:,}",
            code="download_incomplete",
            path=f"{listing.repo}/{path}",
            hint="run it again; if it stays so, the repo itself is damaged",
        )
    return bytes(data[wanted - (end - begin) : wanted])
