"""Everything of the machine and its libraries that pixels can depend on."""

from __future__ import annotations

import platform
import sys
from typing import Any

import diffusers
import torch
import transformers

from shardtool.placement import Placement


def environment_of(placement: Placement) -> dict[str, Any]:
    """Versions, device, dtype and threads, as JSON holds them."""
    device = torch.device(placement.device)
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "diffusers": diffusers.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "platform": f"{sys.platform}-{platform.machine()}",
        "device": device.type,
        "device_name": _device_name(device),
        "dtype": placement.dtype,
        "offload": placement.offload,
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    if device.type == "cuda":
        found["cuda"] = torch.version.cuda
        found["cudnn"] = int(torch.backends.cudnn.version() or 0)  # type: ignore[no-untyped-call]
    return found


def _device_name(device: torch.device) -> str:
    """The accelerator, or the instructions that torch's CPU kernels use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return device.type if device.type != "cpu" else torch.backends.cpu.get_cpu_capability()
