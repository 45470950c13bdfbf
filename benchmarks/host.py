"""What the figures of a benchmark depend on: the machine and its versions, its memory, and a child's environment."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

LIBRARIES = ("torch", "diffusers", "transformers", "accelerate", "safetensors", "huggingface_hub")

TOUCH = """
import mmap, sys
memory = mmap.mmap(-1, int(sys.argv[1]))
memory.madvise(mmap.MADV_HUGEPAGE)
for page in range(0, len(memory), 4096):
    memory[page] = 1
"""


def settle_memory(size: int) -> None:
    """Let a process take ``size`` bytes of memory and give them back.

    A virtual machine gets memory from its host at the first touch, and the host takes back what lies free for some
    seconds. A program that happens on such memory was seen to need twice the processor time for the same copy, which
    says nothing about the program. A process of its own, as a child's peak counts what its parent held.
    """
    subprocess.run([sys.executable, "-c", TOUCH, str(size)], check=True)


def environment(**more: str) -> dict[str, str]:
    """A child's environment: with ``more``, and keeping compiled modules, as where a program is installed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **more}


def machine(folder: Path) -> dict[str, Any]:
    """What the figures depend on: processor, memory, file system, system, versions."""
    model = next((line for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "model name: ?")
    memory = next((line for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "MemTotal: 0 kB")
    return {
        "processor": model.split(":", 1)[1].strip(),
        "cores": os.cpu_count(),
        "memory_bytes": int(memory.split()[1]) * 1024,
        "file_system": _file_system(folder),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
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
