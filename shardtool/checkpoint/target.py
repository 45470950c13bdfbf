"""What stands in the way of a target: the source, what lies there, where it lies; and what a disk says no to."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shardtool.errors import RefusedError, RunError

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What the system says where a disk, or a user's share of it, is full."""


def check_apart(source: Path, target: Path) -> None:
    """Raises ``RefusedError`` where the target is the source, lies inside it, or holds it; links are seen through.

    Raises ``RunError`` where the target may not be looked at.
    """
    with explained(target):
        real, real_source = Path(os.path.realpath(target)), Path(os.path.realpath(source))
        if target.exists() and target.samefile(source):
            raise not_apart(target, "is the source itself")
        if real.is_relative_to(real_source) or _is_below(target, source):
            raise not_apart(target, "lies inside the source")
        if real_source.is_relative_to(real) or _is_below(source, target):
            raise not_apart(target, "holds the source")


def not_apart(target: Path, fault: str) -> RefusedError:
    """The error for a target that has something in common with the source."""
    return RefusedError(
        f"{target}: {fault}; the source is never written to",
        code="target_is_source",
        path=target,
        hint="choose another target with -o",
    )


def _is_below(path: Path, folder: Path) -> bool:
    """Whether a parent of ``path`` is ``folder`` under another spelling, as on disks that ignore case."""
    return folder.exists() and any(p.exists() and p.samefile(folder) for p in path.absolute().parents)


def check_target(target: Path, *, overwrite: bool) -> None:
    """Raises ``RefusedError`` where ``target`` may not be written. An empty folder is as good as none."""
    if target.is_symlink():
        raise RefusedError(
            f"{target}: is a link to {target.readlink()}; links are not followed when writing",
            code="target_is_link",
            path=target,
            hint="name the folder itself, or another target",
        )
    if not target.exists():
        return
    if not target.is_dir() and not target.is_file():  # never replaced, as nothing could be put back in its place
        message = f"{target}: is a device, a pipe or a socket"
        raise RefusedError(message, code="target_exists", path=target, hint="choose another target with -o")
    if not overwrite and not (target.is_dir() and _holds_nothing(target)):
        raise RefusedError(
            f"{target}: {'is a folder with files in it' if target.is_dir() else 'exists'}",
            code="target_exists",
            path=target,
            hint="replace it with --overwrite, or choose another target with -o",
        )


def _holds_nothing(folder: Path) -> bool:
    return all(entry.name == "lost+found" or ".shardtool-" in entry.name for entry in folder.iterdir())


def is_fixed(target: Path) -> bool:
    """Whether ``target`` is a folder that cannot be replaced by another, but written to."""
    if target.is_symlink() or not target.is_dir():
        return False
    return os.path.ismount(target) or not os.access(target.parent, os.W_OK) or _is_around_us(target)


def _is_around_us(folder: Path) -> bool:
    """Whether this process, and so the shell that started it, works in ``folder`` or below it."""
    try:
        return Path.cwd().is_relative_to(folder.resolve())
    except FileNotFoundError:  # in a folder that was removed
        return False


def check_empty(target: Path, prefix: str) -> None:
    """Raises ``RefusedError`` unless the folder is empty but for what filesystems and runs like this one put there."""
    for entry in target.iterdir():
        if entry.name != "lost+found" and not entry.name.startswith(prefix):
            raise RefusedError(
                f"{target}: cannot be replaced, as it is a mount point, the current folder, or in a folder that may "
                "not be written to; and it is not empty",
                code="target_mounted",
                path=target,
                hint=f"name a folder inside it, such as -o {target / 'result'}",
            )


@contextmanager
def explained(target: Path, numbers: Callable[[], str] = str) -> Iterator[None]:
    """An ``OSError`` of writing to ``target`` in the block becomes a ``RunError`` that says what to do.

    ``numbers`` says what is needed and free, where the disk is full.
    """
    try:
        yield
    except OSError as error:
        where, full = error.filename or target, error.errno in NO_ROOM
        raise RunError(
            f"{where}: cannot be written: {error.strerror}{numbers() if full else ''}; the target is as it was",
            code="disk" if full else "write_failed",
            path=where,
            hint="free some space, or choose another disk with -o" if full else None,
        ) from error
