"""Several files of a repo into the Hub's cache at once, with progress as events on the caller's thread.

The client downloads; it resumes after a broken connection, writes to a temporary file and renames. It reports progress
to a class that looks like tqdm's bar, which here puts counts into a queue that the caller's thread empties.
"""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections.abc import Sequence
from typing import Any, TypeAlias

from huggingface_hub import hf_hub_download

from shardtool.errors import RefusedError
from shardtool.events import Advanced, Finished, Listener, Started
from shardtool.hub.cache import cache_folder, repo_folder
from shardtool.hub.listing import Listing
from shardtool.hub.trouble import ELSEWHERE
from shardtool.sizes import format_size

TASK = "download"
_WORKERS = 4
_PATIENCE = 2.0
"""Seconds that an interrupted run waits for its workers to remove their temporary files."""

_Report: TypeAlias = "int | Exception | None"
"""Bytes that arrived, what went wrong, or ``None`` when a worker has no more to do."""


class _StoppedError(Exception):
    """Raised inside the client, through its progress bar, to end a download that nobody waits for."""


def download_one(listing: Listing, path: str) -> None:
    """One small file, without progress. Does nothing where the cache has it."""
    hf_hub_download(listing.repo, path, revision=listing.commit, tqdm_class=_silent())


def download(listing: Listing, paths: Sequence[str], on_event: Listener, *, force: bool = False) -> None:
    """The files ``paths`` of a repo; with ``force`` also those that are in the cache.

    Raises ``RefusedError`` where the disk has not enough room, and what the client raises.
    """
    size = arriving(listing, paths, force=force)
    _check_room(size)
    label = f"Downloading {listing.repo} ({len(paths)} file{'s' if len(paths) > 1 else ''})"
    on_event(Started(TASK, label, size))
    reports: queue.SimpleQueue[_Report] = queue.SimpleQueue()
    stop = threading.Event()
    waiting = queue.SimpleQueue[str]()
    for path in sorted(paths, key=lambda path: -listing.files[path].size):
        waiting.put(path)
    bar = _bar(reports, stop)

    def work() -> None:
        try:
            while not stop.is_set():
                path = waiting.get_nowait()
                hf_hub_download(listing.repo, path, revision=listing.commit, tqdm_class=bar, force_download=force)
        except queue.Empty:
            pass
        except Exception as error:  # noqa: BLE001 (raised again on the caller's thread)
            reports.put(error)
        finally:
            reports.put(None)

    # Daemons, because Ctrl-C must not wait for a chunk that is slow to come.
    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(_WORKERS, len(paths)))]
    try:
        for worker in workers:
            worker.start()
        _listen(reports, len(workers), on_event)
    finally:
        stop.set()
        until = time.monotonic() + _PATIENCE
        for worker in workers:
            worker.join(max(0.0, until - time.monotonic()))
    on_event(Finished(TASK))


def _listen(reports: queue.SimpleQueue[_Report], workers: int, on_event: Listener) -> None:
    while workers:
        match reports.get():
            case None:
                workers -= 1
            case int(count):
                on_event(Advanced(TASK, count))
            case Exception() as error:
                raise error


def arriving(listing: Listing, paths: Sequence[str], *, force: bool = False) -> int:
    """Bytes that have to come over the network: equal contents once, and none that the cache has under another name."""
    blobs = repo_folder(listing.repo) / "blobs"
    files = {file.blob or path: file for path in paths for file in [listing.files[path]]}
    return sum(file.size for file in files.values() if force or not (blobs / file.blob).exists())


def _check_room(needed: int) -> None:
    folder = cache_folder()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        message = f"{cache_folder()}: the download needs {format_size(needed)}, the disk has {format_size(free)} free"
        raise RefusedError(message, code="disk", path=cache_folder(), hint=ELSEWHERE)


def _bar(reports: queue.SimpleQueue[_Report], stop: threading.Event) -> type[Any]:
    """The class that the client makes its bars from, one a file."""

    class Bar:
        def __init__(self, *_: object, total: int | None = None, **__: object) -> None:
            self.total = total

        def update(self, count: float | None = 1) -> None:
            if stop.is_set():
                raise _StoppedError
            reports.put(int(count or 0))

        def update_transfer(self, count: float | None = 1) -> None:
            """Bytes on the wire, which the Hub's chunk store counts apart from those that reach the file."""

        def set_postfix_str(self, text: str, refresh: bool = True) -> None:  # noqa: FBT001 (tqdm's signature)
            """The speed, which we do not show."""

        set_transfer_postfix_str = set_postfix_str

        def close(self) -> None:
            """Nothing is drawn."""

        refresh = close

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *error: object) -> None:
            self.close()

    return Bar


def _silent() -> type[Any]:
    return _bar(queue.SimpleQueue(), threading.Event())
