"""What torch sees of this machine, as a plain ``Inventory``. Nothing else asks torch for devices."""

from __future__ import annotations

import torch

from shardtool.devices import Accelerator, Inventory
from shardtool.host import cpu_has_bf16, local_rank, read_memory


def read_inventory() -> Inventory:
    """The accelerators, the main memory within the container's limits, and this process's place in a launch."""
    memory = read_memory()
    return Inventory(
        (*_cuda(), *_xpu(), *_mps()),
        cpu_total=memory.total,
        cpu_free=memory.free,
        cpu_bf16=cpu_has_bf16(),
        local_rank=local_rank(),
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
