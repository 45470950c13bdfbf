"""Two processes with torchrun and gloo on the CPU: the same pixels as one, and one of them speaks for both."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from PIL import Image
from typer.testing import CliRunner

from cli.app import app
from shardtool.generation import processes
from shardtool.images.ledger import Ledger

ROOT = Path(__file__).parent.parent
WORK = ["generate", "dog", "cat", "fox", "--seed", "3", "--steps", "2", "--device", "cpu", "--json"]


LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def launched(folder: Path, *program: str) -> subprocess.CompletedProcess[str]:
    """``torchrun`` with two processes of ``program``."""
    return subprocess.run(
        [*LAUNCH, *program], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )


def pixels(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(folder.glob("*-3.png")):
        with Image.open(path) as image:
            found[path.name] = image.tobytes()
    return found


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("two")
    ran = launched(folder, "-m", "shardtool", *WORK, "-o", "two/", "--grid", "--gallery", "--progress", "json")
    assert ran.returncode == 0, ran.stderr
    return folder, ran


def test_two_processes_make_the_same_pixels_as_one(two: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = two
    alone = CliRunner().invoke(app, [*WORK, "-o", f"{folder}/one/", "-q"])
    assert alone.exit_code == 0, alone.output
    assert pixels(folder / "two") == pixels(folder / "one")
    assert len(pixels(folder / "two")) == 3


def test_the_first_process_speaks_for_both(two: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """One document with every image on stdout, the steps of both in the progress, one ledger, grid and gallery."""
    folder, ran = two
    images = json.loads(ran.stdout)["data"]["images"]
    assert [(image["index"], image["status"]) for image in images] == [(1, "made"), (2, "made"), (3, "made")]
    events = [json.loads(line) for line in ran.stderr.splitlines() if line.startswith('{"event"')]
    assert next(event["total"] for event in events if event.get("task") == "denoise" and "total" in event) == 6
    assert max(event["done"] for event in events if event.get("task") == "denoise" and "done" in event) == 6
    assert {entry.path for entry in Ledger(folder / "two").read().values()} == {"dog-3.png", "cat-3.png", "fox-3.png"}
    assert (folder / "two" / "grid.png").exists()
    assert (folder / "two" / "gallery.html").read_text().count("<figure") == 3


def test_what_two_processes_left_undone_one_goes_on_with(two: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = two
    (folder / "two" / "cat-3.png").unlink()
    again = CliRunner().invoke(app, [*WORK, "-o", f"{folder}/two/", "-q", "--skip-existing"])
    assert again.exit_code == 0, again.output
    statuses = [image["status"] for image in json.loads(again.stdout)["data"]["images"]]
    assert statuses == ["skipped", "made", "skipped"]


def test_the_first_process_decides_what_is_left_to_do(
    two: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """On a shared disk one may see what another does not see yet; here each looks into a folder of its own."""
    folder, _ = two
    for rank, there in enumerate((["fox-3.png"], [])):
        (tmp_path / str(rank) / "out").mkdir(parents=True)
        for name in there:
            shutil.copy(folder / "two" / name, tmp_path / str(rank) / "out")
    (tmp_path / "start.py").write_text(
        "import os, runpy\nos.chdir(os.environ['RANK'])\nrunpy.run_module('shardtool', run_name='__main__')\n"
    )
    ran = launched(tmp_path, "start.py", *WORK, "-o", "out/", "--skip-existing")
    assert ran.returncode == 0, ran.stderr
    images = json.loads(ran.stdout)["data"]["images"]
    assert [image["status"] for image in images] == ["made", "made", "skipped"]


def test_a_killed_launch_goes_on_by_its_ledger(tmp_path: Path) -> None:
    """The images say nothing of themselves; each process adds its own to the ledger when they are there."""
    work = [*WORK, "--steps", "20", "--count", "4", "--metadata", "none", "-o", f"{tmp_path}/out/", "--skip-existing"]
    with (tmp_path / "log").open("wb") as log:
        launch = subprocess.Popen([*LAUNCH, "-m", "shardtool", *work], env=ENVIRONMENT, stdout=log, stderr=log)
    end = time.monotonic() + 300
    while len(Ledger(tmp_path / "out").read()) < 4:
        assert launch.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < end
        time.sleep(0.02)
    second = psutil.Process(launch.pid).children()[1]
    second.kill()
    assert launch.wait(timeout=300) != 0
    there = {path.name for path in tmp_path.glob("out/*.png")}
    assert 4 <= len(there) < 12
    assert {entry.path for entry in Ledger(tmp_path / "out").read().values()} >= there
    again = CliRunner().invoke(app, [*work, "-q"])
    assert again.exit_code == 0, again.output
    statuses = [image["status"] for image in json.loads(again.stdout)["data"]["images"]]
    assert (statuses.count("skipped"), statuses.count("made")) == (len(there), 12 - len(there))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"MASTER_ADDR": ""}, False),
        ({"MASTER_PORT": "x"}, False),
        ({"RANK": "x"}, False),
        ({"RANK": "5"}, False),
        ({"WORLD_SIZE": "²"}, False),
        ({"WORLD_SIZE": "-2"}, False),
        ({"WORLD_SIZE": "99999999999999999999"}, False),
        ({"WORLD_SIZE": "1", "RANK": "0"}, False),
    ],
)
def test_what_a_cluster_leaves_in_the_environment_is_no_launch(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], *, expected: bool
) -> None:
    launch = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in {**launch, **changes}.items():
        monkeypatch.setenv(name, value)
    assert processes.launched() is expected


def test_modules_in_the_folder_it_is_started_in_are_not_imported(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("print('imported')\n")
    command = [sys.executable, "-m", "shardtool", "--version"]
    ran = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.partition(" ")[0]) == (0, "shardtool"), ran.stderr
