"""One picture after the other, whatever the batch, and what becomes of those that fail.

Pictures are denoised one by one. In a batch of several a CPU's and a GPU's matrix products sum in another order, so the
last bits of a picture would depend on its neighbours (seen on CPU, torch 2.13: up to 2e-6 of the range, enough to
change a pixel now and then). What a run of many saves is loading, encoding prompts, and waiting for files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeAlias, TypeVar

from shardtool.errors import ShardtoolError
from shardtool.events import Advanced, Finished, Listener, Started
from shardtool.generation.kept import Kept
from shardtool.generation.outcome import Failure
from shardtool.generation.studio import Picture, Studio
from shardtool.images.settings import Job

T = TypeVar("T")


Save: TypeAlias = Callable[[Picture], None]


def generate_images(
    studio: Studio, jobs: Sequence[Job], save: Save, *, begun: Kept | None = None, keep_going: bool = False
) -> tuple[Failure, ...]:
    """Make every picture of ``jobs`` and hand each to ``save``, which runs beside the next picture's denoising.

    ``begun`` is the state of the first one, if it was stopped half way before. Without ``keep_going`` the first failure
    is raised; with it, failures are returned. What was finished is saved in any case, after ``KeyboardInterrupt`` too.
    """
    failures: list[Failure] = []

    def attempt(job: Job, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except ShardtoolError as error:
            if not keep_going:
                raise
            failures.append(Failure(job, error))
            return None

    with ThreadPoolExecutor(1, "save") as writer:
        waiting: tuple[Job, Future[None]] | None = None
        for job in jobs:
            picture = attempt(job, partial(studio.make, job, begun))
            begun = None
            if waiting is not None:
                attempt(waiting[0], waiting[1].result)
            waiting = None if picture is None else (job, writer.submit(save, picture))
            studio.on_event(Advanced("images"))
        if waiting is not None:
            attempt(waiting[0], waiting[1].result)
    return tuple(failures)


def begin_progress(on_event: Listener, jobs: Sequence[Job]) -> Callable[[], None]:
    """Announce the work on ``jobs``; the returned function says that it is done."""
    on_event(Started("denoise", "Denoising", sum(job.settings.steps_run for job in jobs), "steps"))
    on_event(Started("images", "Images", len(jobs), "images"))

    def end() -> None:
        on_event(Finished("denoise"))
        on_event(Finished("images"))

    return end
