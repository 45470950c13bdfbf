"""Carry repairs out: into a new folder, or in place with what was left out or replaced kept in a backup."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path, PurePath

from shardtool.checkpoint.carry import copy_file, create, keep, keep_modes, kept_entries, superseded
from shardtool.checkpoint.inventory import examine
from shardtool.checkpoint.move import Mover
from shardtool.checkpoint.publish import staged
from shardtool.checkpoint.repair_plan import Repair
from shardtool.checkpoint.selection import walk
from shardtool.checkpoint.swap import sync_folder
from shardtool.checkpoint.target import check_apart, explained
from shardtool.errors import InputError, RefusedError

BACKUP = "before-repair"


def repair_into(
    source: str | Path, target: str | Path, repairs: Mapping[PurePath, Sequence[Repair]], *, overwrite: bool = False
) -> None:
    """Write ``source`` with its ``repairs`` (component's folder, relative → repairs) to ``target``, in one step.

    What else lies in an existing target stays there. Raises ``RefusedError`` where the target exists and may not be
    replaced, is a file, or is not apart from the source; ``InputError`` where a file cannot be read; and ``RunError``
    where the target cannot be written.
    """
    source, target = Path(source), Path(target)
    check_apart(source, target)
    if target.is_file():
        raise RefusedError(f"{target}: is a file, where a folder is to be written", code="target_exists", path=target)
    dropped = {place / name for place, found in repairs.items() for repair in found for name in _replaced(repair)}
    mover = Mover()
    with explained(target), staged(target, overwrite=overwrite) as stage:
        for place, name in walk(source):
            if place / name not in dropped:
                (stage.path / place).mkdir(parents=True, exist_ok=True)
                copy_file(source / place / name, stage.path / place / name, mover, durable=True)
        for place, found in repairs.items():
            _write_indexes(stage.path / place, found)
        if target.is_dir() and not stage.is_inside:
            keep(target, stage.path, kept_entries(target, _superseded(target, repairs)))
            keep_modes(target, stage.path)
        for place, found in repairs.items():
            _check(stage.path / place, found)
        stage.publish_folder()


def _superseded(target: Path, repairs: Mapping[PurePath, Sequence[Repair]]) -> set[PurePath]:
    return {
        place / name
        for place, found in repairs.items()
        if (target / place).is_dir()
        for repair in found
        for name in superseded(target / place, repair.name)
    }


def repair_in_place(folder: Path, repairs: Sequence[Repair]) -> Path | None:
    """Repair a component's ``folder`` in one step. Returned is the folder beside it that keeps what was dropped or
    replaced, ``None`` where nothing was.

    The weights that stay are neither copied nor moved. Raises ``RefusedError`` where a backup is there already, and
    ``RunError`` where the folder cannot be written.
    """
    folder = folder.resolve()
    backup = folder.with_name(f"{folder.name}.{BACKUP}")
    replaced = {PurePath(name) for repair in repairs for name in _replaced(repair) if os.path.lexists(folder / name)}
    if replaced and os.path.lexists(backup):
        message = f"{backup}: exists: it keeps what an earlier repair left out"
        raise RefusedError(message, code="target_exists", path=backup, hint="move it away, or write elsewhere with -o")
    with explained(folder), staged(folder, overwrite=True) as stage:
        keep(folder, stage.path, kept_entries(folder, replaced))
        _write_indexes(stage.path, repairs)
        _check(stage.path, repairs)
        keep_modes(folder, stage.path)
        with _backed_up(folder, backup, sorted(replaced)) if replaced else nullcontext():
            stage.publish_folder()
    return backup if replaced else None


@contextmanager
def _backed_up(folder: Path, backup: Path, names: Sequence[PurePath]) -> Iterator[None]:
    """Keep the entries ``names`` of ``folder`` in ``backup``, unless the block fails before the folder is replaced."""
    before = folder.stat()
    backup.mkdir()
    try:
        keep(folder, backup, names)
        sync_folder(backup)
        yield
    except BaseException:
        if folder.exists() and os.path.samestat(before, folder.stat()):
            shutil.rmtree(backup, ignore_errors=True)
        raise


def _replaced(repair: Repair) -> list[str]:
    """The files that do not come along as they are."""
    return [*repair.drop, *([repair.index_name] if repair.index_name else [])]


def _write_indexes(folder: Path, repairs: Sequence[Repair]) -> None:
    for repair in repairs:
        if repair.index is not None and repair.index_name is not None:
            fd = create(folder / repair.index_name)
            with os.fdopen(fd, "wb") as file:
                file.write(repair.index)
                file.flush()
                os.fsync(file.fileno())


def _check(folder: Path, repairs: Sequence[Repair]) -> None:
    """Look at the result before anybody else can."""
    for repair in repairs:
        found = examine(folder, repair.name.variant)
        if found.errors:
            raise InputError.of_all(found.errors)
