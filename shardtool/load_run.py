"""Carry out a load plan: the imports, the casts that go on meanwhile, the load, and what is measured and checked."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardtool.checkpoint.digests import read_digests
from shardtool.checkpoint.folder import kind_of
from shardtool.devices import Inventory
from shardtool.errors import InputError, Problem, UsageError
from shardtool.events import Listener, Note, ignore
from shardtool.host import seconds_since_start
from shardtool.load_plan import STRICT, Allowed, LoadPlan, plan_component, plan_pipeline
from shardtool.placement import Request
from shardtool.startup import without_collector

if TYPE_CHECKING:
    from shardtool.forward import Forward
    from shardtool.loading import ComponentReport
    from shardtool.recast import Recast


@dataclass(frozen=True)
class Loaded:
    """What was loaded: models and reports by component, and the pipeline if it is one.

    ``loads`` are the seconds of each load, ``since_start`` those from the start of the process to the end of the first
    one. ``device_peak`` is the most bytes the accelerator held; ``verified`` says what was verified, if asked.
    """

    plan: LoadPlan
    models: Mapping[str, Any]
    reports: Mapping[str, ComponentReport]
    pipe: Any = None
    loads: tuple[float, ...] = ()
    since_start: float | None = None
    device_peak: int = 0
    verified: str | None = None
    forwards: Mapping[str, Forward] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of the loaded tensors."""
        return sum(report.nbytes for report in self.reports.values())

    @property
    def stored_bytes(self) -> int:
        """Bytes of the tensors in the files."""
        parts = self.plan.with_weights.values()
        return sum(part.checkpoint.nbytes for part in parts if part.checkpoint is not None)


def plan_load(
    path: Path,
    request: Request,
    *,
    overrides: Mapping[str, Path] | None = None,
    variant: str | None = None,
    inventory: Inventory | None = None,
    on_event: Listener = ignore,
) -> LoadPlan:
    """The plan to load whatever is at ``path``: one component, or a pipeline with ``overrides`` instead of its own.

    Raises as ``plan_pipeline``, and ``UsageError`` where there is no pipeline to override anything in.
    """
    if kind_of(path) == "pipeline":
        return plan_pipeline(
            path, request, overrides=overrides, variant=variant, inventory=inventory, on_event=on_event
        )
    if overrides:
        raise UsageError(
            f"{path}: is no pipeline in which another {', '.join(overrides)} could take a place",
            code="contradiction",
            hint="name a pipeline, or the component alone",
        )
    return plan_component(path, request, variant=variant, inventory=inventory, on_event=on_event)


def load_planned(
    plan: LoadPlan,
    *,
    allowed: Allowed = STRICT,
    verify: bool = False,
    forward: bool = False,
    repeat: int = 1,
    on_event: Listener = ignore,
) -> Loaded:
    """Load what ``plan`` says, ``repeat`` times over, and keep the last.

    With ``verify``, all data is read and checked first; with ``forward``, each model is run once afterwards. Raises
    ``InputError`` where weights are damaged or do not fit the class that their config names, ``RunError`` where a model
    computes what is not finite.
    """
    phases = plan.phases
    verified = None
    if verify:
        with phases.measure("verify"):
            verified = _verify(plan, on_event)
    with phases.measure("import torch"):
        recasts = plan.begin()
    try:
        with phases.measure("import diffusers"), without_collector():
            _import_classes(plan)
        loaded = _load(plan, allowed, recasts, on_event)
    finally:
        for recast in recasts.values():
            recast.close()
    since_start = seconds_since_start()
    loads = list(loaded.loads)
    for _ in range(repeat - 1):
        del loaded  # two of them might not fit
        loaded = _load(plan, allowed, {}, on_event)
        loads.extend(loaded.loads)
    forwards = _run_forwards(loaded, on_event) if forward else {}
    return Loaded(
        plan,
        loaded.models,
        loaded.reports,
        loaded.pipe,
        tuple(loads),
        since_start,
        _device_peak(plan.placement.device),
        verified,
        forwards,
    )


def _import_classes(plan: LoadPlan) -> None:
    """Import what the load will need, so that its time is told apart from the load's."""
    from shardtool.classes import model_class, pipeline_class

    if plan.pipeline is not None:
        pipeline_class(plan.pipeline)
    for part in plan.with_weights.values():
        model_class(part)


def _load(plan: LoadPlan, allowed: Allowed, recasts: Mapping[str, Recast], on_event: Listener) -> Loaded:
    from shardtool.loading import load_part
    from shardtool.pipeline import assemble

    began = time.perf_counter()
    with plan.phases.measure("load"):
        if plan.pipeline is not None:
            built = assemble(plan, allowed=allowed, recasts=recasts, on_event=on_event)
            models = {name: getattr(built.pipe, name) for name in built.components}
            return Loaded(plan, models, built.components, built.pipe, (time.perf_counter() - began,))
        ((name, part),) = plan.parts.items()
        recast, dtype = recasts.get(name), plan.placement.dtype
        model, report = load_part(part, plan.device, dtype, allowed=allowed, recast=recast, on_event=on_event)
        return Loaded(plan, {name: model}, {name: report}, None, (time.perf_counter() - began,))


def _verify(plan: LoadPlan, on_event: Listener) -> str:
    """Read all data of the plan's parts; what was checked, in words. Raises ``InputError`` with all that is wrong."""
    from shardtool.scan import scan

    problems: list[Problem] = []
    recorded = 0
    for name, part in plan.with_weights.items():
        if part.checkpoint is None:
            continue
        digests = read_digests(part.checkpoint.folder, part.checkpoint.name)
        if digests is None:
            message = f"{name}: no digests are recorded beside its weights, so bit rot in it cannot be seen"
            on_event(Note("digests_missing", message, warning=True))
        else:
            recorded += 1
        problems.extend(scan(part.checkpoint, digests=digests, on_event=on_event))
    if errors := [problem for problem in problems if problem.severity == "error"]:
        raise InputError.of_all(errors)
    for problem in problems:
        on_event(Note(problem.code, problem.message, warning=True))
    return f"values of {len(plan.with_weights)}, digests of {recorded} of {len(plan.with_weights)} checkpoints"


def _run_forwards(loaded: Loaded, on_event: Listener) -> dict[str, Forward]:
    from shardtool.forward import run_forward

    forwards: dict[str, Forward] = {}
    with loaded.plan.phases.measure("forward"):
        for name, model in loaded.models.items():
            found = run_forward(name, model)
            if found is None:
                on_event(Note("forward_unknown", f"{name}: no inputs are known for its class, {type(model).__name__}"))
            else:
                forwards[name] = found
    return forwards


def _device_peak(device: str) -> int:
    if not device.startswith("cuda"):
        return 0
    import torch

    return torch.cuda.max_memory_allocated(device)
