"""Write beside the target, and put the finished whole in its place in one step.

::

    .NAME.shardtool-lock             held while a run works on NAME
    .NAME.shardtool-BOOT-PID.new     what is being written; after an exchange, the old result on its way out
    .NAME.shardtool-BOOT-PID.old     the old result, where the filesystem cannot exchange two names

A run that is killed leaves the old result or the new one, and at most such leftovers; the next run on the same target
removes them, and nothing else. A target that cannot change places, as it is a mount point, the current folder or in a
folder that may not be written to, must be empty: then the files are written and renamed inside it, what makes them a
checkpoint last.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shardtool.checkpoint.lock import locked
from shardtool.checkpoint.swap import exchange, move_into_place, sync_folder
from shardtool.checkpoint.target import check_empty, check_target, is_fixed
from shardtool.checkpoint.undisturbed import undisturbed
from shardtool.errors import RunError

_LEFTOVER = re.compile(r"[0-9a-f]{8}-\d+\.(new|old)")
_NAME_LIMIT = 180


@dataclass(frozen=True)
class Stage:
    """Where a run writes: ``path`` is a new, empty folder beside ``target``, or inside it."""

    path: Path
    target: Path
    overwrite: bool
    durable: bool

    @property
    def is_inside(self) -> bool:
        """Whether the stage lies inside the target, which is then empty otherwise."""
        return self.path.parent == self.target

    def publish_folder(self) -> None:
        """Make the staged folder the target; what lay there before is removed. Its files must be durable already.

        Raises ``RefusedError`` where somebody else has put something there since the stage was made.
        """
        if self.durable:
            sync_tree(self.path)
        with undisturbed():
            check_target(self.target, overwrite=self.overwrite)
            if self.is_inside:
                self._move_inside()
            elif not os.path.lexists(self.target):
                move_into_place(self.path, self.target)
            elif not exchange(self.path, self.target):
                self._replace_in_two_steps()
            self._sync(self.path.parent)
            shutil.rmtree(self.path, ignore_errors=True)

    def publish_file(self, made: Path) -> None:
        """Make ``made``, a file in the staged folder, the target. Raises as ``publish_folder`` does."""
        with undisturbed():
            check_target(self.target, overwrite=self.overwrite)
            if self.overwrite:
                made.replace(self.target)
            else:
                move_into_place(made, self.target)
            self._sync(self.target.parent)

    def _replace_in_two_steps(self) -> None:
        """For filesystems that cannot exchange names: a run killed in between is put right by ``_recover``."""
        old = self.path.with_suffix(".old")
        self.target.rename(old)
        try:
            self.path.rename(self.target)
        except OSError:
            old.rename(self.target)
            raise
        self._sync(self.target.parent)
        shutil.rmtree(old, ignore_errors=True)

    def _move_inside(self) -> None:
        moved: list[Path] = []
        try:
            for entry in sorted(self.path.iterdir(), key=lambda entry: (entry.name.endswith("index.json"), entry.name)):
                if entry.name.endswith("index.json"):
                    self._sync(self.target)
                move_into_place(entry, self.target / entry.name)
                moved.append(self.target / entry.name)
        except OSError:
            for place in moved:
                place.rename(self.path / place.name)
            raise

    def _sync(self, folder: Path) -> None:
        """Make the new name durable. Raises ``RunError`` where the disk fails now that the result is in its place."""
        if not self.durable:
            return
        try:
            sync_folder(folder)
        except OSError as error:
            raise RunError(
                f"{self.target}: is in its place, but the disk did not confirm it: {error.strerror}",
                code="not_durable",
                path=self.target,
                hint="check the disk; until then, keep the source",
            ) from error


def sync_tree(folder: Path) -> None:
    """Make the names in ``folder`` and in everything below it durable."""
    for parent, _, _ in os.walk(folder, topdown=False):
        sync_folder(Path(parent))


@contextmanager
def staged(target: Path, *, overwrite: bool, durable: bool = True) -> Iterator[Stage]:
    """A stage for ``target`` as long as the block runs; without a call to ``publish_…`` the target stays as it was.

    Missing parent folders are made. Raises ``RefusedError`` where the target exists and ``overwrite`` is not given,
    is a link, or is being written by another run.
    """
    made: list[Path] = []
    target = target.resolve() if target.name == ".." else target
    prefix = _prefix(target)
    try:
        _make_parents(target, made, durable=durable)
        folder = target if is_fixed(target) else target.parent
        path = folder / f"{prefix}{_boot_id()}-{os.getpid()}.new"
        with locked(folder / f"{prefix}lock", target=target):
            _recover(target, folder, prefix)
            check_target(target, overwrite=overwrite)
            if folder == target:
                check_empty(target, prefix)
            try:
                path.mkdir()
                yield Stage(path, target, overwrite, durable)
            finally:
                with undisturbed():
                    shutil.rmtree(path, ignore_errors=True)
    except BaseException:
        _remove_empty(made)
        raise


def _recover(target: Path, folder: Path, prefix: str) -> None:
    """Remove what a killed run left beside ``target``; if it was killed between two renames, take the first one back.

    The lock is held, so whatever bears the target's mark belongs to no living run.
    """
    leftovers = sorted(
        entry for entry in folder.iterdir() if entry.name.startswith(prefix) and _is_leftover(entry, prefix)
    )
    with undisturbed():
        for entry in leftovers:
            if entry.suffix == ".old" and not os.path.lexists(target):
                entry.rename(target)
        for entry in leftovers:
            shutil.rmtree(entry, ignore_errors=True)


def _is_leftover(entry: Path, prefix: str) -> bool:
    return _LEFTOVER.fullmatch(entry.name.removeprefix(prefix)) is not None


def _prefix(target: Path) -> str:
    name = target.name
    if len(os.fsencode(name)) > _NAME_LIMIT:
        name = f"{name[:40]}~{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"
    return f".{name}.shardtool-"


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
    except OSError:  # not Linux
        return "00000000"


def _make_parents(target: Path, made: list[Path], *, durable: bool) -> None:
    """Make the missing folders above ``target`` and add them to ``made``, innermost first."""
    missing = [parent for parent in target.parents if not os.path.lexists(parent)]
    for parent in reversed(missing):
        parent.mkdir(exist_ok=True)
        made.insert(0, parent)
        if durable:
            sync_folder(parent.parent)


def _remove_empty(folders: list[Path]) -> None:
    with undisturbed():
        for folder in folders:
            try:
                folder.rmdir()
            except OSError:  # somebody else put something there
                return
