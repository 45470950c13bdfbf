"""How ``load`` shows a plan and what was loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from shardtool.host import read_usage
from shardtool.inventory_file import inventory_json
from shardtool.sizes import format_count, format_size

from .output import show, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shardtool.load_plan import LoadPlan
    from shardtool.load_run import Loaded


def plan_data(source: str, plan: LoadPlan) -> dict[str, Any]:
    """The plan for ``--json``."""
    dtype = plan.placement.dtype
    return {
        "source": source,
        "kind": "component" if plan.pipeline is None else "pipeline",
        "class": None if plan.pipeline is None else plan.pipeline.class_name,
        "placement": asdict(plan.placement),
        "inventory": inventory_json(plan.inventory),
        "needs": [
            {
                "name": need.name,
                "parameters": need.numbers,
                "stored": dict(need.stored),
                "weight_bytes": need.weight_bytes(dtype),
                "run_bytes": need.run_bytes(dtype),
            }
            for need in plan.needs.components
        ],
    }


def plan_view(plan: LoadPlan) -> Iterable[RenderableType]:
    """The plan as a table and its reasons."""
    dtype = plan.placement.dtype
    rows = table("component", "class", "params", "stored", f"in {dtype}", "a run", right=_NUMBERS)
    for need in plan.needs.components:
        rows.add_row(
            show(need.name),
            show(plan.parts[need.name].class_name),
            format_count(need.numbers),
            ", ".join(need.stored),
            format_size(need.weight_bytes(dtype)),
            format_size(need.run_bytes(dtype)),
        )
    yield rows
    yield from _placement_lines(plan)
    yield "nothing was loaded (--dry-run)"


_NUMBERS = ("params", "in fp32", "in fp16", "in bf16", "a run", "bytes", "time")


def _placement_lines(plan: LoadPlan) -> Iterable[str]:
    placement = plan.placement
    needed = f"{format_size(placement.device_bytes)} on {placement.device}"
    if placement.device != "cpu" and placement.host_bytes:
        needed += f", {format_size(placement.host_bytes)} of main memory"
    yield f"device {placement.device} · dtype {placement.dtype} · offload {placement.offload} · needs {needed}"
    yield from (f"  {show(reason)}" for reason in placement.reasons)


def loaded_data(source: str, loaded: Loaded) -> dict[str, Any]:
    """What was loaded, for ``--json``. Times are seconds, sizes bytes."""
    usage = read_usage()
    return {
        **plan_data(source, loaded.plan),
        "components": [asdict(report) for report in loaded.reports.values()],
        "parameters": sum(report.parameters for report in loaded.reports.values()),
        "bytes": loaded.nbytes,
        "phases": dict(loaded.plan.phases.seconds),
        "loads": list(loaded.loads),
        "gb_per_s": loaded.stored_bytes / min(loaded.loads) / 1e9,
        "since_process_start": loaded.since_start,
        "memory": {**asdict(usage), "device_peak": loaded.device_peak},
        "forward": {name: asdict(found) for name, found in loaded.forwards.items()},
        "verified": loaded.verified,
    }


def loaded_view(loaded: Loaded) -> Iterable[RenderableType]:
    """What was loaded, as a table and a few lines."""
    rows = table("component", "class", "params", "dtype", "bytes", "time", right=_NUMBERS)
    for report in loaded.reports.values():
        rows.add_row(
            show(report.name),
            show(report.class_name),
            format_count(report.parameters),
            # Whole numbers are small buffers, which would only widen the table; --json has them.
            ", ".join(name for name in report.dtypes if "float" in name) or ", ".join(report.dtypes),
            format_size(report.nbytes),
            f"{report.seconds:.2f} s",
        )
    yield rows
    yield from _placement_lines(loaded.plan)
    yield from _time_lines(loaded)
    yield from _memory_lines(loaded)
    if loaded.verified is not None:
        yield f"verified: {loaded.verified}"
    for name, forward in loaded.forwards.items():
        shape = "×".join(str(side) for side in forward.shape)
        yield f"forward {show(name)}: {shape}, finite, sha256 {forward.digest[:16]}, {forward.seconds:.2f} s"


def _time_lines(loaded: Loaded) -> Iterable[str]:
    steps = " · ".join(f"{name} {seconds:.2f} s" for name, seconds in loaded.plan.phases.seconds.items())
    yield f"time: {steps}"
    total = "" if loaded.since_start is None else f" · loaded {loaded.since_start:.2f} s after the program was started"
    rate = format_size(round(loaded.stored_bytes / min(loaded.loads)))
    yield f"  {format_size(loaded.stored_bytes)} at {rate}/s{total}"
    if len(loaded.loads) > 1:
        ordered = sorted(loaded.loads)
        middle = ordered[len(ordered) // 2]
        yield f"  {len(ordered)} loads: {ordered[0]:.2f} to {ordered[-1]:.2f} s, in the middle {middle:.2f} s"


def _memory_lines(loaded: Loaded) -> Iterable[str]:
    usage = read_usage()
    if usage.peak:
        own, mapped = format_size(usage.anonymous), format_size(usage.mapped)
        yield f"memory: {own} of its own, {mapped} mapped from files, peak {format_size(usage.peak)}"
    if loaded.device_peak:
        yield f"  on {loaded.plan.placement.device}: peak {format_size(loaded.device_peak)}"
