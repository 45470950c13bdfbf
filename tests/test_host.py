"""The host without torch: memory within a container's limits, as the kernel's files tell it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shardtool.host import cpu_has_bf16, local_rank, read_memory, read_usage, seconds_since_start

MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n"


def tree(root: Path, **files: str) -> Path:
    """Files under ``root``; ``__`` in a name is ``/``."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_a_limit_it_is_the_machines(tmp_path: Path) -> None:
    memory = read_memory(tree(tmp_path, proc__meminfo=MEMINFO))
    assert (memory.total, memory.free) == (1000 * 1024, 600 * 1024)


def test_a_limit_of_cgroup_v2_counts_and_droppable_cache_is_free(tmp_path: Path) -> None:
    tree(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/box/inner\n")
    group = tmp_path / "sys/fs/cgroup/box"
    (group / "inner").mkdir(parents=True)
    (group / "memory.max").write_text("500000\n")
    (group / "memory.current").write_text("300000\n")
    (group / "memory.stat").write_text("anon 1\ninactive_file 100000\nactive_file 50000\n")
    (group / "inner" / "memory.max").write_text("max\n")
    (group / "inner" / "memory.current").write_text("1\n")
    memory = read_memory(tmp_path)
    assert (memory.total, memory.free) == (500000, 500000 - 150000)


def test_a_limit_of_cgroup_v1_counts_and_its_huge_number_does_not(tmp_path: Path) -> None:
    tree(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="3:cpu:/\n4:memory:/box\n")
    top = tmp_path / "sys/fs/cgroup/memory"
    (top / "box").mkdir(parents=True)
    (top / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (top / "memory.usage_in_bytes").write_text("5\n")
    (top / "box" / "memory.limit_in_bytes").write_text("400000\n")
    (top / "box" / "memory.usage_in_bytes").write_text("390000\n")
    memory = read_memory(tmp_path)
    assert (memory.total, memory.free) == (400000, 10000)


def test_in_a_container_the_limit_is_at_the_top_of_the_mount(tmp_path: Path) -> None:
    tree(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/../../host/path\n")
    top = tmp_path / "sys/fs/cgroup"
    top.mkdir(parents=True)
    (top / "memory.max").write_text("300000\n")
    (top / "memory.current").write_text("0\n")
    assert read_memory(tmp_path).total == 300000


@pytest.mark.parametrize(
    ("line", "has"),
    [
        ("flags\t\t: fpu avx2 avx512_bf16 sse", True),
        ("flags\t\t: fpu amx_bf16", True),
        ("Features\t: fp asimd bf16", True),
        ("flags\t\t: fpu avx2 avx512f", False),
        ("", False),
    ],
)
def test_bf16_is_told_from_the_flags(tmp_path: Path, line: str, *, has: bool) -> None:
    assert cpu_has_bf16(tree(tmp_path, proc__cpuinfo=f"processor\t: 0\n{line}\n")) is has


def test_a_process_of_a_launch_knows_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert local_rank() is None
    monkeypatch.setenv("RANK", "11")
    assert local_rank() == 3
    monkeypatch.delenv("LOCAL_RANK")
    assert local_rank() is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_usage_sees_new_memory() -> None:
    """In a process of its own, so that nothing else allocates meanwhile."""
    program = (
        "from shardtool.host import read_usage, seconds_since_start\n"
        "before = read_usage()\n"
        "block = bytearray(50_000_000)\n"
        "after = read_usage()\n"
        "assert after.anonymous - before.anonymous > 45_000_000\n"
        "assert after.peak >= after.anonymous\n"
        "assert 0 <= seconds_since_start() < 60\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_this_machine_is_read() -> None:
    memory = read_memory()
    assert 0 < memory.free <= memory.total
    assert read_usage().peak > 0
    assert seconds_since_start() is not None
