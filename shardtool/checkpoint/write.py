"""Carry a job out: write everything beside the target, and publish it in one step."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from shardtool.checkpoint.carry import copy_file, create, keep, keep_modes, kept_entries
from shardtool.checkpoint.cast import Blocks
from shardtool.checkpoint.digests import DIGESTS_NAME, render_entries
from shardtool.checkpoint.folder import weights_in
from shardtool.checkpoint.guard import as_file, check_kind, check_room, check_separate, room_for
from shardtool.checkpoint.hashing import Hasher
from shardtool.checkpoint.job import Job, Output
from shardtool.checkpoint.layout import FilePlan, Item, runs
from shardtool.checkpoint.move import Moved, Mover, Seen, Way, write_at
from shardtool.checkpoint.names import parse_pickle
from shardtool.checkpoint.publish import Stage, staged
from shardtool.checkpoint.record import check_record, entries_for, entry_of, on_record
from shardtool.checkpoint.reread import TASK as VERIFY
from shardtool.checkpoint.reread import check_written
from shardtool.checkpoint.sources import Sources
from shardtool.checkpoint.writeback import Writeback
from shardtool.errors import RunError, ShardtoolError
from shardtool.events import Advanced, Finished, Listener, Started, ignore
from shardtool.sizes import format_size

TASK = "write"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True)
class Manner:
    """How to write. ``overwrite``: an existing target may be replaced. ``durable``: wait for the disk.

    ``digests``: record a SHA-256 of each tensor. ``verify``: read what was written again and compare.
    """

    overwrite: bool = False
    durable: bool = True
    digests: bool = False
    verify: bool = False


@dataclass(frozen=True)
class Written:
    """What a run did: where the result is, how many bytes came there in which way, and the outputs' fingerprints,
    as far as they are known."""

    target: Path
    moved: Mapping[Way, int]
    fingerprints: tuple[str | None, ...]


def write_job(job: Job, target: str | Path, manner: Manner, *, on_event: Listener = ignore) -> Written:
    """Write ``job`` so that ``target`` becomes its result, in one step, or stays as it was.

    ``target`` is a folder; or a file, if the job is one file and nothing else and the name ends in ``.safetensors``.
    Raises ``RefusedError`` where the target exists and may not be replaced, is the source, is being written by another
    run, or too little space is left; ``InputError`` where the source changes meanwhile, or breaks its own digests; and
    ``RunError`` where the disk fails or fills up.
    """
    target = Path(target)
    check_separate(job, target)
    check_kind(job, target)
    with _explained(job, target), staged(target, overwrite=manner.overwrite, durable=manner.durable) as stage:
        check_room(room_for(job, target), target)
        run = _Run(job, stage, manner, on_event)
        on_event(Started(TASK, f"Writing {target.name}", job.size))
        run.write()
        on_event(Finished(TASK))
        job.check()
        if manner.verify:
            on_event(Started(VERIFY, f"Reading {target.name} again", job.size))
            run.verify()
            on_event(Finished(VERIFY))
        if as_file(job, target):
            stage.publish_file(stage.path / job.outputs[0].filenames[0])
        else:
            run.keep_what_is_not_ours()
            stage.publish_folder()
    return Written(target, dict(run.mover.bytes_by), run.fingerprints)


@contextmanager
def _explained(job: Job, target: Path) -> Iterator[None]:
    """An ``OSError`` of writing becomes an error that says what to do."""
    try:
        yield
    except ShardtoolError:
        raise
    except OSError as error:
        full = error.errno in _NO_ROOM
        room = room_for(job, target)
        numbers = f": needs {format_size(room.needed)}, {format_size(room.free)} are free" if full else ""
        where = error.filename or target
        raise RunError(
            f"{where}: cannot be written: {error.strerror}{numbers}; the target is as it was",
            code="disk" if full else "write_failed",
            path=where,
            hint="free some space, or choose another disk with -o" if full else None,
        ) from error


class _Run:
    """One job on its way into one stage."""

    def __init__(self, job: Job, stage: Stage, manner: Manner, on_event: Listener) -> None:
        self.mover = Mover()
        self._job = job
        self._stage = stage
        self._manner = manner
        self._on_event = on_event
        self._digests: list[Mapping[str, str]] = []

    @property
    def fingerprints(self) -> tuple[str | None, ...]:
        return tuple(None if entry is None else entry["fingerprint"] for _, entry in self._entries())

    def _entries(self) -> list[tuple[Output, dict[str, Any] | None]]:
        return [(o, entry_of(o, digests)) for o, digests in zip(self._job.outputs, self._digests, strict=True)]

    def write(self) -> None:
        for other in () if as_file(self._job, self._stage.target) else self._job.others:
            place = self._stage.path / other
            place.parent.mkdir(parents=True, exist_ok=True)
            if (content := self._job.rewritten.get(other)) is not None:
                self._write_bytes(other, content)
            else:
                copy_file(self._job.source / other, place, self.mover, durable=self._stage.durable)
        for output in self._job.outputs:
            (self._stage.path / output.part.place).mkdir(parents=True, exist_ok=True)
            self._digests.append(self._write_output(output))
        for folder in {output.part.place for output in self._job.outputs}:
            if entries := entries_for(folder, self._entries(), self._stage.target):
                self._write_bytes(folder / DIGESTS_NAME, render_entries(entries))

    def verify(self) -> None:
        for output, digests in zip(self._job.outputs, self._digests, strict=True):
            with Sources(output.part.checkpoint.files) as sources:
                own = digests if self._is_hashed(output) else {}
                check_written(self._stage.path / output.part.place, output, sources, own, self._on_event)

    def _is_hashed(self, output: Output) -> bool:
        """Bytes that are made on the way can be verified by their digests only."""
        return self._manner.digests or (self._manner.verify and output.make is not None)

    def _write_output(self, output: Output) -> Mapping[str, str]:
        """Write all files of one checkpoint; the digests that are known of it."""
        with Sources(output.part.checkpoint.files) as sources:
            if self._is_hashed(output):
                with Hasher() as hasher:
                    self._write_files(output, sources, hasher)
                check_record(output, hasher.digests)
                digests: Mapping[str, str] = hasher.digests
            else:
                self._write_files(output, sources, None)
                digests = on_record(output)
        if (index := output.index) is not None:
            self._write_bytes(output.part.place / output.name.index, index)
        return digests

    def _write_files(self, output: Output, sources: Sources, hasher: Hasher | None) -> None:
        for name, plan in zip(output.filenames, output.files, strict=True):
            seen = hasher.begin((item.name, item.nbytes) for item in plan.items) if hasher else None
            with self._created(self._stage.path / output.part.place / name) as (fd, moved):
                write_at(fd, plan.header, 0)
                moved(0, len(plan.header))
                self._write_data(fd, plan, output, sources, moved, seen)

    def _write_data(
        self, fd: int, plan: FilePlan, output: Output, sources: Sources, moved: Moved, seen: Seen | None
    ) -> None:
        position = len(plan.header)
        for run in runs(plan.items):
            first, length = run[0], sum(item.nbytes for item in run)
            if first.offset is not None and length:
                self.mover.move(sources[first.origin], first.offset, fd, position, length, moved, seen)
            elif output.make is not None:
                self._write_made(fd, position, first, output.make(first, sources), moved, seen)
            position += length

    def _write_made(self, fd: int, position: int, item: Item, blocks: Blocks, moved: Moved, seen: Seen | None) -> None:
        end = position + item.nbytes
        for block in blocks:
            write_at(fd, block, position)
            if seen is not None:
                seen(block)
            moved(position, len(block))
            self.mover.bytes_by["converted"] += len(block)
            position += len(block)
        if position != end:
            raise AssertionError(f"{item.name}: {end - position} bytes are missing")

    def _write_bytes(self, place: PurePath, content: bytes) -> None:
        with self._created(self._stage.path / place) as (fd, _):
            write_at(fd, content, 0)

    @contextmanager
    def _created(self, path: Path) -> Iterator[tuple[int, Moved]]:
        """A new file, durable at the end of the block if that is asked for; and what to call after each write."""
        fd = create(path)
        writeback = Writeback(fd) if self._stage.durable else None

        def moved(position: int, length: int) -> None:
            self._on_event(Advanced(TASK, length))
            if writeback is not None:
                writeback.written(position + length)

        try:
            yield fd, moved
            if writeback is not None:
                writeback.finish()
        finally:
            os.close(fd)

    def keep_what_is_not_ours(self) -> None:
        """Let everything of the old target appear in the new one, but for the checkpoints that are replaced."""
        target = self._stage.target
        if target.is_dir() and not self._stage.is_inside:
            stale = {place for output in self._job.outputs for place in replaced_by(output, target)}
            keep(target, self._stage.path, kept_entries(target, stale))
            keep_modes(target, self._stage.path)


def replaced_by(output: Output, target: Path) -> Iterator[PurePath]:
    """The files of ``target`` that hold the same checkpoint, whatever its shards and its container, or index it.

    Exactly one may remain: diffusers prefers an index, transformers a single file, so a leftover wins in one of them.
    """
    place = output.part.place
    folder = target / place
    if folder.is_dir():
        yield place / DIGESTS_NAME
        for name in weights_in(folder).get(output.name, ()):
            yield place / name
        for entry in folder.iterdir():
            if parse_pickle(entry.name) == output.name:
                yield place / entry.name
