"""What ``generate`` shows: the plan, the images, and the same as data for ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardtool.images.plan import Plan, steps_of
from shardtool.images.schedulers import SCHEDULERS, SPACINGS
from shardtool.images.settings import Job

from .output import show, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shardtool.generation.run import Outcome


def schedulers_view() -> tuple[dict[str, Any], RenderableType]:
    """Every scheduler with its class and the spacings it knows."""
    shown = table("name", "class of diffusers", "in A1111", "suffixes")
    for name, entry in SCHEDULERS.items():
        shown.add_row(
            name, entry.class_name, entry.a1111, " ".join(f"-{one}" for one in SPACINGS) if entry.spaced else ""
        )
    data = {
        name: {"class": entry.class_name, "a1111": entry.a1111, "suffixes": list(SPACINGS) if entry.spaced else []}
        for name, entry in SCHEDULERS.items()
    }
    return {"schedulers": data}, shown


def _job_data(job: Job) -> dict[str, Any]:
    return {
        "index": job.index,
        "path": None if job.path is None else str(job.path),
        "seed": job.seed,
        **job.settings.as_json(),
    }


def _model_data(plan: Plan) -> dict[str, Any]:
    model = plan.model
    return {
        "name": model.name,
        "class": model.facts.class_name,
        "source": model.base.source,
        "path": str(model.path),
        "overrides": {name: str(path) for name, path in model.overrides.items()},
        "lora": [{"source": lora.source, "path": str(lora.path), "scale": lora.scale} for lora in model.loras],
    }


def plan_data(plan: Plan) -> dict[str, Any]:
    return {
        "dry_run": True,
        "model": _model_data(plan),
        "steps": steps_of(plan.jobs),
        "images": [_job_data(job) for job in plan.jobs],
    }


def plan_view(plan: Plan) -> list[RenderableType]:
    shown = table("image", "seed", "size", "steps", "prompt", right=("seed", "steps"))
    for job in plan.jobs:
        settings = job.settings
        size = f"{settings.width}×{settings.height}" if settings.width else "as the image"
        shown.add_row(show(job.path or "-"), str(job.seed), size, str(settings.steps_run), show(settings.prompt))
    return [shown]


def made_data(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    images = [
        _job_data(made.job)
        | {
            "status": "made",
            "pixel_sha256": made.record["pixel_sha256"],
            "seconds": round(made.seconds, 3),
            "vae_retried": made.retried,
        }
        for made in outcome.made
    ]
    failed = [
        _job_data(failure.job) | {"status": "failed", "error": failure.error.as_json()} for failure in outcome.failures
    ]
    placement = outcome.built.placement
    return {
        "model": _model_data(plan),
        "placement": {
            "device": placement.device,
            "dtype": placement.dtype,
            "offload": placement.offload,
            "reasons": list(placement.reasons),
        },
        "images": sorted([*images, *failed], key=lambda image: image["index"]),
        "failed": len(failed),
    }


def made_lines(outcome: Outcome) -> list[RenderableType]:
    """The paths, one a line and nothing else, so that a script can read them."""
    return [show(made.path) for made in outcome.made]
