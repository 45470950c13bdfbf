"""What is installed: the wheel's contents, and that it runs on its own from another folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the checkout so that nothing is left in it."""
    copy = tmp_path_factory.mktemp("checkout") / "shardtool"
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "site")
    shutil.copytree(ROOT, copy, ignore=ignored)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(copy / "dist"), str(copy)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (built,) = (copy / "dist").glob("*.whl")
    return built


def test_the_wheel_holds_the_two_packages_and_the_demo_model_only(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"shardtool", "shardtool_cli"}
    for expected in (
        "shardtool/py.typed",
        "shardtool_cli/py.typed",
        "shardtool/checkpoint/header.py",
        "shardtool/demo/model_index.json",
        "shardtool/demo/LICENSE",
        "shardtool/demo/unet/diffusion_pytorch_model.safetensors",
        "shardtool/demo/tokenizer/vocab.json",
    ):
        assert expected in names


def test_the_installed_wheel_runs_from_another_folder(wheel: Path, tmp_path: Path) -> None:
    """Unpacked into an environment of its own, which sees the dependencies but not the checkout."""
    home = tmp_path / "venv"
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    dependencies = [entry for entry in Path(sysconfig.get_path("purelib")).iterdir() if not _is_ours(entry)]
    for entry in dependencies:
        (site / entry.name).symlink_to(entry)
    for arguments in (
        ["-m", "shardtool", "--version"],
        ["-c", "from shardtool_cli.start import main; main()", "--version"],
    ):
        ran = subprocess.run(
            [home / "bin" / "python", *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert ran.stdout.startswith("shardtool ")
    ran = subprocess.run(
        [home / "bin" / "python", "-m", "shardtool", "inspect", "demo"], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "StableDiffusionXLPipeline" in ran.stdout


def _is_ours(entry: Path) -> bool:
    return "shardtool" in entry.name or entry.name == "__pycache__" or entry.suffix == ".pth"


def test_the_version_stands_in_one_place_and_the_changelog_knows_it() -> None:
    import tomllib

    from shardtool import __version__

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
