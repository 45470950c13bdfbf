"""What the figures of a benchmark depend on: the machine and the versions, in words for the record."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

LIBRARIES = ("torch", "diffusers", "transformers", "accelerate", "safetensors", "huggingface_hub")


def machine(folder: Path) -> dict[str, Any]:
    """What the figures depend on: processor, memory, file system, system, versions."""
    model = next((line for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "model name: ?")
    memory = next((line for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "MemTotal: 0 kB")
    return {
        "processor": model.split(":", 1)[1].strip(),
        "cores": os.cpu_count(),
        "memory_bytes": int(memory.split()[1]) * 1024,
        "file_system": _file_system(folder),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in LIBRARIES},
        "load_average_before": round(os.getloadavg()[0], 1),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _file_system(folder: Path) -> str:
    """The kind of the mount that holds ``folder``."""
    place = folder.resolve()
    mounts = [line.split()[1:3] for line in _lines("/proc/mounts")]
    holding = [(len(point), kind) for point, kind in mounts if place.is_relative_to(point)]
    return max(holding, default=(0, "?"))[1]
