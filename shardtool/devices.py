"""The devices of a machine as plain values, and which of them a request means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from shardtool.errors import RefusedError, UsageError
from shardtool.sizes import format_size


@dataclass(frozen=True)
class Accelerator:
    """One device. ``total`` and ``free`` are bytes; ``bf16`` says that it computes in bf16 natively."""

    kind: Literal["cuda", "mps", "xpu"]
    index: int
    name: str
    total: int
    free: int
    bf16: bool = True

    @property
    def device(self) -> str:
        """What torch calls it: ``cuda:0``; there is one ``mps`` only."""
        return "mps" if self.kind == "mps" else f"{self.kind}:{self.index}"

    def __str__(self) -> str:
        return f"{self.device} ({self.name}, {format_size(self.free)} of {format_size(self.total)} free)"


@dataclass(frozen=True)
class Inventory:
    """What a machine has. CPU memory is in bytes, limits of a container included; ``cpu_bf16``: bf16 instructions.

    ``local_rank`` is set inside a process that ``torchrun`` or ``accelerate launch`` started, one for each device.
    """

    accelerators: tuple[Accelerator, ...] = ()
    cpu_total: int = 0
    cpu_free: int = 0
    cpu_bf16: bool = False
    local_rank: int | None = None


def check_device_word(asked: str) -> None:
    """Raises ``UsageError`` for a word that names no device on any machine."""
    kind, colon, number = asked.partition(":")
    if asked in ("auto", "cpu"):
        return
    if kind not in ("cuda", "mps", "xpu") or (colon and not (number.isascii() and number.isdigit())):
        raise UsageError(
            f'--device "{asked}" is no device',
            code="device_invalid",
            hint="write auto, cpu, cuda, cuda:0, mps or xpu",
        )


def choose_device(asked: str, inventory: Inventory) -> tuple[Accelerator | None, str]:
    """The accelerator that ``asked`` means on this machine (``None`` for the CPU), and why.

    ``asked`` has passed ``check_device_word``. Raises ``RefusedError`` where there is no such device, or ``auto``
    has several to choose from: a model is not split across them here.
    """
    devices = inventory.accelerators
    kind, _, number = asked.partition(":")
    if asked == "auto":
        return _auto_device(inventory)
    if asked == "cpu":
        return None, "device: cpu, as asked"
    same_kind = [device for device in devices if device.kind == kind]
    if not same_kind:
        raise _no_device(f"there is no {kind} device here", devices)
    rank = inventory.local_rank or 0
    wanted = number.lstrip("0") or number[:1]  # compared as text: it may have more digits than Python converts
    found = [device for device in same_kind if str(device.index) == wanted] if number else same_kind[rank:]
    if not found:
        raise _no_device(f"there is no {kind}:{number or rank} here", devices)
    device = found[0]
    return device, f"device: {device.device}, as asked" + ("" if number or kind == "mps" else f" ({kind})")


def _auto_device(inventory: Inventory) -> tuple[Accelerator | None, str]:
    devices = inventory.accelerators
    if not devices:
        return None, "device: cpu, there is no accelerator"
    if inventory.local_rank is not None:
        if inventory.local_rank >= len(devices):
            raise _no_device(f"process {inventory.local_rank} of this launch has no device of its own", devices)
        device = devices[inventory.local_rank]
        return device, f"device: {device.device}, this process's own in a launch with one process for each device"
    if len(devices) == 1:
        return devices[0], f"device: {devices[0].device}, the only accelerator ({devices[0].name})"
    listed = "; ".join(str(device) for device in devices)
    first = devices[0].device
    raise RefusedError(
        f"--device auto with {len(devices)} accelerators: {listed}; a model is not split across them here",
        code="multi_gpu",
        hint=f"type --device {first}, or run one process for each: "
        f"accelerate launch --num_processes {len(devices)} -m shardtool …",
    )


def _no_device(what: str, devices: Sequence[Accelerator]) -> RefusedError:
    there = "; ".join(str(device) for device in devices) or "the CPU only"
    words = " or ".join(f"--device {device.device}" for device in devices[:3])
    return RefusedError(
        f"{what}; this machine has: {there}",
        code="no_device",
        hint=f"type {words or '--device cpu'}, or --device auto" if len(devices) < 2 else f"type {words}",
    )
