"""The same pixels as plain diffusers, whatever way the weights lie and the pictures are asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import StableDiffusionXLPipeline, UNet2DConditionModel
from PIL import Image

from shardtool.generation.studio import Picture, Studio, generate_images
from shardtool.images.layers import Layers
from shardtool.images.plan import Plan, Request, plan_run
from shardtool.pipeline import BuiltPipeline, build_pipeline

STEPS = 3
NOW = datetime(2026, 12, 1, 4, 0, tzinfo=UTC)


def plain_pipeline(folder: Path, **parts: Any) -> StableDiffusionXLPipeline:
    """The referee: diffusers by itself, in fp32."""
    pipe = StableDiffusionXLPipeline.from_pretrained(folder, dtype=torch.float32, **parts)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def plain_image(pipe: Any, prompt: str, seed: int, **settings: Any) -> Image.Image:
    generator = torch.Generator("cpu").manual_seed(seed)
    image = pipe(prompt, num_inference_steps=STEPS, generator=generator, **settings).images[0]
    assert isinstance(image, Image.Image)
    return image


def planned(**options: Any) -> Plan:
    options = {"steps": STEPS, "device": "cpu", **options}
    return plan_run(Request.read(Layers(options), lambda: b""), now=NOW)


def pictures(built: BuiltPipeline, **options: Any) -> list[Picture]:
    """Made in this process, with the model that is already built."""
    made: list[Picture] = []
    generate_images(Studio(built), planned(**options).jobs, made.append)
    return made


@pytest.fixture(scope="module")
def sharded_unet(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's UNet as diffusers shards it."""
    folder = tmp_path_factory.mktemp("sharded") / "unet"
    UNet2DConditionModel.from_pretrained(demo / "unet", dtype=torch.float16).save_pretrained(
        folder, max_shard_size="1MB"
    )
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


@pytest.fixture(scope="module")
def built(demo: Path) -> Iterator[BuiltPipeline]:
    yield build_pipeline(demo, device="cpu")


@pytest.fixture(scope="module")
def plain(demo: Path) -> StableDiffusionXLPipeline:
    return plain_pipeline(demo)


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
        ({"negative_prompt": "cat", "negative_prompt_2": "fox"}, {"negative_prompt": "cat", "negative_prompt_2": "fox"}),
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
