"""Which pipeline a run uses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shardtool.errors import InputError, UsageError
from shardtool.images.model import SDXL_BASE, ModelFacts, choose_base
from shardtool.parts import read_parts
from tests.models import copied, edited

SDXL_UNET = """{"_class_name": "UNet2DConditionModel", "cross_attention_dim": 2048, "layers_per_block": 2,
 "block_out_channels": [320, 640, 1280], "transformer_layers_per_block": [1, 2, 10], "in_channels": 4,
 "out_channels": 4, "projection_class_embeddings_input_dim": 2816, "addition_time_embed_dim": 256}"""


def test_what_is_named_is_used_and_the_demo_otherwise() -> None:
    assert choose_base("x", "y", "z").source == "x"
    assert choose_base(None, None, "z").source == "z"
    nothing = choose_base(None, None, None)
    assert (nothing.source, "SHARDTOOL_MODEL" in (nothing.reason or "")) == ("demo", True)


def test_a_unet_of_a_repo_on_the_hub_takes_that_repo() -> None:
    assert choose_base(None, "org/name:unet", "z").source == "org/name"
    assert choose_base(None, "org/name@v1:unet", None).source == "org/name@v1"
    with pytest.raises(UsageError) as error:
        choose_base(None, "org/a-unet-alone", None)
    assert error.value.code == "model_needed"


def test_a_unet_of_sdxls_shape_takes_the_base_model(tmp_path: Path) -> None:
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text(SDXL_UNET)
    assert choose_base(None, str(tmp_path / "unet"), None).source == SDXL_BASE
    (tmp_path / "unet" / "config.json").write_text(SDXL_UNET.replace("2048", "1280"))
    assert choose_base(None, str(tmp_path / "unet"), "z").source == "z"
    with pytest.raises(UsageError):
        choose_base(None, str(tmp_path / "unet"), None)


def test_a_unet_in_a_pipeline_takes_the_pipeline_as_folder_or_as_file(demo: Path, tmp_path: Path) -> None:
    shutil.copytree(demo, tmp_path / "p")
    for unet in ("p/unet", "p/unet/diffusion_pytorch_model.safetensors", "p"):
        assert choose_base(None, str(tmp_path / unet), "z").source == str(tmp_path / "p")


def test_a_unet_that_is_nowhere_is_an_input_error() -> None:
    with pytest.raises(InputError):
        choose_base(None, "./nowhere", None)


def test_the_size_is_what_the_configs_say(demo: Path) -> None:
    facts = ModelFacts.of(read_parts(demo))
    assert (facts.width, facts.height, facts.multiple) == (64, 64, 8)


@pytest.mark.parametrize("sample", [0, -64, 100_000, "64", True, [64], [0, 100_000], None])
@pytest.mark.parametrize("levels", [4, 3000])
def test_a_size_that_makes_no_sense_counts_as_none(demo: Path, tmp_path: Path, sample: object, levels: int) -> None:
    """diffusers' pipelines take 128 latents where a config says nothing."""
    base = copied(demo, tmp_path / "base")
    edited(base / "unet" / "config.json", sample_size=sample)
    edited(base / "vae" / "config.json", block_out_channels=[32] * levels)
    facts = ModelFacts.of(read_parts(base))
    assert (facts.width, facts.height, facts.multiple) == (1024, 1024, 8)
