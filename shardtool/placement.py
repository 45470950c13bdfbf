"""Where a pipeline will live, in which numbers, with which offload: decided once, from plain values.

``plan_placement`` is pure: the machine is an ``Inventory``, what is to be placed are ``Needs``, and the decision comes
with its reasons. ``shardtool.machine`` reads the real inventory; ``shardtool.fit`` computes needs from headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from shardtool.devices import Accelerator, Inventory, check_device_word, choose_device
from shardtool.errors import RefusedError, UsageError
from shardtool.needs import OFFLOADS, STORED_DTYPES, Dtype, Needs, Offload
from shardtool.sizes import format_size

WORKSPACE: Final = 400_000_000
"""Bytes set aside on an accelerator for libraries' workspaces and the allocator's rounding; estimated, not measured."""


@dataclass(frozen=True)
class Request:
    """What was asked for, in the words of the command line. ``force`` places what does not fit by the numbers."""

    device: str = "auto"
    dtype: str = "auto"
    offload: str = "auto"
    force: bool = False


@dataclass(frozen=True)
class Placement:
    """The decision: torch's name of the device, the dtype, the offload, and a sentence for each choice made.

    ``device_bytes`` and ``host_bytes`` are what it is expected to need at its peak.
    """

    device: str
    dtype: Dtype
    offload: Offload
    reasons: tuple[str, ...] = ()
    device_bytes: int = 0
    host_bytes: int = 0


@dataclass
class _Reasons:
    """Collects the sentences while the decision is made."""

    lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        self.lines.append(line)


def check_words(request: Request) -> None:
    """Raises ``UsageError`` for words that mean nothing on any machine; nothing is looked at for that."""
    check_device_word(request.device)
    if request.dtype not in ("auto", "fp32", "fp16", "bf16"):
        raise UsageError(
            f'--dtype "{request.dtype}" is no dtype', code="dtype_invalid", hint="write auto, fp32, fp16, bf16"
        )
    if request.offload not in ("auto", *OFFLOADS):
        words = ", ".join(OFFLOADS)
        raise UsageError(
            f'--offload "{request.offload}" is unknown', code="offload_invalid", hint=f"write auto, {words}"
        )


def plan_placement(request: Request, inventory: Inventory, needs: Needs) -> Placement:
    """Decide the placement that ``request`` means on a machine with ``inventory``, for ``needs``.

    Raises ``RefusedError`` where there is no such device, where ``auto`` has several to choose from, or where it cannot
    fit (unless forced); ``UsageError`` for words that mean nothing.
    """
    check_words(request)
    reasons = _Reasons()
    accelerator, why = choose_device(request.device, inventory)
    reasons.add(why)
    dtype = _choose_dtype(request.dtype, accelerator, inventory, needs, reasons)
    offload = _choose_offload(request, accelerator, inventory, needs, dtype, reasons)
    device = accelerator.device if accelerator else "cpu"
    return Placement(
        device,
        dtype,
        offload,
        tuple(reasons.lines),
        needs.device_bytes(dtype, offload),
        needs.host_bytes(dtype, device, offload),
    )


def _choose_dtype(
    asked: str, accelerator: Accelerator | None, inventory: Inventory, needs: Needs, reasons: _Reasons
) -> Dtype:
    stored = _stored_dtype(needs)
    if asked != "auto":
        dtype: Dtype = asked  # type: ignore[assignment]
        reasons.add(f"dtype: {dtype}, as asked")
    elif accelerator is None:
        dtype = _cpu_dtype(stored, inventory, reasons)
    else:
        dtype = _accelerator_dtype(stored, accelerator, reasons)
    for part in needs.components:
        if part.stored_dtype not in (None, dtype):
            reasons.add(f"{part.name}: stored in {part.stored_dtype}, cast to {dtype}")
    return dtype


def _stored_dtype(needs: Needs) -> Dtype:
    """What most bytes are stored in; fp32 where nothing is a plain float."""
    sizes: dict[Dtype, int] = {}
    for part in needs.components:
        for name, size in part.stored.items():
            if name in STORED_DTYPES:
                sizes[STORED_DTYPES[name]] = sizes.get(STORED_DTYPES[name], 0) + size
    return max(sizes, key=lambda dtype: sizes[dtype]) if sizes else "fp32"


def _cpu_dtype(stored: Dtype, inventory: Inventory, reasons: _Reasons) -> Dtype:
    if stored == "bf16" and inventory.cpu_bf16:
        reasons.add("dtype: bf16, as stored, and this CPU has instructions for it")
        return "bf16"
    why = "a CPU without instructions for bf16 is several times slower in it" if stored == "bf16" else "exact on a CPU"
    reasons.add(f"dtype: fp32, {why}")
    return "fp32"


def _accelerator_dtype(stored: Dtype, accelerator: Accelerator, reasons: _Reasons) -> Dtype:
    if stored == "fp16":
        reasons.add("dtype: fp16, as stored")
        return "fp16"
    if accelerator.bf16:
        why = "as stored" if stored == "bf16" else "half of fp32's memory with its range"
        reasons.add(f"dtype: bf16, {why}")
        return "bf16"
    reasons.add(f"dtype: fp16, {accelerator.device} does not compute in bf16")
    return "fp16"


def _choose_offload(
    request: Request,
    accelerator: Accelerator | None,
    inventory: Inventory,
    needs: Needs,
    dtype: Dtype,
    reasons: _Reasons,
) -> Offload:
    asked = request.offload
    possible = _possible_offloads(accelerator)
    if asked != "auto" and asked not in possible:
        raise RefusedError(
            f"--offload {asked} needs an accelerator with memory of its own, and the device is "
            f"{accelerator.device if accelerator else 'cpu'}",
            code="offload_without_accelerator",
            hint="leave out --offload",
        )
    tried: Sequence[Offload] = possible if asked == "auto" else (asked,)  # type: ignore[assignment]
    lacks: list[str] = []
    for offload in tried:
        lack = _lack(needs, dtype, offload, accelerator, inventory)
        if lack is None:
            if asked != "auto":
                reasons.add(f"offload: {offload}, as asked")
            elif accelerator is not None:
                reasons.add(f"offload: {offload}, " + (f"because {lacks[-1]}" if lacks else "everything fits"))
            return offload
        lacks.append(lack)
    if request.force:
        reasons.add(f"offload: {tried[-1]}, forced although {lacks[-1]}")
        return tried[-1]
    raise _does_not_fit(lacks, request, needs, dtype, accelerator, inventory)


def _possible_offloads(accelerator: Accelerator | None) -> tuple[Offload, ...]:
    # A Mac's memory is one for both, so there is nothing to be won by moving weights to and fro.
    return OFFLOADS if accelerator is not None and accelerator.kind != "mps" else ("none",)


def _lack(
    needs: Needs, dtype: Dtype, offload: Offload, accelerator: Accelerator | None, inventory: Inventory
) -> str | None:
    """Why it does not fit, with the numbers, or ``None`` if it does."""
    if accelerator is not None:
        wanted = needs.device_bytes(dtype, offload) + WORKSPACE
        if wanted > accelerator.free:
            return (
                f"{offload} needs {format_size(wanted)} on {accelerator.device} in {dtype}, "
                f"{format_size(accelerator.free)} are free"
            )
    host = needs.host_bytes(dtype, accelerator.device if accelerator else "cpu", offload)
    if host > inventory.cpu_free:
        return (
            f"{offload} needs {format_size(host)} of main memory in {dtype}, {format_size(inventory.cpu_free)} are free"
        )
    return None


def _does_not_fit(
    lacks: Sequence[str],
    request: Request,
    needs: Needs,
    dtype: Dtype,
    accelerator: Accelerator | None,
    inventory: Inventory,
) -> RefusedError:
    ways: list[str] = []
    if dtype == "fp32":
        smaller: Dtype
        for smaller in ("bf16", "fp16") if accelerator is None or accelerator.bf16 else ("fp16",):
            if any(
                _lack(needs, smaller, offload, accelerator, inventory) is None
                for offload in _possible_offloads(accelerator)
            ):
                ways.append(f"--dtype {smaller} would fit")
                break
    if request.offload not in ("auto",):
        for offload in _possible_offloads(accelerator):
            if _lack(needs, dtype, offload, accelerator, inventory) is None:
                ways.append(f"--offload {offload} would fit")
                break
    ways.append("--force tries all the same")
    return RefusedError(f"it does not fit: {'; '.join(lacks)}", code="memory", hint="; ".join(ways))
