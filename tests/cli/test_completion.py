"""What the shell offers after Tab, from files and the Hub's cache alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.completion import complete_source
from tests.hubrepos import add_weights

COMPONENTS = ["scheduler", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2", "unet", "vae"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with weights and a Hub cache that holds one pipeline and one component."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    add_weights(tmp_path / "models" / "unet", shards=2)
    (tmp_path / "models" / "notes.txt").write_text("")
    for repo, folders in (("org--base", ["unet", "vae"]), ("org--some--unet", [])):
        snapshot = tmp_path / "home" / "hub" / f"models--{repo}" / "snapshots" / ("a" * 40)
        snapshot.mkdir(parents=True)
        (snapshot.parent.parent / "refs").mkdir()
        (snapshot.parent.parent / "refs" / "main").write_text("a" * 40)
        for folder in folders:
            (snapshot / folder).mkdir()
    return tmp_path


def test_paths_are_folders_and_weights(place: Path) -> None:
    assert complete_source("mo") == ["models/"]
    assert complete_source("models/") == ["models/unet/"]
    assert complete_source("models/unet/diff") == [
        "models/unet/diffusion_pytorch_model-00001-of-00002.safetensors",
        "models/unet/diffusion_pytorch_model-00002-of-00002.safetensors",
        "models/unet/diffusion_pytorch_model.safetensors.index.json",
    ]
    assert complete_source(f"{place}/mo") == [f"{place}/models/"]


def test_repos_of_the_cache_are_offered_with_their_folders(place: Path) -> None:
    assert complete_source("org/") == ["org/base", "org/some--unet"]
    assert complete_source("hf://org/b") == ["hf://org/base"]
    assert complete_source("org/base:") == ["org/base:unet", "org/base:vae"]
    assert complete_source("org/base:v") == ["org/base:vae"]
    assert complete_source("org/nothing:") == []


def test_demo_is_offered_with_its_components(place: Path) -> None:
    assert complete_source("") == ["demo", "home/", "models/", "org/base", "org/some--unet"]
    assert complete_source("demo:te") == ["demo:text_encoder", "demo:text_encoder_2"]


def test_what_cannot_be_completed_offers_nothing_and_fails_nowhere(place: Path) -> None:
    for text in ("nothing/here", "~nobody/x", "x" * 5000, "org/base@v1:", "a:b:c", "\udcff"):
        assert complete_source(text) == []


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("shardtool shard demo:u", ["demo:unet"]),
        ("shardtool merge mod", ["models/"]),
        ("shardtool shard demo --component te", ["text_encoder", "text_encoder_2"]),
        ("shardtool shard org/base --component ", ["unet", "vae"]),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_shell_gets_them(place: Path, line: str, offered: list[str], shell: str) -> None:
    """As the scripts ask that ``--install-completion`` installs; nothing heavy is imported for it."""
    words = line.split(" ")
    program = (
        "import json, sys\nfrom cli.app import app\n"
        "try:\n    app(prog_name='shardtool')\n"
        "finally:\n    print(json.dumps(sorted({'torch', 'numpy', 'diffusers'} & set(sys.modules))), file=sys.stderr)"
    )
    environ = {
        **os.environ,
        "HF_HOME": str(place / "home"),
        "PYTHONPATH": str(Path(__file__).parent.parent.parent),
        "_SHARDTOOL_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
    }
    ran = subprocess.run([sys.executable, "-c", program], cwd=place, env=environ, capture_output=True, text=True)
    assert json.loads(ran.stderr) == []
    got = ran.stdout.split() if shell == "bash" else re.findall(r'"(.*?)"', ran.stdout.replace("\\", ""))
    assert got == offered
