"""Pictures made in the test's own process, and plain diffusers beside them as the referee."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from diffusers import StableDiffusionXLPipeline
from PIL import Image

from shardtool.generation.series import generate_images
from shardtool.generation.studio import Picture, Studio
from shardtool.images.layers import Layers
from shardtool.images.plan import Plan, plan_run
from shardtool.images.request import Request
from shardtool.pipeline import BuiltPipeline

STEPS = 3
NOW = datetime(2026, 12, 1, 4, 0, tzinfo=UTC)


def plain_pipeline(folder: Path, **parts: Any) -> StableDiffusionXLPipeline:
    """Diffusers by itself, in fp32."""
    pipe = StableDiffusionXLPipeline.from_pretrained(folder, dtype=torch.float32, **parts)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def plain_image(pipe: Any, prompt: str, seed: int, **settings: Any) -> Image.Image:
    generator = torch.Generator("cpu").manual_seed(seed)
    settings = {"num_inference_steps": STEPS, "guidance_scale": 5.0, **settings}
    image = pipe(prompt, generator=generator, **settings).images[0]
    assert isinstance(image, Image.Image)
    return image


def planned(**options: Any) -> Plan:
    options = {"steps": STEPS, "device": "cpu", **options}
    return plan_run(Request.read(Layers(options), lambda: b""), now=NOW)


def pictures(built: BuiltPipeline, studio: Studio | None = None, **options: Any) -> list[Picture]:
    """Made with the model that is already built; ``--overwrite``, as nothing is written."""
    made: list[Picture] = []
    jobs = planned(overwrite=True, **options).jobs
    generate_images(studio or Studio(built), jobs, made.append)
    return made


def dog(built: BuiltPipeline, studio: Studio | None = None, **options: Any) -> Image.Image:
    """The picture of a dog from seed 7."""
    return pictures(built, studio, **{"prompts": ["dog"], "seed": ["7"], **options})[0].image
