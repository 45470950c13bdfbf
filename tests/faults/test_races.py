"""Runs that meet: two on one target, signals at any moment, a source that changes under a run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shardtool.checkpoint.plan import Split
from shardtool.checkpoint.selection import Choice
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import Manner, write_job
from shardtool.errors import InputError
from shardtool.events import Advanced, Event
from tests.checkpoint.referee import read_folder, tree_sums
from tests.checkpoint.test_shard import STEM, component, some_tensors
from tests.faults.conftest import Zygote


@pytest.mark.parametrize("rounds", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_two_runs_on_one_target(place: Path, rounds: int) -> None:
    """One wins whole; the other is refused at once, naming the first, or comes later and finds its result."""
    one, two = component(place / "one", some_tensors(seed=1)), component(place / "two", some_tensors(seed=2))
    for round_ in range(rounds):
        target = place / f"out{round_}"
        argv = [sys.executable, "-m", "cli", "shard", "-o", str(target), "--max-size", "80KB", "--progress", "plain"]
        runs = [
            subprocess.Popen([*argv, str(source)], stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL)
            for source in (one, two)
        ]
        printed = [run.communicate()[1] for run in runs]
        assert sorted(run.returncode for run in runs) == [0, 4], printed
        loser = printed[[run.returncode for run in runs].index(4)]
        assert "is writing to it" in loser or "is a folder with files in it" in loser
        winner = some_tensors(seed=1 if runs[0].returncode == 0 else 2)
        assert read_folder(target) == winner
    assert {path.name for path in place.iterdir()} == {"one", "two", *(f"out{n}" for n in range(rounds))}


@pytest.mark.parametrize("rounds", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_two_runs_that_may_overwrite(place: Path, zygote: Zygote, rounds: int) -> None:
    """Nobody's shards are ever mixed: the target is one of the three results, whole."""
    sources = [component(place / f"s{seed}", some_tensors(seed=seed)) for seed in (1, 2)]
    target = place / "out"
    argv = ["-o", str(target), "--max-size", "80KB", "--overwrite"]
    for _ in range(rounds):
        zygote.run(["shard", str(component(place / "s0", some_tensors(seed=0))), *argv], place)
        runs = [
            subprocess.Popen([sys.executable, "-m", "cli", "shard", str(source), *argv, "-q"], stderr=subprocess.PIPE)
            for source in sources
        ]
        for run in runs:
            run.communicate()
        assert {run.returncode for run in runs} <= {0, 4}
        assert 0 in {run.returncode for run in runs}
        assert read_folder(target) in [some_tensors(seed=seed) for seed in (1, 2)]
    assert {path.name for path in place.iterdir()} == {"s0", "s1", "s2", "out"}


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("step", [0.12, pytest.param(0.01, marks=pytest.mark.slow)])
def test_signals_at_any_moment(place: Path, number: signal.Signals, expected: int, step: float) -> None:
    """Sent every few milliseconds of a run's life, twice: it ends within a second and leaves no trace."""
    source = component(place / "source", some_tensors())
    before = tree_sums(place)
    argv = [sys.executable, "-m", "cli", "shard", str(source), "-o", str(place / "out"), "--max-size", "80KB", "-q"]
    moment = 0.0
    while True:
        run = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            _, printed = run.communicate(timeout=max(moment, 0.001))
        except subprocess.TimeoutExpired:
            run.send_signal(number)
            run.send_signal(number)
            _, printed = run.communicate(timeout=20)
        if run.returncode == 0:
            assert read_folder(place / "out") == some_tensors()
            return
        # Before Python has started, nobody turns the signal into an exit code.
        assert run.returncode in (expected, -number), printed
        if (place / "out").exists():
            assert read_folder(place / "out") == some_tensors()
            shutil.rmtree(place / "out")
        assert tree_sums(place) == before
        assert [path.name for path in place.iterdir()] == ["source"]
        moment += step


