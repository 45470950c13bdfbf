"""Send written bytes to the disk early, so that the final fsync finds little left to do."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from functools import cache

WINDOW = 128 << 20
"""Bytes that may be on their way to the disk before more are written: bounds how long fsync, and Ctrl-C, can take."""

STEP = 16 << 20
"""Bytes that are handed to the disk at once."""

_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4
_LOST = {errno.EIO, errno.ENOSPC, errno.EDQUOT}


class Writeback:
    """Starts the writing of what was put into one file, and makes it durable at the end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._begun = 0
        self._under_way: deque[tuple[int, int]] = deque()

    def written(self, end: int) -> None:
        """Everything before byte ``end`` of the file is written."""
        while end - self._begun >= STEP:
            self._start(self._begun, STEP)
            self._begun += STEP

    def _start(self, offset: int, length: int) -> None:
        _sync_range(self._fd, offset, length, _WRITE)
        self._under_way.append((offset, length))
        if len(self._under_way) * STEP > WINDOW:
            _sync_range(self._fd, *self._under_way.popleft(), _WAIT_BEFORE | _WRITE | _WAIT_AFTER)

    def finish(self) -> None:
        """Returns when the whole file is on the disk."""
        os.fsync(self._fd)


def _sync_range(fd: int, offset: int, length: int, flags: int) -> None:
    call = _sync_file_range()
    if call is not None and (code := call(fd, offset, length, flags)) in _LOST:
        raise OSError(code, os.strerror(code))


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """``sync_file_range(2)`` of Linux, giving an errno; ``None`` elsewhere: then fsync does all the work."""
    import ctypes

    function = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if function is None:
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)

    def call(fd: int, offset: int, length: int, flags: int) -> int:
        return ctypes.get_errno() if function(fd, offset, length, flags) else 0

    return call
