"""A job to a picture: encode, denoise, decode; and what is kept from one picture to the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from PIL import Image

from shardtool.errors import InputError, RunError, ShardtoolError
from shardtool.events import Advanced, Listener, Note, ignore
from shardtool.foreign_code import is_fault, reason_of, short_of_memory
from shardtool.generation.decoding import Decoded, decode, preview
from shardtool.generation.denoising import denoise, generator_for, make_scheduler, pipeline_for
from shardtool.generation.encoding import PromptEncoder
from shardtool.generation.kept import Kept, restore, skipping, state_of
from shardtool.images.model import require_supported
from shardtool.images.settings import Job
from shardtool.needs import OFFLOADS
from shardtool.pipeline import BuiltPipeline
from shardtool.quiet import quiet


@dataclass(frozen=True)
class Picture:
    """A finished picture. ``scheduler`` is its scheduler's config, ``seconds`` what it took without loading."""

    job: Job
    image: Image.Image
    pixel_sha256: str
    scheduler: dict[str, Any]
    seconds: float
    retried: bool = False


Show: TypeAlias = Callable[[Job, int, Image.Image], None]
Keep: TypeAlias = Callable[[Job, Kept], Path]


def _count_step(on_event: Listener) -> None:
    on_event(Advanced("denoise"))


@dataclass
class Studio:
    """A built pipeline with what is kept between pictures: encoded prompts, and the pipelines of other tasks.

    ``windows`` encodes long prompts in windows instead of cutting them. ``show`` is handed every finished picture and,
    every ``show_every`` steps, a small one of the latents. ``stop`` is asked after every step: ``True`` ends the
    picture with ``KeyboardInterrupt``, after ``keep`` has written its state; ``keep`` also gets the latents that no
    picture could be made of. ``step_done`` counts a step.
    """

    built: BuiltPipeline
    windows: bool = False
    show: Show | None = None
    show_every: int | None = None
    stop: Callable[[], bool] = field(default=lambda: False)
    keep: Keep | None = None
    step_done: Callable[[Listener], None] = _count_step
    on_event: Listener = ignore

    def __post_init__(self) -> None:
        pipe = self.built.pipe
        require_supported(type(pipe).__name__)
        self._pipes: dict[str, Any] = {}
        self._encoder = PromptEncoder(pipe, windows=self.windows)
        self._scheduler = pipe.scheduler
        self._told: set[str] = set()

    def make(self, job: Job, begun: Kept | None = None) -> Picture:
        """Make one picture, or go on with one that was ``begun``.

        Raises ``RunError`` where the model fails, the result is no picture, or memory runs out.
        """
        started = time.perf_counter()
        try:
            with quiet(), torch.inference_mode():
                decoded, scheduler = self._make(job, begun)
            self.built.pipe.maybe_free_model_hooks()
        except ShardtoolError:
            raise
        except BaseException as error:  # classes of elsewhere, with configs of elsewhere, can fail in any way
            if not is_fault(error):
                raise
            if short_of_memory(error) is not None:
                raise _out_of_memory(self.built) from error
            raise _model_failed(self.built, error) from error
        finally:
            self.built.pipe.scheduler = self._scheduler
        if decoded.retried:
            text = f"image {job.index} (seed {job.seed}): the VAE gave no picture in {self.built.placement.dtype}"
            self.on_event(Note("vae_retried", f"{text}, decoded again in fp32", warning=True))
        if self.show is not None:
            self.show(job, job.settings.steps_run, decoded.image)
        seconds = time.perf_counter() - started
        return Picture(job, decoded.image, decoded.pixel_sha256, scheduler, seconds, retried=decoded.retried)

    def _make(self, job: Job, begun: Kept | None) -> tuple[Decoded, dict[str, Any]]:
        """The picture, and the config of the scheduler that it was made with."""
        settings = job.settings
        if settings.task not in self._pipes:
            self._pipes[settings.task] = pipeline_for(self.built.pipe, settings.task)
        pipe = self._pipes[settings.task]
        scheduler, lost = make_scheduler(self._scheduler, settings.scheduler)
        self._tell_lost(settings.scheduler, lost)
        with ExitStack() as stack:
            resume = stack.enter_context(skipping(pipe.unet)) if begun is not None and begun.step else None
            steps = _Steps(self, job, pipe, scheduler, generator_for(job.seed), begun, resume)
            latents = denoise(pipe, scheduler, settings, self._encoder.encode(settings), steps.generator, steps)
        try:
            return decode(pipe, latents), dict(scheduler.config)
        except RunError as error:
            raise self._no_picture(job, error, steps.state(settings.steps_run, latents)) from error

    def _no_picture(self, job: Job, error: RunError, kept: Kept) -> RunError:
        where = f"; latents kept in {self.keep(job, kept)}" if self.keep is not None else ""
        message = f"image {job.index} (seed {job.seed}): {error.message}{where}"
        return RunError(message, code=error.code, hint=error.hint, path=job.path)

    def _tell_lost(self, name: str | None, lost: Sequence[str]) -> None:
        if lost and name is not None and name not in self._told:
            self._told.add(name)
            words = ", ".join(lost)
            text = f"--scheduler {name} knows no {words}, which this model's own scheduler sets; expect worse pictures"
            self.on_event(Note("scheduler_unfit", text, warning=True))


@dataclass
class _Steps:
    """What happens after each run of the UNet for one picture; see ``denoising.OnStep``."""

    studio: Studio
    job: Job
    pipe: Any
    scheduler: Any
    generator: torch.Generator
    begun: Kept | None
    resume: Callable[[], None] | None

    def __call__(self, done: int, latents: torch.Tensor) -> torch.Tensor:
        studio, begun, order = self.studio, self.begun, self.scheduler.order
        # A scheduler of second order runs the UNet twice for a step, and once for the last one.
        steps, is_whole = -(-done // order), done % order == 0 or done == self.pipe.num_timesteps
        if is_whole:
            studio.step_done(studio.on_event)
        if begun is not None and (begun.step > self.pipe.num_timesteps or begun.latents.shape != latents.shape):
            message = f"{self.job.path}: the latents to go on with are of another picture"
            raise InputError(message, code="latents_invalid", path=self.job.path)
        if begun is not None and done <= begun.step:
            if done == begun.step and self.resume is not None:
                self.resume()
                restore(self.scheduler, begun.scheduler)
                self.generator.set_state(begun.generator)
                return begun.latents.to(latents)
            return latents
        if studio.show is not None and studio.show_every and is_whole and steps % studio.show_every == 0:
            studio.show(self.job, steps, preview(studio.built.pipe, latents))
        if studio.stop():
            if studio.keep is not None:
                path = studio.keep(self.job, self.state(done, latents))
                studio.on_event(Note("latents_kept", f"stopped after step {steps}; go on with --resume {path}"))
            raise KeyboardInterrupt
        return latents

    def state(self, done: int, latents: torch.Tensor) -> Kept:
        return Kept(done, latents, state_of(self.scheduler), self.generator.get_state(), {})


def _model_failed(built: BuiltPipeline, error: BaseException) -> RunError:
    return RunError(
        f"{built.pipe.config._name_or_path}: the model failed at its work: {type(error).__name__}: {reason_of(error)}",
        code="model_failed",
        hint="its parts or their configs may not belong together: `shardtool verify` it; --debug shows where it failed",
    )


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
