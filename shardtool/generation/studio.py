"""Jobs to pictures: encode, denoise, decode, hand over; one picture after the other, whatever the batch.

Pictures are denoised one by one. In a batch of several a CPU's and a GPU's matrix products sum in another order, so the
last bits of a picture would depend on its neighbours (seen on CPU, torch 2.13: up to 2e-6 of the range, enough to
change a pixel now and then). What a run of many saves is loading, encoding prompts, and waiting for files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar

import torch
from PIL import Image

from shardtool.errors import InputError, RunError, ShardtoolError
from shardtool.events import Advanced, Finished, Listener, Note, Started, ignore
from shardtool.generation.decoding import decode, preview
from shardtool.generation.denoising import SUPPORTED, denoise, generator_for, make_scheduler, pipeline_for
from shardtool.generation.encoding import PromptEncoder
from shardtool.images.settings import Job
from shardtool.needs import OFFLOADS
from shardtool.pipeline import BuiltPipeline

T = TypeVar("T")


@dataclass(frozen=True)
class Picture:
    """A finished picture. ``scheduler`` is its scheduler's config, ``seconds`` what it took without loading."""

    job: Job
    image: Image.Image
    pixel_sha256: str
    scheduler: dict[str, Any]
    seconds: float
    retried: bool = False


@dataclass(frozen=True)
class Failure:
    """A picture that could not be made, and why."""

    job: Job
    error: ShardtoolError


Save: TypeAlias = Callable[[Picture], None]
OnPreview: TypeAlias = Callable[[Job, int, Image.Image], None]


@dataclass
class Studio:
    """A built pipeline with what is kept between pictures: encoded prompts, and the pipelines of other tasks.

    ``windows`` encodes long prompts in windows instead of cutting them. ``preview_every`` steps, ``on_preview`` is
    handed a small picture of the latents. ``stop`` is asked after every step; ``True`` ends the picture with
    ``KeyboardInterrupt``.
    """

    built: BuiltPipeline
    windows: bool = False
    preview_every: int | None = None
    on_preview: OnPreview | None = None
    stop: Callable[[], bool] = field(default=lambda: False)
    on_event: Listener = ignore

    def __post_init__(self) -> None:
        pipe = self.built.pipe
        if type(pipe).__name__ not in SUPPORTED:
            raise InputError(
                f"{type(pipe).__name__} is no pipeline that pictures are made with here",
                code="pipeline_unsupported",
                hint="supported are " + ", ".join(SUPPORTED),
            )
        self._pipes: dict[str, Any] = {}
        self._encoder = PromptEncoder(pipe, windows=self.windows)
        self._scheduler = pipe.scheduler
        self._told: set[str] = set()

    def make(self, job: Job) -> Picture:
        """Make one picture. Raises ``RunError`` where the result is no picture, or memory runs out."""
        started = time.perf_counter()
        settings = job.settings
        if settings.task not in self._pipes:
            self._pipes[settings.task] = pipeline_for(self.built.pipe, settings.task)
        pipe = self._pipes[settings.task]
        scheduler, lost = make_scheduler(self._scheduler, settings.scheduler)
        self._tell_lost(settings.scheduler, lost)
        try:
            with torch.inference_mode():
                embeddings = self._encoder.encode(settings)
                latents = denoise(pipe, scheduler, settings, embeddings, generator_for(job.seed), self._on_step(job))
                decoded = decode(pipe, latents)
            self.built.pipe.maybe_free_model_hooks()
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise _out_of_memory(self.built) from error
        if decoded.retried:
            self.on_event(
                Note("vae_retried", f"image {job.index} (seed {job.seed}): decoded again in fp32", warning=True)
            )
        seconds = time.perf_counter() - started
        return Picture(
            job, decoded.image, decoded.pixel_sha256, dict(scheduler.config), seconds, retried=decoded.retried
        )

    def _on_step(self, job: Job) -> Callable[[int, torch.Tensor], torch.Tensor]:
        def on_step(done: int, latents: torch.Tensor) -> torch.Tensor:
            self.on_event(Advanced("denoise"))
            if self.on_preview and self.preview_every and done % self.preview_every == 0:
                self.on_preview(job, done, preview(self.built.pipe, latents))
            if self.stop():
                raise KeyboardInterrupt
            return latents

        return on_step

    def _tell_lost(self, name: str | None, lost: Sequence[str]) -> None:
        if lost and name is not None and name not in self._told:
            self._told.add(name)
            words = ", ".join(lost)
            text = f"--scheduler {name} knows no {words}, which this model's own scheduler sets; expect worse pictures"
            self.on_event(Note("scheduler_unfit", text, warning=True))


def generate_images(
    studio: Studio, jobs: Sequence[Job], save: Save, *, keep_going: bool = False
) -> tuple[Failure, ...]:
    """Make every picture of ``jobs`` and hand each to ``save``, which runs beside the next picture's denoising.

    Without ``keep_going`` the first failure is raised; with it, failures are returned. What was finished is saved in
    any case, after ``KeyboardInterrupt`` too.
    """
    failures: list[Failure] = []
    events = studio.on_event
    events(Started("denoise", "denoising", sum(job.settings.steps_run for job in jobs), "steps"))
    events(Started("images", "images", len(jobs), "images"))

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
            picture = attempt(job, partial(studio.make, job))
            if waiting is not None:
                attempt(waiting[0], waiting[1].result)
            waiting = None if picture is None else (job, writer.submit(save, picture))
            events(Advanced("images"))
        if waiting is not None:
            attempt(waiting[0], waiting[1].result)
    events(Finished("denoise"))
    events(Finished("images"))
    return tuple(failures)


def _out_of_memory(built: BuiltPipeline) -> RunError:
    """Says which offload to try next: the one after the present one, where there is one."""
    placement = built.placement
    later = OFFLOADS[OFFLOADS.index(placement.offload) + 1 :] if placement.device not in ("cpu", "mps") else ()
    ways = [f"--offload {later[0]}"] if later else []
    ways += ["--vae-tiling", "a smaller --size"] + (["--dtype fp16"] if placement.dtype == "fp32" else [])
    return RunError(
        f"out of memory on {placement.device} with --offload {placement.offload}",
        code="out_of_memory",
        hint="try " + " or ".join(ways),
    )
