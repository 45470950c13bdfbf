"""Take other files along: those of the source, and those of an older result that are nobody's business here."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePath

from shardtool.checkpoint.digests import DIGESTS_NAME
from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.folder import names_in, weights_in
from shardtool.checkpoint.move import Mover
from shardtool.checkpoint.names import WeightsName, parse_pickle
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
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def kept_entries(old: Path, stale: Collection[PurePath]) -> Iterator[PurePath]:
    """Everything in the folder ``old`` that is not ``stale``, folders before their contents.

    Raises ``RefusedError`` for a folder on another filesystem, which cannot be moved along.
    """
    device = old.stat().st_dev
    for entry in _entries(old):
        place = old / entry
        if place.lstat().st_dev != device:
            raise RefusedError(
                f"{place}: another filesystem is mounted inside the target",
                code="target_mounted",
                path=place,
                hint="unmount it, or choose another target with -o",
            )
        if entry not in stale:
            yield entry


def keep(old: Path, new: Path, entries: Iterable[PurePath]) -> None:
    """Let the entries of ``old`` appear in ``new`` too, where they are not yet: files are hard-linked, else copied."""
    for entry in entries:
        before, after = old / entry, new / entry
        if os.path.lexists(after) or not after.parent.is_dir():
            continue
        if before.is_dir() and not before.is_symlink():
            after.mkdir()
        else:
            _link(before, after)


def keep_modes(old: Path, new: Path) -> None:
    """Give ``new``, and every file and folder that ``old`` has too, the mode that it has there."""
    for entry in (PurePath(), *_entries(new)):
        before, after = old / entry, new / entry
        if os.path.lexists(before) and not before.is_symlink() and not after.is_symlink():
            mode = stat.S_IMODE(before.stat().st_mode)
            if mode != stat.S_IMODE(after.stat().st_mode):  # a file of another user, linked, may not be touched
                after.chmod(mode)


def superseded(folder: Path, name: WeightsName) -> Iterator[str]:
    """The files in ``folder`` that a new checkpoint ``name`` takes the place of, whatever their container and number.

    Exactly one may remain: diffusers prefers an index, transformers a single file, so a leftover wins in one of them.
    """
    yield DIGESTS_NAME
    yield from weights_in(folder).get(name, ())
    yield from (entry for entry in names_in(folder) if parse_pickle(entry) == name)


def _entries(folder: Path) -> Iterator[PurePath]:
    """Everything below ``folder``, relative to it, folders before their contents; links are not followed."""
    for parent, folders, files in os.walk(folder):
        place = PurePath(parent).relative_to(folder)
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        folders[:] = sorted(name for name in folders if name not in links)
        yield from (place / name for name in [*folders, *sorted(files + links)])


def _link(before: Path, after: Path) -> None:
    try:
        os.link(before, after, follow_symlinks=False)
    except OSError:  # a filesystem without hard links, or a file of another user
        shutil.copy2(before, after, follow_symlinks=False)
        if not after.is_symlink():
            with OpenFile(after) as file:
                os.fsync(file.fd)
