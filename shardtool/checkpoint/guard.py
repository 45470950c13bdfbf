"""What is refused before a byte is written: a target that is the source, that is no folder, or that is too small."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.folder import weights_in
from shardtool.checkpoint.job import Job
from shardtool.checkpoint.layout import BLOCK
from shardtool.checkpoint.move import share_blocks
from shardtool.errors import InputError, RefusedError, RunError
from shardtool.sizes import format_size

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What the system says where a disk, or a user's share of it, is full."""


def as_file(job: Job, target: Path) -> bool:
    """Whether ``target`` is meant to be a file, not a folder."""
    single = len(job.outputs) == 1 and not job.outputs[0].is_sharded
    return single and target.suffix == ".safetensors" and not target.is_dir()


def check_kind(job: Job, target: Path) -> None:
    """Raises ``RefusedError`` where a folder is to be written and the target is a file, or is called like one."""
    if as_file(job, target) or not (target.is_file() or (target.suffix == ".safetensors" and not target.is_dir())):
        return
    files = sum(len(output.files) for output in job.outputs)
    raise RefusedError(
        f"{target}: {'is' if target.is_file() else 'is the name of'} a file, where a folder of {files} weights files "
        "is to be written",
        code="target_exists" if target.is_file() else "target_is_file",
        path=target,
        hint="choose another target with -o",
    )


def check_separate(job: Job, target: Path) -> None:
    """Raises ``RefusedError`` as ``check_apart`` does, and where the target shares a file with the source."""
    check_apart(job.source, target)
    if shared := _shared_file(job, target):
        raise _not_apart(target, f"shares the file {shared} with the source")


def check_apart(source: Path, target: Path) -> None:
    """Raises ``RefusedError`` where the target is the source, lies inside it, or holds it; links are seen through.

    Raises ``RunError`` where the target may not be looked at.
    """
    with explained(target):
        real, real_source = Path(os.path.realpath(target)), Path(os.path.realpath(source))
        if target.exists() and target.samefile(source):
            raise _not_apart(target, "is the source itself")
        if real.is_relative_to(real_source) or _is_below(target, source):
            raise _not_apart(target, "lies inside the source")
        if real_source.is_relative_to(real) or _is_below(source, target):
            raise _not_apart(target, "holds the source")


def _not_apart(target: Path, fault: str) -> RefusedError:
    return RefusedError(
        f"{target}: {fault}; the source is never written to",
        code="target_is_source",
        path=target,
        hint="choose another target with -o",
    )


def _is_below(path: Path, folder: Path) -> bool:
    """Whether a parent of ``path`` is ``folder`` under another spelling, as on disks that ignore case."""
    return folder.exists() and any(p.exists() and p.samefile(folder) for p in path.absolute().parents)


def _shared_file(job: Job, target: Path) -> str | None:
    """A weights file of the target that is a hard link of one of the source's."""
    sources = {(f.state.device, f.state.inode) for output in job.outputs for f in output.part.checkpoint.files}
    candidates = [target] if target.is_file() else []
    for output in job.outputs:
        folder = target / output.part.place
        if folder.is_dir():
            candidates += [folder / name for files in weights_in(folder).values() for name in files]
    for candidate in candidates:
        status = candidate.lstat()
        if (status.st_dev, status.st_ino) in sources:
            return candidate.name
    return None


@dataclass(frozen=True)
class Room:
    """Bytes that are needed and free beside the target, and whether blocks are shared with the source."""

    needed: int
    free: int
    shared: bool
    folder: Path


def room_for(job: Job, target: Path, *, here: bool = True) -> Room:
    """What the result needs. Blocks that can be shared with the source need no room; known once it is ``here``."""
    parent = next(parent for parent in target.absolute().parents if parent.exists())
    shared = here and can_share(job, parent)
    carried = sum((job.source / other).stat().st_size for other in job.others)
    needed = carried
    for output in job.outputs:
        made = sum(item.nbytes for item in output.items if item.offset is None)
        needed += sum(len(file.header) for file in output.files) + made if shared else output.size
    return Room(needed, shutil.disk_usage(parent).free, shared, parent)


def check_room(room: Room, target: Path) -> None:
    """Raises ``RefusedError`` where the result will not fit."""
    if room.needed > room.free:
        raise RefusedError(
            f"{target}: needs {format_size(room.needed)} ({room.needed:,} bytes), "
            f"{room.folder} has {format_size(room.free)} free",
            code="disk",
            path=target,
            hint="free some space, or choose another disk with -o",
        )


@contextmanager
def explained(target: Path, room: Callable[[], Room] | None = None) -> Iterator[None]:
    """An ``OSError`` of writing to ``target`` in the block becomes a ``RunError`` that says what to do.

    ``room`` is asked for the numbers where the disk is full.
    """
    try:
        yield
    except OSError as error:
        where, full = error.filename or target, error.errno in NO_ROOM
        found = room() if room is not None and full else None
        numbers = f": needs {format_size(found.needed)}, {format_size(found.free)} are free" if found else ""
        raise RunError(
            f"{where}: cannot be written: {error.strerror}{numbers}; the target is as it was",
            code="disk" if full else "write_failed",
            path=where,
            hint="free some space, or choose another disk with -o" if full else None,
        ) from error


def can_share(job: Job, parent: Path) -> bool:
    """Whether files in the folder ``parent`` can share blocks with the source's; tried out on a file without a name."""
    flags = getattr(os, "O_TMPFILE", None)
    if flags is None:
        return False
    largest = max((f for o in job.outputs for f in o.part.checkpoint.files), key=lambda f: f.size)
    if largest.size < BLOCK:
        return False
    try:
        fd = os.open(parent, flags | os.O_WRONLY, 0o600)
    except OSError:
        return False
    try:
        with OpenFile(largest.path) as file:
            return share_blocks(file.fd, 0, fd, 0, BLOCK)
    except (InputError, OSError):
        return False
    finally:
        os.close(fd)
