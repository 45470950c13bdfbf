"""Where a pipeline will live, in which numbers, with which offload: decided once, from plain values.

``plan_placement`` is pure: the machine is an ``Inventory``, what is to be placed are ``Needs``, and the decision comes
with its reasons. ``shardtool.machine`` reads the real inventory, ``shardtool.needs`` counts the needs from headers.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardtool.devices import Accelerator, Inventory, check_device_word, choose_device
from shardtool.errors import RefusedError, UsageError
from shardtool.needs import OFFLOADS, ComponentNeeds, Dtype, Needs, Offload, most_stored
from shardtool.offloading import Room, choose_offload


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
    accelerator, why = choose_device(request.device, inventory)
    reasons = [why]
    dtype = _choose_dtype(request.dtype, accelerator, inventory, needs, reasons)
    room = Room(needs, accelerator, inventory)
    offload = choose_offload(request.offload, room, dtype, reasons, force=request.force)
    return Placement(
        room.device,
        dtype,
        offload,
        tuple(reasons),
        needs.device_bytes(dtype, offload),
        needs.host_bytes(dtype, room.device, offload),
    )


def _choose_dtype(
    asked: str, accelerator: Accelerator | None, inventory: Inventory, needs: Needs, reasons: list[str]
) -> Dtype:
    stored = _stored_dtype(needs)
    fixed = [(part.fixed_dtype, part.name) for part in needs.components if part.fixed_dtype is not None]
    dtype: Dtype
    if asked == "auto" and fixed:
        dtype, name = fixed[0]
        reasons.append(f"dtype: {dtype}, which the quantised {name} computes in")
    elif asked != "auto":
        dtype = asked  # type: ignore[assignment]
        reasons.append(f"dtype: {dtype}, as asked")
    elif accelerator is None:
        dtype = _cpu_dtype(stored, inventory, reasons)
    else:
        dtype = _accelerator_dtype(stored, accelerator, reasons)
    for part in needs.components:
        _check_fixed_dtype(part, dtype)
        subject = part.name if len(needs.components) > 1 else "weights"
        if part.quantised is not None:
            reasons.append(f"{subject}: quantised with {part.quantised}, its packed weights stay as stored")
        elif part.stored_dtype not in (None, dtype):
            reasons.append(f"{subject}: stored in {part.stored_dtype}, cast to {dtype}")
    return dtype


def _check_fixed_dtype(part: ComponentNeeds, dtype: Dtype) -> None:
    if part.fixed_dtype not in (None, dtype):
        raise RefusedError(
            f"{part.name}: its weights, quantised with {part.quantised}, compute in {part.fixed_dtype} and cannot be "
            f"cast to {dtype}",
            code="dtype_quantised",
            hint=f"type --dtype {part.fixed_dtype}, or give {part.name} another source",
        )


def _stored_dtype(needs: Needs) -> Dtype:
    """What most bytes are stored in, quantised ones aside; fp32 where nothing is a plain float."""
    sizes: dict[str, int] = {}
    for part in needs.components:
        if part.quantised is None:
            for name, size in part.stored.items():
                sizes[name] = sizes.get(name, 0) + size
    return most_stored(sizes) or "fp32"


def _cpu_dtype(stored: Dtype, inventory: Inventory, reasons: list[str]) -> Dtype:
    if stored == "bf16" and inventory.cpu_bf16:
        reasons.append("dtype: bf16, as stored, and this CPU has instructions for it")
        return "bf16"
    why = "a CPU without instructions for bf16 is several times slower in it" if stored == "bf16" else "exact on a CPU"
    reasons.append(f"dtype: fp32, {why}")
    return "fp32"


def _accelerator_dtype(stored: Dtype, accelerator: Accelerator, reasons: list[str]) -> Dtype:
    if stored == "fp16":
        reasons.append("dtype: fp16, as stored")
        return "fp16"
    if accelerator.bf16:
        why = "as stored" if stored == "bf16" else "half of fp32's memory with its range"
        reasons.append(f"dtype: bf16, {why}")
        return "bf16"
    reasons.append(f"dtype: fp16, {accelerator.device} does not compute in bf16")
    return "fp16"
