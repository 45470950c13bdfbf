"""One run at a time on one target: a locked file beside it that names the process."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shardtool.checkpoint.undisturbed import undisturbed
from shardtool.errors import RefusedError

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def locked(path: Path, *, target: Path) -> Iterator[None]:
    """Hold the lock file ``path`` for ``target``. The kernel frees it when the process dies, however it dies.

    Raises ``RefusedError`` at once, naming the process, where another run holds it.
    """
    fd = -1
    try:
        with undisturbed():
            fd = _take(path, target)
        yield
    finally:
        with undisturbed():
            if fd >= 0:
                path.unlink(missing_ok=True)
                os.close(fd)


def _take(path: Path, target: Path) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            _flock(fd, target)
        except BaseException:
            os.close(fd)
            raise
        if _is_still(path, fd):
            return _signed(path, fd)
        os.close(fd)  # its holder finished and removed it between our open and our lock: take the next one


def _signed(path: Path, fd: int) -> int:
    """Write this process into the lock file that it holds."""
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        path.unlink(missing_ok=True)
        os.close(fd)
        raise
    return fd


def _flock(fd: int, target: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        who = f"process {pid}" if pid.isdecimal() else "another process"
        raise RefusedError(
            f"{target}: {who} is writing to it",
            code="target_busy",
            path=target,
            hint="wait until it has finished, or choose another target with -o",
        ) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _is_still(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False