@pytest.mark.parametrize("how", ["truncate", "append", "overwrite", "replace", "touch"])
def test_a_source_that_changes_while_it_is_copied(tmp_path: Path, how: str) -> None:
    """It is refused, named, and nothing is published; nor does a map of a file that shrank end the process."""
    source = component(tmp_path / "source", some_tensors(size=200_000))
    path = source / f"{STEM}.safetensors"
    job = plan_job(source, Choice(), Shape(Split(1_000_000)))
    seen = 0

    def change(event: Event) -> None:
        nonlocal seen
        if not isinstance(event, Advanced):
            return
        seen += 1
        if seen != 4:
            return
        if how == "truncate":
            os.truncate(path, 2_000_000)
        elif how == "append":
            with path.open("ab") as file:
                file.write(b"more")
        elif how == "overwrite":
            with path.open("r+b") as file:
                file.seek(6_000_000)
                file.write(b"other")
        elif how == "touch":
            path.touch()
        else:
            (tmp_path / "other").write_bytes(path.read_bytes())
            (tmp_path / "other").replace(path)

    if how == "replace":
        # The file that was opened is still there, whole: what is written is what was planned.
        write_job(job, tmp_path / "out", Manner(durable=False), on_event=change)
        assert read_folder(tmp_path / "out") == some_tensors(size=200_000)
        return
    with pytest.raises(InputError, match=r"diffusion_pytorch_model\.safetensors: (changed|ends)"):
        write_job(job, tmp_path / "out", Manner(durable=False), on_event=change)
    assert [entry.name for entry in tmp_path.iterdir()] == ["source"]
    assert seen >= 4


def test_the_lock_of_a_killed_run_holds_nobody_up(place: Path, zygote: Zygote) -> None:
    source = component(place / "source", some_tensors())
    argv = ["shard", str(source), "-o", str(place / "out"), "--max-size", "80KB"]
    code, _, _ = zygote.run(argv, place, 12, "kill")
    assert code == -9
    assert (place / ".out.shardtool-lock").exists()
    assert zygote.run(argv, place)[0] == 0
    assert {path.name for path in place.iterdir()} == {"source", "out"}


def test_threads_may_write_different_targets(place: Path) -> None:
    """Used as a library, from any thread: signals are the main thread's business."""
    source = component(place / "source", some_tensors())
    job = plan_job(source, Choice(), Shape(Split(80_000)))
    threads = [
        threading.Thread(target=write_job, args=(job, place / f"out{n}", Manner(durable=False, digests=True)))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(read_folder(place / f"out{n}") == some_tensors() for n in range(4))


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path: Path) -> None:
    """Each file and folder is synced, then renamed into place, then the parent is synced, then success is told."""
    source = component(tmp_path / "source", some_tensors())
    run = [sys.executable, "-m", "cli", "shard", str(source), "-o", str(tmp_path / "out"), "--max-size", "80KB"]
    calls = "fsync,rename,renameat,renameat2,write"
    strace = ["strace", "-f", "-y", "-e", f"trace={calls}", "-o", str(tmp_path / "trace")]
    done = subprocess.run([*strace, *run], capture_output=True, text=True)
    if "ptrace" in done.stderr.lower():
        pytest.skip(f"strace may not trace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "trace").read_text().splitlines()
    (commit,) = [n for n, line in enumerate(lines) if " rename" in line and "shardtool" in line]
    synced = [line.split("fsync(")[1].split("<")[1].split(">")[0] for line in lines[:commit] if " fsync(" in line]
    names = {Path(path).name for path in synced}
    assert {path.name for path in (tmp_path / "out").iterdir()} <= names
    assert any(name.startswith(".out.shardtool-") for name in names)
    after = [n for n, line in enumerate(lines) if n > commit and "fsync(" in line and f"<{tmp_path}>" in line]
    told = [n for n, line in enumerate(lines) if "wrote 3 weights files" in line]
    assert after
    assert told
    assert commit < after[0] < told[0]
