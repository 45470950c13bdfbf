"""What a job is refused before a byte is written: a target that is its source, that is no folder, or too small."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.folder import weights_in
from shardtool.checkpoint.job import Job
from shardtool.checkpoint.layout import BLOCK
from shardtool.checkpoint.move import share_blocks
from shardtool.checkpoint.target import check_apart, not_apart
from shardtool.errors import InputError, RefusedError
from shardtool.sizes import format_size


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
        raise not_apart(target, f"shares the file {shared} with the source")


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
    others = () if as_file(job, target) else job.others  # a file goes alone
    needed = sum((job.source / other).stat().st_size for other in others)
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
