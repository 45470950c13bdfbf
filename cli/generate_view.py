"""What ``generate`` shows: the plan, the images, and the same as data for ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from shardtool.images.plan import Plan, steps_of
from shardtool.images.replay import Verdict
from shardtool.images.schedulers import SCHEDULERS, SPACINGS
from shardtool.images.settings import Job
from shardtool.needs import OFFLOADS, Dtype, count_needs
from shardtool.sizes import format_size

from .output import show, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shardtool.generation.outcome import Outcome


_SHOWN_IMAGES: Final = 50
"""Rows of a plan that people are shown; a file of prompts may ask for a hundred thousand."""

_DTYPES: Final[tuple[Dtype, ...]] = ("fp32", "fp16", "bf16")


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


def _prompt_data(plan: Plan, job: Job) -> list[dict[str, Any]]:
    """Each text's length in tokens, and what is cut off."""
    return [
        {"field": length.field, "tokens": length.tokens, "limit": length.limit, "lost": length.lost}
        for length in plan.lengths.get(job.index, ())
    ]


def plan_data(plan: Plan) -> dict[str, Any]:
    needs = count_needs(plan.model.parts.with_weights)
    return {
        "dry_run": True,
        "model": _model_data(plan),
        "components": {
            name: {"folder": str(part.folder), "class": part.class_name, "numbers": component.numbers}
            for component in needs.components
            for name, part in [(component.name, plan.model.parts.parts[component.name])]
        },
        "memory_bytes": {
            dtype: {offload: needs.device_bytes(dtype, offload) for offload in OFFLOADS} for dtype in _DTYPES
        },
        "steps": steps_of(plan.jobs),
        "images": [{**_job_data(job), "tokens": _prompt_data(plan, job)} for job in plan.jobs],
    }


def plan_view(plan: Plan) -> list[RenderableType]:
    images = table("image", "seed", "size", "steps", "tokens", "prompt", right=("seed", "steps", "tokens"))
    for job in plan.jobs[:_SHOWN_IMAGES]:
        settings = job.settings
        size = f"{settings.width}×{settings.height}"
        tokens = ", ".join(f"{length.tokens} of {length.limit}" for length in plan.lengths.get(job.index, ())[:1])
        shown = (show(job.path or "-"), str(job.seed), size, str(settings.steps_run), tokens, show(settings.prompt))
        images.add_row(*shown)
    needs = count_needs(plan.model.parts.with_weights)
    model = plan.model
    components = table("component", "class", "numbers", "from" if model.overrides else "", right=("numbers",))
    for part in needs.components:
        source = model.parts.parts[part.name]
        other = show(source.folder) if part.name in model.overrides else ""
        components.add_row(show(part.name), show(source.class_name), f"{part.numbers:,}", other)
    memory = table("memory", *_DTYPES, right=tuple(_DTYPES))
    for offload in OFFLOADS:
        name = "all on one device" if offload == "none" else f"--offload {offload}"
        memory.add_row(name, *(format_size(needs.device_bytes(dtype, offload)) for dtype in _DTYPES))
    more = len(plan.jobs) - _SHOWN_IMAGES
    rest = [f"… and {more:,} more (all of them with --json)"] if more > 0 else []
    return [f"{show(model.facts.class_name)}  {show(model.path)}", "", components, "", memory, "", images, *rest]


def made_data(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    made = [
        _job_data(image.job)
        | {
            "status": "made",
            "tokens": _prompt_data(plan, image.job),
            "pixel_sha256": image.record["pixel_sha256"],
            "seconds": round(image.seconds, 3),
            "vae_retried": image.retried,
        }
        for image in outcome.made
    ]
    failed = [
        _job_data(failure.job) | {"status": "failed", "error": failure.error.as_json()} for failure in outcome.failures
    ]
    skipped = [_job_data(job) | {"status": "skipped"} for job in outcome.skipped]
    placement = outcome.placement
    return {
        "model": _model_data(plan),
        "placement": None
        if placement is None
        else {
            "device": placement.device,
            "dtype": placement.dtype,
            "offload": placement.offload,
            "reasons": list(placement.reasons),
        },
        "images": sorted([*made, *failed, *skipped], key=lambda image: image["index"]),
        "failed": len(failed),
        "skipped": len(skipped),
        "companions": list(outcome.companions),
        "environment": dict(outcome.made[0].record["environment"]) if outcome.made else None,
        "verdict": None if outcome.verdict is None else outcome.verdict.as_json(),
    }


def made_lines(plan: Plan, outcome: Outcome) -> list[RenderableType]:
    """The paths, one a line, so that a script can read them; for a replay also what came of the comparison."""
    lines: list[RenderableType] = []
    if not plan.writes_nothing:
        lines += [show(made.job.path) for made in outcome.made]
        lines += [show(path) for path in outcome.companions]
    if outcome.verdict is not None:
        lines += _verdict_lines(outcome.verdict)
    return lines


def _verdict_lines(verdict: Verdict) -> list[str]:
    if verdict.same:
        lines = ["the same pixels"]
    elif verdict.psnr is None:
        lines = ["not the same pixels"]
    else:
        lines = [f"not the same pixels: {verdict.psnr:.1f} dB" + (", close enough" if verdict.met else "")]
    return lines + [f"  {show(what)}: {show(was)} → {show(now)}" for what, was, now in verdict.differences]
