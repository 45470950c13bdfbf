"""Move a range of bytes from one file into another, by the cheapest way that works here.

::

    reflink           the filesystem shares the blocks (FICLONERANGE): no bytes are read or written
    copy_file_range   the kernel copies, without a detour through this process
    read_write        blocks of 256 KiB; memory maps were measured twice as slow

Pieces end where the target's offset is a multiple of their size. The page cache then takes memory in pieces of the same
size, which was measured to save a third of the processor's time; with aligned writes of 1 MiB and more it searches for
memory so large that they cost up to four times as much as those of 256 KiB.

A way that a filesystem refuses is not tried again for the same pair of devices.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.layout import BLOCK

if sys.platform != "win32":
    import fcntl

Way: TypeAlias = Literal["reflink", "copy_file_range", "read_write", "converted"]
"""How bytes came to the target; those that are ``converted`` are no bytes of the source, and not moved here."""

BUFFER = 1 << 18
"""Bytes that one plain read takes."""

PIECE = 32 << 20
"""Bytes that the kernel copies in one call: small enough for progress and Ctrl-C, large enough to cost nothing."""

CLONE = 1 << 30
"""Bytes that are shared in one call."""

_FICLONERANGE = 0x4020940D
_NOT_HERE = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.ETXTBSY}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

Moved: TypeAlias = Callable[[int, int], None]
"""Called with (offset in the target, bytes) after every piece that was written."""


Seen: TypeAlias = Callable[[bytes | memoryview], None]


class Mover:
    """Moves ranges and counts, in ``bytes_by``, how many bytes went which way."""

    def __init__(self) -> None:
        self.bytes_by: Counter[Way] = Counter()
        self._refused: set[tuple[Way, int, int]] = set()

    def move(
        self,
        source: OpenFile,
        offset: int,
        target: int,
        position: int,
        length: int,
        moved: Moved,
        seen: Seen | None = None,
    ) -> None:
        """Put ``length`` bytes from ``offset`` of ``source`` at ``position`` of the file descriptor ``target``.

        ``seen`` is given every byte, in order; they then pass through this process, if only to be seen.
        Raises ``InputError`` where the source ends early or cannot be read, and ``OSError`` where the target cannot
        be written.
        """
        done = 0
        head = min(-offset % BLOCK, length)
        whole = (length - head) // BLOCK * BLOCK
        if whole and (offset - position) % BLOCK == 0 and self._may("reflink", source, target):
            self._copy(source, offset, target, position, head, moved, seen)
            shared = self._share(source, offset + head, target, position + head, whole, moved)
            if seen is not None:
                for block in blocks_of(source, offset + head, shared):
                    seen(block)
            done = head + shared
        self._copy(source, offset + done, target, position + done, length - done, moved, seen)

    def _may(self, way: Way, source: OpenFile, target: int) -> bool:
        if way == "copy_file_range" and not hasattr(os, "copy_file_range"):
            return False
        return (way, source.state.device, os.fstat(target).st_dev) not in self._refused

    def _refuse(self, way: Way, source: OpenFile, target: int) -> None:
        self._refused.add((way, source.state.device, os.fstat(target).st_dev))

    def _share(self, source: OpenFile, offset: int, target: int, position: int, length: int, moved: Moved) -> int:
        """Share as many bytes as the filesystem is willing to; how many that were."""
        done = 0
        while done < length:
            piece = min(CLONE, length - done)
            if not share_blocks(source.fd, offset + done, target, position + done, piece):
                self._refuse("reflink", source, target)
                break
            done += self._count("reflink", position + done, piece, moved)
        return done

    def _copy(
        self,
        source: OpenFile,
        offset: int,
        target: int,
        position: int,
        length: int,
        moved: Moved,
        seen: Seen | None,
    ) -> None:
        done = 0
        if length > BLOCK and seen is None and self._may("copy_file_range", source, target):
            done = self._copy_in_kernel(source, offset, target, position, length, moved)
        for block in blocks_of(source, offset + done, length - done, position + done):
            write_at(target, block, position + done)
            if seen is not None:
                seen(block)
            done += self._count("read_write", position + done, len(block), moved)

    def _copy_in_kernel(
        self, source: OpenFile, offset: int, target: int, position: int, length: int, moved: Moved
    ) -> int:
        done = 0
        while done < length:
            try:
                wanted = min(PIECE - (position + done) % PIECE, length - done)
                piece = os.copy_file_range(source.fd, target, wanted, offset + done, position + done)
            except OSError as error:
                if error.errno in _NO_ROOM:
                    raise
                # Not here, or an I/O error: plain reading and writing says which of the two files is at fault.
                if error.errno in _NOT_HERE:
                    self._refuse("copy_file_range", source, target)
                break
            if piece == 0:  # the source ended, which a plain read reports; some filesystems also answer so
                break
            done += self._count("copy_file_range", position + done, piece, moved)
        return done

    def _count(self, way: Way, position: int, length: int, moved: Moved) -> int:
        self.bytes_by[way] += length
        moved(position, length)
        return length


def share_blocks(source: int, offset: int, target: int, position: int, length: int) -> bool:
    """Let the file ``target`` share whole blocks with ``source``; whether the filesystem did."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.ioctl(target, _FICLONERANGE, struct.pack("=qQQQ", source, offset, length, position))
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise
        return False
    return True


def blocks_of(source: OpenFile, offset: int, length: int, position: int = 0) -> Iterator[bytes]:
    """A range of a file in blocks of ``BUFFER`` bytes, which end at its multiples when they are put at ``position``."""
    end = position + length
    while position < end:
        block = source.read_at(offset, min(BUFFER - position % BUFFER, end - position))
        yield block
        offset, position = offset + len(block), position + len(block)


def write_at(target: int, data: bytes | memoryview, position: int) -> None:
    """Write all of ``data`` at ``position`` of a file descriptor."""
    left = memoryview(data)
    while left:
        done = os.pwrite(target, left, position)
        left, position = left[done:], position + done
