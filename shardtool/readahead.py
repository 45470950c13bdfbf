"""Ask the kernel to read a checkpoint's files into its cache while something else is done first."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path

_STEP = 16 * 2**20


def read_ahead(paths: Iterable[Path]) -> threading.Thread | None:
    """Begin to read the files ahead, in a thread of its own that ends by itself; ``None`` where the system cannot.

    This is a hint and nothing waits for it: no memory of the process is used, and an error is left to the real reader.
    """
    if not hasattr(os, "posix_fadvise"):
        return None
    thread = threading.Thread(target=_advise, args=(tuple(paths),), name="shardtool-readahead", daemon=True)
    thread.start()
    return thread


def _advise(paths: tuple[Path, ...]) -> None:
    for path in paths:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            # Step by step, because one call for all of a large file is cut short by the kernel.
            for start in range(0, os.fstat(fd).st_size, _STEP):
                os.posix_fadvise(fd, start, _STEP, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(fd)
