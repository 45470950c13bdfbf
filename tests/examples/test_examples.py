"""Every example runs as it is, from an empty folder, and does what its first lines say. Few steps, to be quick."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.console import matches, steps

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
NOT_RUN_HERE = {"github-workflow.yml"}


def run(example: str, *arguments: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run an example in ``folder``, with this environment's programs first on the path."""
    start = [sys.executable] if example.endswith(".py") else ["bash"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ran = subprocess.run(
        [*start, str(EXAMPLES / example), *arguments],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "100", **env},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


def test_quickstart_is_what_make_demo_runs_and_prints_what_the_readme_shows(tmp_path: Path) -> None:
    ran = run("quickstart.sh", folder=tmp_path)
    assert is_png(tmp_path / "dog.png")
    (shown,) = [step.shown for step in steps(ROOT / "README.md") if step.command == "make demo"]
    assert shown
    assert matches(shown, ran.stdout), ran.stdout
    assert "examples/quickstart.sh" in (ROOT / "Makefile").read_text("utf-8")


def test_ci_release_keeps_the_picture(tmp_path: Path) -> None:
    """The golden picture is made from the source once, and the cut model then draws the same pixels."""
    run("ci_release.sh", "demo", "out/release", folder=tmp_path, STEPS="2", LIMIT="1MB")
    assert max(path.stat().st_size for path in (tmp_path / "out" / "release").rglob("*.safetensors")) <= 1_000_000
    assert is_png(tmp_path / "out" / "release.golden.png")
    assert '"whole": true' in (tmp_path / "out" / "release.verify.json").read_text("utf-8")


def test_merge_for_single_file_tools(tmp_path: Path) -> None:
    ran = run("merge_for_single_file_tools.sh", folder=tmp_path)
    assert (tmp_path / "build" / "single" / "unet.safetensors").is_file()
    assert "equal: 212 the same" in ran.stdout


def test_python_api(tmp_path: Path) -> None:
    ran = run("python_api.py", "out", folder=tmp_path)
    assert "UNet2DConditionModel on cpu" in ran.stdout
    assert is_png(tmp_path / "out" / "dog.png")


def test_batch_with_two_processes_makes_each_image_once(tmp_path: Path) -> None:
    run("batch_two_processes.sh", "out", folder=tmp_path, STEPS="2")
    pictures = [path for path in (tmp_path / "out").glob("*.png") if path.stem != "grid"]
    assert len(pictures) == 4 * 2
    assert is_png(tmp_path / "out" / "grid.png")


def test_the_workflow_is_valid_and_runs_examples_that_exist() -> None:
    workflow = yaml.safe_load((EXAMPLES / "github-workflow.yml").read_text("utf-8"))
    runs = [step["run"] for step in workflow["jobs"]["release"]["steps"] if "run" in step]
    named = [word for run in runs for word in run.split() if word.startswith("examples/")]
    assert named == ["examples/ci_release.sh"]
    assert all((ROOT / name).is_file() for name in named)


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.iterdir() if path.is_file()))
def test_every_example_is_run_by_a_test(example: str) -> None:
    assert example in NOT_RUN_HERE or f'run("{example}"' in Path(__file__).read_text("utf-8")
