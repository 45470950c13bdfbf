"""Have the kernel read a checkpoint's files into its cache while something else is done first."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path

_STEP = 16 * 2**20
_PROBES = 4


def read_ahead(paths: Iterable[Path]) -> threading.Thread | None:
    """Begin to read the files ahead, in a thread of its own that ends by itself; ``None`` where the system cannot.

    This is a hint and nothing waits for it: no memory of the process is used, and an error is left to the real reader.
    """
    if not hasattr(os, "posix_fadvise"):
        return None
    thread = threading.Thread(target=_fetch_all, args=(tuple(paths),), name="shardtool-readahead", daemon=True)
    thread.start()
    return thread


def _fetch_all(paths: tuple[Path, ...]) -> None:
    for path in paths:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            for start in range(0, os.fstat(fd).st_size, _STEP):
                if not _is_cached(fd, start):
                    _fetch(fd, start)
        except OSError:
            continue
        finally:
            os.close(fd)


def _is_cached(fd: int, start: int) -> bool:
    """Whether a few bytes of the step can be had without waiting for the disk."""
    if not hasattr(os, "RWF_NOWAIT"):
        return False
    try:
        return all(os.preadv(fd, [bytearray(1)], start + n * _STEP // _PROBES, os.RWF_NOWAIT) for n in range(_PROBES))
    except OSError:  # would wait, or the file system cannot tell
        return False


def _fetch(fd: int, start: int) -> None:
    if hasattr(os, "sendfile"):
        # Pages that go from a file to nowhere are read and not copied. An advice is cut short: the kernel reads no more
        # for one call than it reads ahead anyway, often 128 KiB.
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.sendfile(null, fd, start, _STEP)
            return
        except OSError:
            pass
        finally:
            os.close(null)
    os.posix_fadvise(fd, start, _STEP, os.POSIX_FADV_WILLNEED)
