"""Take other files along: those of the source, and those of an older result that are nobody's business here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePath

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.move import Mover
from shardtool.errors import RefusedError


def copy_file(source: Path, target: Path, mover: Mover, *, durable: bool) -> int:
    """Copy one file, sharing its blocks where the filesystem can; how many bytes it has. Links are followed."""
    with OpenFile(source) as file:
        fd = create(target)
        try:
            mover.move(file, 0, fd, 0, file.size, _uncounted)
            file.check_unchanged()
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        return file.size


def _uncounted(position: int, length: int) -> None:
    """These files are small beside the weights, which are what progress is about."""


def create(path: Path) -> int:
    """A new, empty file, open for writing, whose mode follows the umask."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    return os.open(path, flags, 0o666)


def kept_entries(old: Path, stale: Collection[PurePath]) -> Iterator[PurePath]:
    """Everything in the folder ``old`` that is not ``stale``, folders before their contents.

    Raises ``RefusedError`` for a folder on another filesystem, which cannot be moved along.
    """
    device = old.stat().st_dev
    for parent, folders, files in os.walk(old):
        place = PurePath(parent).relative_to(old)
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        folders[:] = sorted(name for name in folders if name not in links)
        for name in folders:
            if (Path(parent) / name).stat().st_dev != device:
                raise RefusedError(
                    f"{Path(parent) / name}: another filesystem is mounted inside the target",
                    code="target_mounted",
                    path=Path(parent) / name,
                    hint="unmount it, or choose another target with -o",
                )
        yield from (place / name for name in [*folders, *sorted(files + links)] if place / name not in stale)


def keep(old: Path, new: Path, entries: Iterable[PurePath]) -> None:
    """Let the entries of ``old`` appear in ``new`` too, unless they are there: files are hard-linked, else copied."""
    for entry in entries:
        before, after = old / entry, new / entry
        if os.path.lexists(after):
            if before.is_file() and after.is_file() and not before.is_symlink():
                after.chmod(before.stat().st_mode & 0o7777)
        elif before.is_dir() and not before.is_symlink():
            after.mkdir()
            after.chmod(before.stat().st_mode & 0o7777)
        else:
            _link(before, after)


def _link(before: Path, after: Path) -> None:
    try:
        os.link(before, after, follow_symlinks=False)
    except OSError:  # a filesystem without hard links, or a file of another user
        shutil.copy2(before, after, follow_symlinks=False)
        if not after.is_symlink():
            with OpenFile(after) as file:
                os.fsync(file.fd)
