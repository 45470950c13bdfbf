"""Carry out a plan: build the pipeline, make the pictures, write them with their metadata and what goes beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from shardtool.errors import UsageError
from shardtool.events import Advanced, Listener, ignore
from shardtool.generation.environment import environment_of
from shardtool.generation.equipping import equip
from shardtool.generation.kept import Kept, read_kept
from shardtool.generation.processes import Processes
from shardtool.generation.series import Failure, begin_progress, generate_images
from shardtool.generation.studio import Show, Studio
from shardtool.generation.writing import MadeImage, Writer, write_companions
from shardtool.images.finished import split_finished
from shardtool.images.identity import fingerprints
from shardtool.images.plan import Plan
from shardtool.images.record import Model
from shardtool.images.replay import Verdict
from shardtool.images.settings import Job
from shardtool.pipeline import BuiltPipeline, build_pipeline
from shardtool.placement import Placement
from shardtool.startup import without_collector


@dataclass(frozen=True)
class Outcome:
    """What came of a run; ``placement`` is ``None`` where there was nothing to make.

    On the first process ``made`` and ``failures`` are those of all processes.
    """

    placement: Placement | None
    made: tuple[MadeImage, ...]
    failures: tuple[Failure, ...] = ()
    skipped: tuple[Job, ...] = ()
    verdict: Verdict | None = None
    companions: tuple[str, ...] = ()


def carry_out(
    plan: Plan,
    *,
    processes: Processes | None = None,
    show: Show | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_event: Listener = ignore,
) -> Outcome:
    """Make everything that ``plan`` says. Raises what ``build_pipeline`` and ``generate_images`` raise.

    ``show`` and ``stop`` are as in ``Studio``.
    """
    processes = processes or Processes()
    with ThreadPoolExecutor(1, "identity") as pool:
        # Reading and hashing the weights needs neither torch nor this thread.
        identity = pool.submit(lambda: plan.identify(fingerprints(plan.model.parts.parts)))
        jobs: Sequence[Job] = plan.jobs
        skipped: tuple[Job, ...] = ()
        if plan.request.target.skip_existing:
            jobs, skipped = processes.agree(split_finished(plan, identity.result()))
        processes.meet()
        outcome = Outcome(None, (), (), skipped)
        if jobs:
            with without_collector():
                built = _build(plan, on_event)
            writer = Writer(plan, environment_of(built.placement), identity)
            outcome = replace(_make(plan, jobs, built, writer, processes, show, stop, on_event), skipped=skipped)
        if not processes.is_first:
            return outcome
        companions = write_companions(plan, outcome.made, skipped, identity.result())
        return replace(outcome, companions=companions)


def _make(
    plan: Plan,
    jobs: Sequence[Job],
    built: BuiltPipeline,
    writer: Writer,
    processes: Processes,
    show: Show | None,
    stop: Callable[[], bool],
    on_event: Listener,
) -> Outcome:
    """Make this process's share of ``jobs``, and on the first process collect what all have made."""
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
