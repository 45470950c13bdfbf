"""A finished picture made by hand, for tests of what is written into files and read back."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from PIL import Image

from shardtool.images.record import Level, Lora, Model, build_record
from shardtool.images.settings import Job, Settings

NOW = datetime(2026, 12, 1, 4, 5, 6, tzinfo=UTC)
SETTINGS = Settings(
    'a "dog", größer: 狗\nsecond line', negative_prompt="blurry", width=64, height=48, steps=20, scheduler="euler-a"
)
MODEL = Model(
    "sd_xl",
    "StableDiffusionXLPipeline",
    "/home/somebody/models/sd_xl",
    {"unet": "./shards/unet"},
    {"unet": "ab" * 32, "vae": "cd" * 32},
    (Lora("/home/somebody/loras/style.safetensors", 0.5, "ef" * 32),),
)
ENVIRONMENT: dict[str, Any] = {
    "torch": "2.13.0",
    "device": "cuda",
    "device_name": "Some GPU",
    "platform": "linux-x86_64",
}
SCHEDULER: dict[str, Any] = {
    "_class_name": "EulerAncestralDiscreteScheduler",
    "beta_start": 0.00085,
    "_use_default": [],
}


def picture() -> Image.Image:
    """64 × 48 pixels of many colours."""
    image = Image.new("RGB", (64, 48))
    image.putdata([(x * 4, y * 5, (x * y) % 256) for y in range(48) for x in range(64)])
    return image


def job(settings: Settings = SETTINGS, seed: int = 7, path: Path | None = None) -> Job:
    return Job(1, seed, settings, path)


def record(level: Level = "full", made: Job | None = None, **changes: Any) -> dict[str, Any]:
    made = made or job()
    built = build_record(
        made, MODEL, SCHEDULER, ENVIRONMENT, key="k" * 32, pixel_sha256="12" * 32, level=level, now=NOW
    )
    return {**built, **changes}
