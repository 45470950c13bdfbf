"""The worst cases in a process of their own, with little memory and little time: what is refused costs nothing."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpus import config_cases, header_cases, index_cases, pickle_cases, shard_cases
from tests.corpus.case import SENTINEL, Case, raw_file

ROOT = Path(__file__).parent.parent.parent
BASE = 128 << 20
"""Bytes of address space for Python, Typer and Rich themselves, which take about 90 MB."""

WORST = {
    "length-above-the-limit-in-a-giant",
    "header-shape-100000-huge-sides",
    "index-of-100-MB",
    "index-is-pipe",
    "shard-is-pipe",
    "shard-is-dev-zero",
    "config-ten-million-layers",
    "pickle-as-safetensors-packed",
}
CASES = [
    case
    for group in (header_cases, index_cases, shard_cases, config_cases, pickle_cases)
    for case in group.CASES
    if case.name in WORST
]


def verify(source: Path, *, memory: int) -> subprocess.CompletedProcess[str]:
    """`verify --structure` with at most ``memory`` bytes of address space and five seconds of CPU time."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (5, 5))

    command = [sys.executable, "-m", "cli", "verify", str(source), "--structure"]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ, preexec_fn=limit, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_worst_is_refused_within_bounds(case: Case, tmp_path: Path) -> None:
    done = verify(case.make(tmp_path), memory=BASE + (64 << 20))
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / SENTINEL).exists()


def test_all_of_the_worst_are_there() -> None:
    assert {case.name for case in CASES} == WORST


def test_memory_grows_with_the_header_alone(tmp_path: Path) -> None:
    """A header of 4 MB with 40,000 tensors in a file of 40 GB (a sparse one): 12 times the header and 64 MiB do."""
    entries = ",".join(
        f'"model.layers.{number}.some.module.weight":{{"dtype":"F32","shape":[250000],'
        f'"data_offsets":[{number * 1_000_000},{(number + 1) * 1_000_000}]}}'
        for number in range(40_000)
    )
    source = raw_file(f"{{{entries}}}", b"")(tmp_path)
    header = source.stat().st_size
    os.truncate(source, header + 40_000 * 1_000_000)
    done = verify(source, memory=BASE + 12 * header + (64 << 20))
    assert done.returncode == 0, done.stderr
    assert "40,000 tensors" in done.stdout
