"""The same pixels as plain diffusers, whatever way the weights lie and the pictures are asked for."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import UNet2DConditionModel

from shardtool.pipeline import BuiltPipeline, build_pipeline
from tests.generation.studios import pictures, plain_image, plain_pipeline


def test_the_same_pixels_from_diffusers_and_from_a_sharded_unet(
    demo: Path, built: BuiltPipeline, plain: Any, sharded_unet: Path
) -> None:
    """Plain diffusers, shardtool, shardtool with the sharded UNet, plain diffusers with the sharded UNet."""
    expected = plain_image(plain, "dog", 7).tobytes()
    assert pictures(built, prompts=["dog"], seed=["7"])[0].image.tobytes() == expected

    with_shards = build_pipeline(demo, overrides={"unet": sharded_unet}, device="cpu")
    assert pictures(with_shards, prompts=["dog"], seed=["7"])[0].image.tobytes() == expected

    unet = UNet2DConditionModel.from_pretrained(sharded_unet, dtype=torch.float32)
    assert plain_image(plain_pipeline(demo, unet=unet), "dog", 7).tobytes() == expected


def test_a_picture_depends_on_its_own_seed_alone(built: BuiltPipeline) -> None:
    alone = {
        (prompt, seed): pictures(built, prompts=[prompt], seed=[str(seed)])[0].pixel_sha256
        for prompt in ("dog", "cat")
        for seed in (3, 4)
    }
    assert len(set(alone.values())) == 4
    together = pictures(built, prompts=["cat", "dog"], seed=["4,3"])
    assert {(one.job.settings.prompt, one.job.seed): one.pixel_sha256 for one in together} == alone
    again = pictures(built, prompts=["dog"], seed=["3"], count=2)
    assert [one.pixel_sha256 for one in again] == [alone["dog", 3], alone["dog", 4]]


def test_the_pixel_hash_is_that_of_the_rgb_bytes(built: BuiltPipeline) -> None:
    picture = pictures(built, prompts=["dog"], seed=["7"])[0]
    assert picture.image.mode == "RGB"
    assert picture.pixel_sha256 == hashlib.sha256(picture.image.tobytes()).hexdigest()


@pytest.mark.parametrize(
    ("options", "plainly"),
    [
        ({"guidance": 2.0}, {"guidance_scale": 2.0}),
        ({"guidance": 1.0}, {"guidance_scale": 1.0}),
        ({"negative_prompt": "cat"}, {"negative_prompt": "cat"}),
        (dict.fromkeys(("negative_prompt", "negative_prompt_2"), "fox"),) * 2,
        ({"prompt_2": "a cat"}, {"prompt_2": "a cat"}),
        ({"width": 96, "height": 64}, {"width": 96, "height": 64}),
        ({"size": "64x96"}, {"width": 64, "height": 96}),
    ],
    ids=lambda value: "-".join(value),
)
def test_a_setting_means_what_it_means_to_diffusers(
    built: BuiltPipeline, plain: Any, options: dict[str, Any], plainly: dict[str, Any]
) -> None:
    picture = pictures(built, prompts=["dog"], seed=["7"], **options)[0]
    assert picture.image.tobytes() == plain_image(plain, "dog", 7, **plainly).tobytes()
    default = pictures(built, prompts=["dog"], seed=["7"])[0]
    assert picture.image.tobytes() != default.image.tobytes()
