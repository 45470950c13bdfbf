"""What is going to be loaded, where to, and whether it fits: all that is known before a weight is read.

Nothing heavy is imported here, except torch to look for accelerators where the request leaves the device open and no
inventory is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardtool.activations import Run
from shardtool.checkpoint.quantisation import known_method
from shardtool.devices import Inventory
from shardtool.events import Listener, ignore
from shardtool.fit import require_partners
from shardtool.host import cpu_has_bf16, local_rank, read_memory
from shardtool.needs import Needs, count_needs
from shardtool.part import Part, read_component
from shardtool.parts import PipelineParts, read_parts
from shardtool.phases import Phases
from shardtool.placement import Placement, Request, plan_placement
from shardtool.readahead import read_ahead
from shardtool.startup import without_collector

if TYPE_CHECKING:
    from shardtool.recast import Recast


@dataclass(frozen=True)
class Allowed:
    """Globs of tensor names that may be missing (then they are zeros) or unexpected (then they are left out)."""

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()


STRICT = Allowed()
"""Nothing may be missing, nothing unexpected."""


@dataclass(frozen=True)
class LoadPlan:
    """The parts by name, what they need, the machine they were placed on, and where. ``pipeline`` is ``None`` for one
    component alone. ``phases`` collects the time of each step."""

    parts: Mapping[str, Part]
    pipeline: PipelineParts | None
    needs: Needs
    inventory: Inventory
    placement: Placement
    phases: Phases

    @property
    def device(self) -> str:
        """Where weights are loaded to: with offload they wait in main memory."""
        return self.placement.device if self.placement.offload == "none" else "cpu"

    @property
    def with_weights(self) -> Mapping[str, Part]:
        return {name: part for name, part in self.parts.items() if part.checkpoint is not None}

    def begin(self) -> dict[str, Recast]:
        """Start to cast the largest part, or to read it to its device, so that this goes on during imports."""
        if not self.with_weights:
            return {}
        sizes = {name: part.checkpoint.nbytes for name, part in self.with_weights.items() if part.checkpoint}
        largest = max(sizes, key=lambda name: sizes[name])
        with without_collector():
            from shardtool.recast import start_recast

        recast = start_recast(self.parts[largest], self.placement.dtype, self.device)
        return {} if recast is None else {largest: recast}


def plan_component(
    path: Path,
    request: Request,
    *,
    variant: str | None = None,
    inventory: Inventory | None = None,
    on_event: Listener = ignore,
) -> LoadPlan:
    """Plan to load the one component at ``path``; ``inventory`` is what the machine has.

    By default it is looked at, and the kernel begins to read the weights meanwhile.

    Raises ``InputError`` where headers or config are missing or damaged, ``RefusedError`` where it cannot be placed.
    """
    phases = Phases()
    with phases.measure("headers"):
        part = read_component(path, variant=variant, on_event=on_event)
    return _plan({part.name: part}, None, request, None, inventory, phases)


def plan_pipeline(
    base: Path,
    request: Request,
    *,
    overrides: Mapping[str, Path] | None = None,
    given: Mapping[str, Mapping[str, Any]] | None = None,
    run: Run | None = None,
    variant: str | None = None,
    inventory: Inventory | None = None,
    on_event: Listener = ignore,
) -> LoadPlan:
    """Plan to load the pipeline ``base`` with ``overrides``, for runs like ``run`` (default: one picture of its size).

    ``given`` are the configs of components that are loaded already, by name.

    Raises as ``plan_component``, and ``InputError`` where the parts do not fit each other.
    """
    phases = Phases()
    with phases.measure("headers"):
        pipeline = read_parts(base, overrides, given=given, variant=variant, on_event=on_event)
        require_partners(pipeline)
    return _plan(pipeline.parts, pipeline, request, run or Run(), inventory, phases)


def _plan(
    parts: Mapping[str, Part],
    pipeline: PipelineParts | None,
    request: Request,
    run: Run | None,
    inventory: Inventory | None,
    phases: Phases,
) -> LoadPlan:
    for part in parts.values():
        if part.quantised is not None:
            known_method(part.quantised, part.config_path)
    needs = count_needs(parts, run)
    if inventory is None:
        _read_ahead(parts)
        with phases.measure("import torch"):
            inventory = own_inventory(request)
    placement = plan_placement(request, inventory, needs)
    return LoadPlan(parts, pipeline, needs, inventory, placement, phases)


def _read_ahead(parts: Mapping[str, Part]) -> None:
    """Let the kernel begin to read, unless there is no room for it."""
    files = [file for part in parts.values() if part.checkpoint is not None for file in part.checkpoint.files]
    if sum(file.size for file in files) < read_memory().free:
        read_ahead(file.path for file in files)


def own_inventory(request: Request) -> Inventory:
    """What this machine has, as far as ``request`` leaves it open; torch is imported to look for accelerators."""
    if request.device == "cpu":
        memory = read_memory()
        return Inventory((), memory.total, memory.free, cpu_has_bf16(), local_rank())
    with without_collector():
        from shardtool.machine import read_inventory

    return read_inventory()
