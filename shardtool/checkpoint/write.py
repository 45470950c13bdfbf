"""Carry a job out: write everything beside the target, and publish it in one step."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath

from shardtool.checkpoint.carry import check_links, copy_file, create, keep, kept_entries
from shardtool.checkpoint.folder import weights_in
from shardtool.checkpoint.guard import as_file, check_kind, check_separate, check_space
from shardtool.checkpoint.job import Job, Output
from shardtool.checkpoint.layout import FilePlan, runs
from shardtool.checkpoint.move import Mover, Way, write_at
from shardtool.checkpoint.names import parse_pickle
from shardtool.checkpoint.publish import Stage, staged
from shardtool.checkpoint.sources import Sources
from shardtool.checkpoint.writeback import Writeback
from shardtool.errors import RunError, ShardtoolError
from shardtool.events import Advanced, Finished, Listener, Started, ignore

TASK = "write"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True)
class Written:
    """What a run did: where the result is, and how many bytes of it came there in which way."""

    target: Path
    moved: Mapping[Way, int]


def write_job(
    job: Job,
    target: Path,
    *,
    overwrite: bool = False,
    durable: bool = True,
    on_event: Listener = ignore,
) -> Written:
    """Write ``job`` so that ``target`` becomes its result, in one step, or stays as it was.

    ``target`` is a folder; or a file, if the job is one file and nothing else and the name ends in ``.safetensors``.
    ``durable``: everything is on the disk before the result appears. Raises ``RefusedError`` where the target exists
    without ``overwrite``, is the source, is being written by another run, or too little space is left; ``InputError``
    where the source changes meanwhile; and ``RunError`` where the disk fails or fills up.
    """
    check_separate(job, target)
    with _explained(target), staged(target, overwrite=overwrite, durable=durable) as stage:
        check_kind(job, target)
        check_space(job, target)
        check_links(job.source, job.others)
        run = _Run(job, stage, on_event)
        on_event(Started(TASK, f"Writing {target.name}", job.size))
        run.write_others()
        for output in job.outputs:
            run.write_output(output)
        if as_file(job, target):
            stage.publish_file(stage.path / job.outputs[0].filenames[0])
        else:
            run.keep_what_is_not_ours()
            stage.publish_folder()
        on_event(Finished(TASK))
    return Written(target, dict(run.mover.bytes_by))


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    """An ``OSError`` of writing becomes an error that says what to do."""
    try:
        yield
    except ShardtoolError:
        raise
    except OSError as error:
        full = error.errno in _NO_ROOM
        where = error.filename or target
        raise RunError(
            f"{where}: cannot be written: {error.strerror}; the target is as it was",
            code="disk" if full else "write_failed",
            path=where,
            hint="free some space, or choose another disk with -o" if full else None,
        ) from error


class _Run:
    """One job on its way into one stage."""

    def __init__(self, job: Job, stage: Stage, on_event: Listener) -> None:
        self.mover = Mover()
        self._job = job
        self._stage = stage
        self._on_event = on_event

    def write_others(self) -> None:
        for other in self._job.others:
            place = self._stage.path / other
            place.parent.mkdir(parents=True, exist_ok=True)
            copy_file(self._job.source / other, place, self.mover, durable=self._stage.durable)

    def write_output(self, output: Output) -> None:
        folder = self._stage.path / output.part.place
        folder.mkdir(parents=True, exist_ok=True)
        with Sources(output.part.checkpoint.files) as sources:
            for name, plan in zip(output.filenames, output.files, strict=True):
                self._write_file(folder / name, plan, sources)
        if (index := output.index) is not None:
            with self._created(folder / output.name.index) as (fd, _):
                write_at(fd, index, 0)

    def _write_file(self, path: Path, plan: FilePlan, sources: Sources) -> None:
        with self._created(path) as (fd, moved):
            write_at(fd, plan.header, 0)
            position = len(plan.header)
            moved(0, position)
            for run in runs(plan.items):
                length = sum(item.nbytes for item in run)
                if length and run[0].offset is not None:
                    self.mover.move(sources[run[0].origin], run[0].offset, fd, position, length, moved)
                position += length

    @contextmanager
    def _created(self, path: Path) -> Iterator[tuple[int, Callable[[int, int], None]]]:
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
        if target.is_dir():
            stale = {place for output in self._job.outputs for place in replaced_by(output, target)}
            keep(target, self._stage.path, list(kept_entries(target, stale)))


def replaced_by(output: Output, target: Path) -> Iterator[PurePath]:
    """The files of ``target`` that hold the same checkpoint, whatever its shards and its container, or index it.

    Exactly one may remain: diffusers prefers an index, transformers a single file, so a leftover wins in one of them.
    """
    place = output.part.place
    folder = target / place
    if folder.is_dir():
        for name in weights_in(folder).get(output.name, ()):
            yield place / name
        for entry in folder.iterdir():
            if parse_pickle(entry.name) == output.name:
                yield place / entry.name
