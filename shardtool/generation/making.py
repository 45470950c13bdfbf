"""Make the pictures of a plan: build the pipeline, go through this process's share, and collect what all have made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from shardtool.errors import UsageError
from shardtool.events import Advanced, Listener
from shardtool.generation.environment import environment_of
from shardtool.generation.equipping import equip
from shardtool.generation.kept import Kept, read_kept
from shardtool.generation.outcome import Outcome
from shardtool.generation.processes import Processes
from shardtool.generation.series import begin_progress, generate_images
from shardtool.generation.studio import Show, Studio
from shardtool.generation.writing import Writer
from shardtool.images.plan import Plan
from shardtool.images.record import Model
from shardtool.images.settings import Job
from shardtool.pipeline import BuiltPipeline, build_pipeline
from shardtool.startup import without_collector


def make(
    plan: Plan,
    jobs: Sequence[Job],
    identity: Future[Model],
    processes: Processes,
    *,
    show: Show | None,
    stop: Callable[[], bool],
    on_event: Listener,
) -> Outcome:
    """Make this process's share of ``jobs``; the first process has in the end what all have made.

    ``identity`` is the model's, once its weights are hashed.
    """
    with without_collector():
        built = _build(plan, on_event)
    writer = Writer(plan, environment_of(built.placement), identity)
    conduct = plan.request.conduct
    begun = None if plan.begun is None else read_kept(plan.begun)
    if begun is not None:
        _check_begun(plan, begun, writer.model)
    studio = Studio(
        built,
        windows=conduct.on_long_prompt == "chunk",
        show=show,
        show_every=conduct.preview_every,
        stop=stop,
        keep=writer.keep,
        step_done=processes.step_done,
        on_event=on_event,
    )
    end = begin_progress(on_event, jobs)
    failures = generate_images(studio, processes.share(jobs), writer.save, begun=begun, keep_going=conduct.keep_going)
    made = sorted(processes.gather(writer.made, on_event), key=lambda image: image.job.index)
    own = len(writer.made) + len(failures)
    failures = tuple(processes.gather(failures, on_event))
    on_event(Advanced("images", len(made) + len(failures) - own))
    end()
    return Outcome(built.placement, tuple(made), failures, verdict=writer.verdict)


def _check_begun(plan: Plan, begun: Kept, model: Model) -> None:
    if [job.key(model.identity) for job in plan.jobs] != [begun.record.get("key")]:
        raise UsageError(
            f"--resume {plan.begun}: these settings or this model make another picture than the one that was stopped",
            code="resume_mismatch",
            hint="give --resume alone",
        )


def _build(plan: Plan, on_event: Listener) -> BuiltPipeline:
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
    equip(built, plan, on_event=on_event)
    return built
