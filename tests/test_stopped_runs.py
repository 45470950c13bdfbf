"""A run of ``generate`` that is interrupted or killed: what it leaves, and how the next one goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from cli.app import app

ROOT = Path(__file__).parent.parent


class Run:
    """``generate`` in a process of its own. Its events, JSON lines, go to a file: a full pipe would stop it."""

    def __init__(self, folder: Path, log: Path, *arguments: str) -> None:
        self.log = log
        typed = ["generate", *arguments, "--device", "cpu", "--progress", "json"]
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "shardtool", *typed],
                cwd=folder,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )

    def wait_until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 300
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end
            time.sleep(0.02)

    def steps_done(self) -> int:
        return self.log.read_text().count('"progress", "task": "denoise"')

    def finish(self) -> tuple[int, str]:
        """The exit code, and what was said."""
        return self.process.wait(timeout=300), self.log.read_text()


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Run]]:
    """Starts runs, and ends those that a failed test leaves behind."""
    logs, runs = tmp_path_factory.mktemp("logs"), []

    def begin(folder: Path, *arguments: str) -> Run:
        runs.append(Run(folder, logs / f"{len(runs)}.log", *arguments))
        return runs[-1]

    yield begin
    for run in runs:
        run.process.kill()
        run.process.wait()


def here(*arguments: str) -> Result:
    """``generate`` in this process, which has torch already."""
    return CliRunner().invoke(app, ["generate", *arguments, "--device", "cpu", "-q"])


def pixels(path: Path) -> bytes:
    with Image.open(path) as image:
        return image.tobytes()


def test_ctrl_c_leaves_nothing_half_written_and_exits_130(start: Callable[..., Run], tmp_path: Path) -> None:
    run = start(tmp_path, "dog", "-o", "dog.png", "--steps", "1000")
    run.wait_until(lambda: run.steps_done() > 2)
    run.process.send_signal(signal.SIGINT)
    code, said = run.finish()
    assert code == 130
    assert "interrupted" in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_with_keep_latents_lets_the_picture_go_on(
    start: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("dog", "--seed", "7", "--steps", "60", "--scheduler", "dpmpp-2m")
    run = start(tmp_path, *arguments, "-o", "dog.png", "--keep-latents")
    run.wait_until(lambda: run.steps_done() > 4)
    run.process.send_signal(signal.SIGINT)
    code, said = run.finish()
    assert code == 130, said
    assert "--resume dog.latents.safetensors" in said
    assert [path.name for path in tmp_path.iterdir()] == ["dog.latents.safetensors"]

    monkeypatch.chdir(tmp_path)
    mismatch = here("--resume", "dog.latents.safetensors", "--seed", "8")
    assert mismatch.exit_code == 2
    assert "these settings or this model make another picture" in mismatch.stderr
    for typed in ((*arguments, "-o", "whole.png"), ("--resume", "dog.latents.safetensors")):
        assert here(*typed).exit_code == 0
    assert pixels(tmp_path / "dog.png") == pixels(tmp_path / "whole.png")
    assert {path.name for path in tmp_path.iterdir()} == {"dog.png", "whole.png"}


def test_a_run_killed_again_and_again_yields_the_images_of_one_run(start: Callable[..., Run], tmp_path: Path) -> None:
    arguments = ("dog", "cat", "--seed", "1-6", "--steps", "20", "--skip-existing")

    def there() -> int:
        return len(list((tmp_path / "killed").glob("*.png")))

    for killed_at in (3, 7):
        run = start(tmp_path, *arguments, "-o", "killed/")
        run.wait_until(lambda number=killed_at: there() >= number)  # type: ignore[misc]
        run.process.kill()
        run.process.wait()
    assert 7 <= there() < 12
    for folder in ("killed/", "whole/"):
        last = here(*arguments, "-o", f"{tmp_path}/{folder}")
        assert last.exit_code == 0, last.output
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == names
    images = [name for name in names if name.endswith(".png")]
    assert len(images) == 12
    for name in images:
        assert pixels(tmp_path / "killed" / name) == pixels(tmp_path / "whole" / name)
