"""Put a finished file or folder in its place in one step, and make names durable."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

_NOREPLACE, _EXCHANGE = 1, 2
_AT_FDCWD = -100
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network filesystems cannot sync a folder
            raise
    finally:
        os.close(fd)


def move_into_place(made: Path, place: Path) -> None:
    """Rename ``made`` to ``place``, where nothing may be. Raises ``FileExistsError`` otherwise."""
    if not _rename(made, place, _NOREPLACE):
        if os.path.lexists(place):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))
        made.rename(place)


def exchange(one: Path, other: Path) -> bool:
    """Let two existing names change places in one step; ``False`` where the filesystem cannot."""
    return _rename(one, other, _EXCHANGE)


def _rename(one: Path, other: Path, flags: int) -> bool:
    renameat2 = _renameat2()
    if renameat2 is None:
        return False
    code = renameat2(os.fsencode(one), os.fsencode(other), flags)
    if code in _UNSUPPORTED:
        return False
    if code:
        raise OSError(code, os.strerror(code), str(one), None, str(other))
    return True


@cache
def _renameat2() -> Callable[[bytes, bytes, int], int] | None:
    """``renameat2(2)`` through the C library, giving an errno; ``None`` where there is none (macOS, musl)."""
    import ctypes

    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return None

    def call(one: bytes, other: bytes, flags: int) -> int:
        return ctypes.get_errno() if function(_AT_FDCWD, one, _AT_FDCWD, other, flags) else 0

    return call
