"""What ``verify`` costs on a checkpoint of SDXL's size: structure, fit, and reading all the data.

    python benchmarks/sdxl_unet.py /tmp/bench-unet
    python benchmarks/verify.py /tmp/bench-unet [--rounds 5] [--workers N]

Commands run in processes of their own, one after the other within a round, so that a busy machine hits all alike;
printed are medians of wall and CPU seconds over the rounds, with the range. Reading is measured in this process: all
bytes of the same files into a buffer, in the same pieces on as many threads, against ``shardtool.scan`` on them, in
turns. "warm": the files are in the page cache, the worst case for a scan; "cold": dropped from it before each turn.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from host import environment  # noqa: E402

from shardtool.checkpoint.inventory import Checkpoint, read_checkpoint  # noqa: E402
from shardtool.scan import BLOCK, PIECE, default_workers, scan  # noqa: E402


def commands(folder: Path) -> dict[str, list[str]]:
    python = [sys.executable]
    verify = [*python, "-m", "cli", "verify", str(folder), "-q", "--json"]
    return {
        "python -c pass": [*python, "-c", "pass"],
        "verify --structure": [*verify, "--structure"],
        "verify (structure and fit)": verify,
        'python -c "import diffusers"': [*python, "-c", "import diffusers"],
        'python -c "import torch"': [*python, "-c", "import torch"],
    }


def once(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    own = environment(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    subprocess.run(command, cwd=ROOT, env=own, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - start, cpu


def read_all(checkpoint: Checkpoint, workers: int) -> None:
    """All bytes of the data into buffers, and nothing else."""

    def read(fd: int, start: int, stop: int) -> None:
        buffer = np.empty(BLOCK, np.uint8)
        for offset in range(start, stop, BLOCK):
            os.preadv(fd, [buffer[: min(BLOCK, stop - offset)].data], offset)

    with ThreadPoolExecutor(workers) as pool:
        for file in checkpoint.files:
            fd = os.open(file.path, os.O_RDONLY)
            begin = file.header.data_start
            starts = range(begin, file.size, PIECE)
            list(pool.map(lambda start: read(fd, start, min(start + PIECE, file.size)), starts))  # noqa: B023
            os.close(fd)


def drop(checkpoint: Checkpoint) -> None:
    """Let the files leave the page cache."""
    for file in checkpoint.files:
        fd = os.open(file.path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def timed(function: Callable[[], object]) -> tuple[float, float]:
    cpu, start = time.process_time(), time.monotonic()
    function()
    return time.monotonic() - start, time.process_time() - cpu


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):6.2f} s ({min(values):.2f} … {max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=default_workers())
    given = parser.parse_args()
    checkpoint = read_checkpoint(given.folder)
    size = checkpoint.nbytes
    print(f"{given.folder}: {size:,} bytes, {len(checkpoint.tensors):,} tensors, {len(checkpoint.files)} files")
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {given.workers} threads, {given.rounds} rounds\n"
    )

    measured: dict[str, list[tuple[float, float]]] = {}
    for _ in range(given.rounds):
        for name, command in commands(given.folder).items():
            measured.setdefault(name, []).append(once(command))
    for name, runs in measured.items():
        print(f"{name:30} wall {shown([wall for wall, _ in runs])}   CPU {shown([cpu for _, cpu in runs])}")

    for state in ("warm", "cold"):
        turns: dict[str, list[tuple[float, float]]] = {"read": [], "scan": []}
        for _ in range(given.rounds):
            for name, act in (
                ("read", lambda: read_all(checkpoint, given.workers)),
                ("scan", lambda: scan(checkpoint, workers=given.workers)),
            ):
                if state == "cold":
                    drop(checkpoint)
                turns[name].append(timed(act))
        print()
        for name, runs in turns.items():
            best = size / min(wall for wall, _ in runs) / 1e9
            cpu = statistics.median([cpu for _, cpu in runs])
            print(f"{state} {name}: wall {shown([wall for wall, _ in runs])}, CPU {cpu:.2f} s, best {best:.1f} GB/s")
        walls = [read[0] / found[0] for read, found in zip(turns["read"], turns["scan"], strict=True)]
        cpus = [read[1] / found[1] for read, found in zip(turns["read"], turns["scan"], strict=True)]
        print(
            f"{state}: --deep at {statistics.median(walls):.2f} × the speed of reading"
            f" (CPU {statistics.median(cpus):.2f})"
        )


if __name__ == "__main__":
    main()
