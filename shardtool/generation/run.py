"""Carry out a plan: build the pipeline, make the pictures, write them with their metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from shardtool.events import Listener, ignore
from shardtool.generation.environment import environment_of
from shardtool.generation.studio import Failure, Picture, Studio, generate_images
from shardtool.images.files import encode_image, write_whole
from shardtool.images.parameters import write_parameters
from shardtool.images.plan import Plan
from shardtool.images.record import Lora, Model, build_record
from shardtool.images.settings import Job
from shardtool.pipeline import BuiltPipeline, build_pipeline


@dataclass(frozen=True)
class MadeImage:
    """An image that was written. ``path`` is ``None`` for one that is handed over as bytes in ``data``."""

    job: Job
    path: Path | None
    record: Mapping[str, Any]
    seconds: float
    retried: bool
    data: bytes | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    built: BuiltPipeline
    made: tuple[MadeImage, ...]
    failures: tuple[Failure, ...]


def carry_out(plan: Plan, *, on_event: Listener = ignore) -> Outcome:
    """Make everything that ``plan`` says. Raises what ``build_pipeline`` and ``generate_images`` raise."""
    machine = plan.request.machine
    built = build_pipeline(
        plan.model.path,
        overrides=plan.model.overrides,
        device=machine.device,
        dtype=machine.dtype,
        offload=machine.offload,
        force=machine.force,
        variant=plan.model.variant,
        on_event=on_event,
    )
    writer = _Writer(plan, built)
    studio = Studio(built, windows=plan.request.conduct.on_long_prompt == "chunk", on_event=on_event)
    failures = generate_images(studio, plan.jobs, writer.save, keep_going=plan.request.conduct.keep_going)
    return Outcome(built, tuple(writer.made), failures)


class _Writer:
    """Saves pictures; called on a thread beside the next picture's denoising."""

    def __init__(self, plan: Plan, built: BuiltPipeline) -> None:
        self._plan = plan
        self._model = model_of(plan)
        self._environment = environment_of(built.placement)
        self.made: list[MadeImage] = []

    def save(self, picture: Picture) -> None:
        job, request = picture.job, self._plan.request
        record = build_record(
            job,
            self._model,
            picture.scheduler,
            self._environment,
            pixel_sha256=picture.pixel_sha256,
            level=request.delivery.metadata,
            now=datetime.now().astimezone(),
        )
        parameters = write_parameters(job, self._model, picture.scheduler.get("_class_name", ""))
        kept = record if request.delivery.metadata != "none" else None
        data = encode_image(picture.image, request.target.image_format, kept, parameters)
        if job.path is not None:
            write_whole(job.path, data, overwrite=request.target.overwrite)
        self.made.append(
            MadeImage(job, job.path, record, picture.seconds, picture.retried, data if job.path is None else None)
        )


def model_of(plan: Plan) -> Model:
    """The identity of the plan's model."""
    model, machine = plan.model, plan.request.machine
    return Model(
        model.name,
        model.parts.class_name,
        model.base.source,
        model.local,
        model.override_sources,
        {},
        tuple(Lora(lora.source, lora.scale) for lora in model.loras),
        {"vae_tiling": True} if machine.vae_tiling else {},
    )
