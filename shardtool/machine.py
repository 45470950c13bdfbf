"""What torch sees of this machine, as a plain ``Inventory``. Nothing else asks torch for devices."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from shardtool.memory import read_memory
from shardtool.placement import Accelerator, Inventory

_CPU_BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}
"""How /proc/cpuinfo calls instructions that multiply in bf16: on x86 the first two, on ARM the last."""


def read_inventory() -> Inventory:
    """The accelerators, the main memory within the container's limits, and this process's place in a launch."""
    memory = read_memory()
    return Inventory(
        (*_cuda(), *_xpu(), *_mps()),
        cpu_total=memory.total,
        cpu_free=memory.free,
        cpu_bf16=_cpu_has_bf16(),
        local_rank=_local_rank(),
    )


def _cuda() -> list[Accelerator]:
    """NVIDIA's and AMD's: torch calls ROCm devices ``cuda`` too."""
    found = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(index)
        with torch.cuda.device(index):
            bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        found.append(Accelerator("cuda", index, torch.cuda.get_device_name(index), total, free, bf16))
    return found


def _xpu() -> list[Accelerator]:
    found = []
    for index in range(torch.xpu.device_count() if torch.xpu.is_available() else 0):
        free, total = torch.xpu.mem_get_info(index)
        found.append(Accelerator("xpu", index, torch.xpu.get_device_name(index), total, free))
    return found


def _mps() -> list[Accelerator]:
    if not torch.backends.mps.is_available():
        return []
    total = torch.mps.recommended_max_memory()
    free = max(total - torch.mps.driver_allocated_memory(), 0)
    # bf16 came to Metal with macOS 14.
    return [Accelerator("mps", 0, "Apple GPU", total, free, torch.backends.mps.is_macos_or_newer(14, 0))]


def _cpu_has_bf16() -> bool:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return not _CPU_BF16_FLAGS.isdisjoint(flags.split())


def _local_rank() -> int | None:
    """Set by ``torchrun`` and by ``accelerate launch`` (for several processes), which both set ``RANK`` too."""
    rank = os.environ.get("LOCAL_RANK", "")
    return int(rank) if rank.isdigit() and "RANK" in os.environ else None
