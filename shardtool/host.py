"""The host, without torch: main memory within a container's limits, the CPU's instructions, this process's use."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

_CGROUP2 = Path("/sys/fs/cgroup")
_CGROUP1 = Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True)
class MainMemory:
    """Bytes: ``total`` that this process may use, and ``free`` of it now, file cache that can be dropped included."""

    total: int
    free: int


def read_memory(root: Path = Path("/")) -> MainMemory:
    """The machine's memory, or the limit of the container (cgroup v1 or v2) where that is less.

    ``root`` is where ``proc`` and ``sys`` are mounted.
    """
    total, free = _machine_memory(root)
    for limit, used in _cgroup_limits(root):
        total = min(total, limit)
        free = min(free, max(limit - used, 0))
    return MainMemory(total, free)


def _machine_memory(root: Path) -> tuple[int, int]:
    meminfo = _key_values(root / "proc/meminfo")
    if "MemTotal:" in meminfo:
        total = meminfo["MemTotal:"] * 1024
        return total, meminfo.get("MemAvailable:", meminfo["MemTotal:"]) * 1024
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        total = os.sysconf("SC_PHYS_PAGES") * page
    except (AttributeError, ValueError, OSError):  # Windows, or a system that does not say
        return sys.maxsize, sys.maxsize
    try:
        return total, os.sysconf("SC_AVPHYS_PAGES") * page
    except ValueError:  # macOS has no figure for what can be made free
        return total, total


def _cgroup_limits(root: Path) -> list[tuple[int, int]]:
    """(limit, used) for this process's group and each group above it that has a limit; droppable cache is not used."""
    found = []
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, limit_name, used_name = _CGROUP2, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top, limit_name, used_name = _CGROUP1, "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        top = root / top.relative_to("/")
        group = top / path.lstrip("/")
        # In a container the path may be the host's, while the mount shows the container's own group at its top.
        for folder in (group, *group.parents) if group.is_dir() else (top,):
            limit, used = _number(folder / limit_name), _number(folder / used_name)
            if limit is not None and used is not None and limit < 2**60:  # v1 says "none" with a huge number
                stat = _key_values(folder / "memory.stat")
                found.append((limit, used - min(used, stat.get("inactive_file", 0) + stat.get("active_file", 0))))
            if folder == top:
                break
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)[:1])
    return int(text) if text.isdigit() else None


def _key_values(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in _lines(path))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) >= 2 and pair[1].isdigit()}


_BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}
"""How /proc/cpuinfo calls instructions that multiply in bf16: on x86 the first two, on ARM the last."""


def cpu_has_bf16(root: Path = Path("/")) -> bool:
    """Whether the CPU multiplies in bf16; ``False`` where the system does not say."""
    flags = next((line for line in _lines(root / "proc/cpuinfo") if line.startswith(("flags", "Features"))), "")
    return not _BF16_FLAGS.isdisjoint(flags.split())


def local_rank() -> int | None:
    """This process's number among those of a launch on this machine, as ``torchrun`` and ``accelerate`` set it."""
    rank = os.environ.get("LOCAL_RANK", "")
    return int(rank) if rank.isdigit() and "RANK" in os.environ else None


def seconds_since_start() -> float | None:
    """How long ago this process was started, interpreter included; ``None`` where the system does not say."""
    stat = "".join(_lines(Path("/proc/self/stat")))
    uptime = "".join(_lines(Path("/proc/uptime")))
    if not stat or not uptime:
        return None
    started = int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return max(float(uptime.split()[0]) - started, 0.0)


@dataclass(frozen=True)
class Usage:
    """What this process holds, in bytes: ``anonymous`` is its own memory, ``mapped`` pages of files it has mapped.

    ``peak`` is the most that both together ever were.
    """

    anonymous: int
    mapped: int
    peak: int


def read_usage() -> Usage:
    """What the process uses now. Zeros where the system does not say (only Linux tells the two apart)."""
    status = _key_values(Path("/proc/self/status"))
    return Usage(
        status.get("RssAnon:", 0) * 1024,
        (status.get("RssFile:", 0) + status.get("RssShmem:", 0)) * 1024,
        status.get("VmHWM:", 0) * 1024,
    )
