"""How much of a pipeline lies on its accelerator at once: the first way that fits, or why none does. Plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shardtool.devices import Accelerator, Inventory
from shardtool.errors import RefusedError
from shardtool.needs import OFFLOADS, Dtype, Needs, Offload
from shardtool.sizes import format_size

WORKSPACE: Final = 400_000_000
"""Bytes set aside on an accelerator for libraries' workspaces and the allocator's rounding; estimated, not measured."""


@dataclass(frozen=True)
class Room:
    """What is to be placed, and the device it shall go to: an accelerator of the machine, ``None`` for its CPU."""

    needs: Needs
    accelerator: Accelerator | None
    inventory: Inventory

    @property
    def device(self) -> str:
        return self.accelerator.device if self.accelerator else "cpu"

    @property
    def has_memory_of_its_own(self) -> bool:
        """A Mac's memory is one for both, so there is nothing to be won by moving weights to and fro."""
        return self.accelerator is not None and self.accelerator.kind != "mps"

    @property
    def quantised(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.needs.components if part.quantised is not None)

    @property
    def possible(self) -> tuple[Offload, ...]:
        """The ways to offload here, in the order in which ``auto`` tries them."""
        if not self.has_memory_of_its_own:
            return ("none",)
        # Group and sequential offload swap the data of single parameters, and a quantised one is more than its data.
        return ("none", "model") if self.quantised else OFFLOADS

    def lack(self, dtype: Dtype, offload: Offload) -> str | None:
        """Why it does not fit, with the numbers, or ``None`` if it does."""
        if self.accelerator is not None:
            wanted = self.needs.device_bytes(dtype, offload) + WORKSPACE
            if wanted > self.accelerator.free:
                free = format_size(self.accelerator.free)
                return f"{offload} needs {format_size(wanted)} on {self.device} in {dtype}, {free} are free"
        host = self.needs.host_bytes(dtype, self.device, offload)
        if host > self.inventory.cpu_free:
            free = format_size(self.inventory.cpu_free)
            return f"{offload} needs {format_size(host)} of main memory in {dtype}, {free} are free"
        return None


def choose_offload(asked: str, room: Room, dtype: Dtype, reasons: list[str], *, force: bool) -> Offload:
    """What ``asked``, a known word, means in this ``room``; the reason is added to ``reasons``.

    Raises ``RefusedError`` where that way does not exist here or cannot fit (unless it is forced).
    """
    if asked != "auto" and asked not in room.possible:
        raise _no_such_way(asked, room)
    tried: Sequence[Offload] = room.possible if asked == "auto" else (asked,)  # type: ignore[assignment]
    lacks: list[str] = []
    for offload in tried:
        lack = room.lack(dtype, offload)
        if lack is None:
            if asked != "auto":
                reasons.append(f"offload: {offload}, as asked")
            elif room.accelerator is not None:
                reasons.append(f"offload: {offload}, " + (f"because {lacks[-1]}" if lacks else "everything fits"))
            return offload
        lacks.append(lack)
    if force:
        reasons.append(f"offload: {tried[-1]}, forced although {lacks[-1]}")
        return tried[-1]
    raise _does_not_fit(lacks, asked, tried, room, dtype)


def _no_such_way(asked: str, room: Room) -> RefusedError:
    if not room.has_memory_of_its_own:
        return RefusedError(
            f"--offload {asked} needs an accelerator with memory of its own, and the device is {room.device}",
            code="offload_without_accelerator",
            hint="leave out --offload",
        )
    return RefusedError(
        f"--offload {asked} takes weights apart, which quantised ones do not bear: {', '.join(room.quantised)}",
        code="offload_quantised",
        hint="type --offload model, or leave it out",
    )


def _does_not_fit(lacks: Sequence[str], asked: str, tried: Sequence[Offload], room: Room, dtype: Dtype) -> RefusedError:
    ways: list[str] = []
    if dtype == "fp32" and not any(part.fixed_dtype for part in room.needs.components):
        halves: tuple[Dtype, ...] = ("bf16", "fp16") if room.accelerator is None or room.accelerator.bf16 else ("fp16",)
        fitting = (half for half in halves if any(room.lack(half, way) is None for way in tried))
        ways.extend(f"--dtype {half} would fit" for half in list(fitting)[:1])
    if asked != "auto":
        others = (offload for offload in room.possible if room.lack(dtype, offload) is None)
        ways.extend(f"--offload {offload} would fit" for offload in list(others)[:1])
    ways.append("--force tries all the same")
    return RefusedError(f"it does not fit: {'; '.join(lacks)}", code="memory", hint="; ".join(ways))
