"""Ctrl-C and SIGTERM: told by the exit code, without a word of Python's, and never in the middle of an import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT

SIGNALS = [signal.SIGINT, signal.SIGTERM]


def program(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_waits_for_the_end_of_an_import(signum: int, tmp_path: Path) -> None:
    inner = f"import os, signal, time\nos.kill(os.getpid(), {int(signum)})\ntime.sleep(0.3)\nwhole = True\n"
    (tmp_path / "inner.py").write_text(inner)
    (tmp_path / "outer.py").write_text("import inner\nwhole = inner.whole\n")
    ran = program(
        """
        import time
        from cli.signals import Terminated, watch
        watch()
        try:
            import outer
            assert outer.whole
            time.sleep(30)  # is interrupted, though the signal comes from another thread
        except (KeyboardInterrupt, Terminated) as error:
            print(type(error).__name__, outer.whole)
        """,
        tmp_path,
    )
    assert ran.stderr == ""
    assert ran.stdout.split() == ["KeyboardInterrupt" if signum == signal.SIGINT else "Terminated", "True"]


def test_an_import_that_hangs_can_be_left(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text("import os, time\nos.kill(os.getpid(), 2)\ntime.sleep(60)\n")
    ran = program(
        """
        from cli import signals
        signals._PATIENCE = 0.5
        signals.watch()
        try:
            import hangs
        except KeyboardInterrupt:
            print("left")
        """,
        tmp_path,
    )
    assert (ran.stdout, ran.stderr) == ("left\n", "")


@pytest.mark.parametrize("signum", SIGNALS)
@pytest.mark.parametrize("delay", [0.3, 0.6, 1.2, 2.5])
def test_whenever_it_comes_nothing_is_said_but_that(signum: int, delay: float, tmp_path: Path) -> None:
    """From the first import to the last line; where exactly it hits depends on the machine, what holds does not."""
    command = [
        sys.executable,
        "-m",
        "cli",
        "generate",
        "dog",
        "--seed",
        "1",
        "--steps",
        "30",
        "-o",
        str(tmp_path / "x/"),
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        time.sleep(delay)
        process.send_signal(signum)
        _, said = process.communicate(timeout=60)
    assert process.returncode in (0, 128 + signum, -signum), said
    assert "Traceback" not in said and "bug" not in said, said
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")], "half-written"


@pytest.mark.parametrize("more", [["--digests"], ["--dtype", "bf16"]])
@pytest.mark.parametrize("delay", [0.4, 0.7])
def test_writing_ends_cleanly(more: list[str], delay: float, tmp_path: Path, large: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "cli", "shard", str(large), "-o", str(out), "--max-size", "20MB", *more]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(delay)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode in (0, 143), said
    assert "Traceback" not in said, said
    assert [path.name for path in tmp_path.iterdir()] in ([], ["out"])
    assert out.exists() == (process.returncode == 0)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import numpy
    from safetensors.numpy import save_file

    path = tmp_path_factory.mktemp("large") / "large.safetensors"
    save_file({f"layer.{number}": numpy.zeros((1024, 5120), numpy.float16) for number in range(20)}, path)
    return path
