"""Carry out a plan: what is left to make of it, the making, and what goes beside the images.

torch is imported where there is something to make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from shardtool.events import Listener, ignore
from shardtool.generation.outcome import Outcome
from shardtool.generation.processes import Processes
from shardtool.images.companions import write_companions
from shardtool.images.finished import split_finished
from shardtool.images.identity import fingerprints
from shardtool.images.plan import Plan
from shardtool.images.settings import Job
from shardtool.startup import without_collector

if TYPE_CHECKING:
    from shardtool.generation.studio import Show


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
                from shardtool.generation.making import make
            made = make(plan, jobs, identity, processes, show=show, stop=stop, on_event=on_event)
            outcome = replace(made, skipped=skipped)
        if not processes.is_first:
            return outcome
        images = [*(image.job for image in outcome.made), *skipped]
        companions = write_companions(plan, images, identity.result())
        return replace(outcome, companions=companions)
