"""One small Hub, one cache and one set of processes for all tests here; each test has a repo's name of its own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hubcalls import Ask
from tests.hubrepos import STEM, add_weights
from tests.hubserver import HubServer

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def session_hub() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server


@pytest.fixture
def hub(session_hub: HubServer) -> HubServer:
    """The Hub, well and without repos."""
    session_hub.reset()
    return session_hub


@pytest.fixture(scope="session")
def ask(session_hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    asked = Ask(session_hub, tmp_path_factory.mktemp("home"))
    yield asked
    asked.close()


@pytest.fixture
def repo() -> str:
    """A name that no other test uses, as they share a cache."""
    return f"org/repo{next(_NUMBERS)}"


@pytest.fixture(scope="session")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards by default, one file as fp16, and beside them what nobody asks for."""
    folder = tmp_path_factory.mktemp("sharded")
    add_weights(folder, shards=3)
    add_weights(folder, variant="fp16")
    for name in ("README.md", f"{STEM}.bin", "extra.py", "samples/picture.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"not needed")
    return folder


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two components with weights, of which only the UNet has an fp16 variant, and two without."""
    folder = tmp_path_factory.mktemp("pipeline")
    index = {
        "_class_name": "StableDiffusionXLPipeline",
        "scheduler": ["diffusers", "EulerDiscreteScheduler"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
        "safety_checker": [None, None],
    }
    (folder / "model_index.json").write_text(json.dumps(index))
    add_weights(folder / "unet", shards=2)
    add_weights(folder / "unet", variant="fp16")
    add_weights(folder / "vae")
    (folder / "vae" / f"{STEM}.bin").write_bytes(b"pickled")
    for name in ("scheduler/scheduler_config.json", "tokenizer/tokenizer_config.json", "tokenizer/vocab.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps({"name": name}))
    (folder / "tokenizer" / "merges.txt").write_text("#version: 0.2")
    (folder / "tokenizer" / "run.py").write_text("")
    (folder / "single_file.safetensors").write_bytes(b"not needed")
    return folder
