"""The demo pipeline, loaded once for all tests here; a test that changes it takes ``fresh``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import UNet2DConditionModel

from shardtool.pipeline import BuiltPipeline, build_pipeline
from tests.generation.studios import plain_pipeline


@pytest.fixture(scope="session")
def built(demo: Path) -> BuiltPipeline:
    return build_pipeline(demo, device="cpu")


@pytest.fixture
def fresh(demo: Path) -> BuiltPipeline:
    return build_pipeline(demo, device="cpu")


@pytest.fixture(scope="session")
def plain(demo: Path) -> Any:
    return plain_pipeline(demo)


@pytest.fixture(scope="session")
def sharded_unet(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's UNet as diffusers shards it."""
    folder = tmp_path_factory.mktemp("sharded") / "unet"
    unet = UNet2DConditionModel.from_pretrained(demo / "unet", dtype=torch.float16)
    unet.save_pretrained(folder, max_shard_size="1MB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder
