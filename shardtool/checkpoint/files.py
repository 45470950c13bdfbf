"""Open a file that somebody else made, without waiting, surprises or memory maps.

A checkpoint may hold a pipe, a device or a dangling link where a shard should be, and a file may change while it is
read. Each file must therefore be a regular one, is opened once, without blocking, is read by position (a memory map of
a file that shrinks kills the whole process), and its identity can be compared again afterwards.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from shardtool.errors import InputError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True)
class FileState:
    """What must stay the same while a file is in use. ``size`` is in bytes."""

    device: int
    inode: int
    size: int
    mtime_ns: int


class OpenFile:
    """A regular file, open for reading by position. Use it in a ``with`` statement."""

    def __init__(self, path: Path) -> None:
        """Raises ``InputError`` where ``path`` is missing, a dangling link, unreadable, or no regular file."""
        self.path = path
        self.fd = _open_regular(path)
        self.state = self._look()

    def _look(self) -> FileState:
        status = os.fstat(self.fd)
        return FileState(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    @property
    def size(self) -> int:
        """Bytes in the file when it was opened."""
        return self.state.size

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``. Raises ``InputError`` when the file ends before that."""
        parts = []
        while length > 0:
            part = self._pread(length, offset)
            if not part:
                raise self.changed(f"ends at byte {offset}, where more was promised")
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return b"".join(parts)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer``, of bytes, from ``offset``. Raises ``InputError`` when the file ends before that."""
        while len(buffer):
            try:
                count = os.preadv(self.fd, [buffer], offset)
            except OSError as error:
                raise self._unreadable(offset, error) from error
            if not count:
                raise self.changed(f"ends at byte {offset}, where more was promised")
            buffer, offset = buffer[count:], offset + count

    def _pread(self, length: int, offset: int) -> bytes:
        try:
            return os.pread(self.fd, length, offset)
        except OSError as error:
            raise self._unreadable(offset, error) from error

    def _unreadable(self, offset: int, error: OSError) -> InputError:
        return InputError(
            f"{self.path}: cannot be read at byte {offset}: {error.strerror}",
            code="unreadable",
            path=self.path,
            hint="the disk or the network share may be failing: copy the file again",
        )

    def check_unchanged(self, expected: FileState | None = None) -> None:
        """Raises ``InputError`` if the file is not as ``expected`` (by default: as it was when it was opened)."""
        if self._look() != (expected or self.state):
            raise self.changed("changed while it was read")

    def changed(self, how: str) -> InputError:
        return InputError(
            f"{self.path}: {how}",
            code="file_changed",
            path=self.path,
            hint="let whatever writes to it finish, then run again",
        )

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_whole(path: Path, *, limit: int, code: str) -> bytes:
    """The contents of a small file. Raises ``InputError``: with ``code`` where it is larger than ``limit`` bytes."""
    with OpenFile(path) as file:
        if file.size > limit:
            raise InputError(f"{path}: {file.size:,} bytes, where at most {limit:,} make sense", code=code, path=path)
        return file.read_at(0, file.size)


def _open_regular(path: Path) -> int:
    try:
        _require_regular(path, path.stat())  # not opened first: the writer of a pipe would notice that, or a tape
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise _missing(path) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be opened: {reason}", code="unreadable", path=path) from error
    try:
        _require_regular(path, os.fstat(fd))
    except InputError:
        os.close(fd)
        raise
    return fd


def _require_regular(path: Path, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
    raise InputError(
        f"{path}: is {kind}, where a file should be",
        code="not_a_file",
        path=path,
        hint="put the real file there",
    )


def _missing(path: Path) -> InputError:
    if path.is_symlink():
        return InputError(
            f"{path}: is a link to {path.readlink()}, which does not exist",
            code="dangling_link",
            path=path,
            hint="a copied Hub cache loses its blobs: download it again, or copy it with links followed (cp -L)",
        )
    return InputError(f"{path}: no such file", code="file_missing", path=path)
