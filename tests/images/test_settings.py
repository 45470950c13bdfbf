"""What a picture may be asked to be, before anything is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardtool.errors import UsageError
from shardtool.images.settings import Job, Settings

IMAGE = Path("a.png")


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"steps": 0}, "steps_invalid"),
        ({"steps": 1001}, "steps_invalid"),
        ({"guidance": -1.0}, "guidance_invalid"),
        ({"guidance": float("nan")}, "guidance_invalid"),
        ({"strength": 1.1}, "strength_invalid"),
        ({"width": 0}, "width_invalid"),
        ({"height": 99999}, "height_invalid"),
        ({"mask": IMAGE}, "mask_without_image"),
        ({"image": IMAGE, "strength": 0.01}, "strength_invalid"),
        ({"scheduler": "nonsense"}, "scheduler_invalid"),
        ({"prompt": "dog\udcff"}, "prompt_invalid"),
        ({"negative_prompt_2": "\ud83d"}, "prompt_invalid"),
    ],
)
def test_what_no_model_takes_is_a_usage_error(values: dict[str, Any], code: str) -> None:
    with pytest.raises(UsageError) as error:
        Settings(**values)
    assert error.value.code == code
    assert error.value.hint, "what to do is said too"


def test_the_task_follows_from_the_images() -> None:
    assert Settings().task == "text2img"
    assert Settings(image=IMAGE).task == "img2img"
    assert Settings(image=IMAGE, mask=IMAGE).task == "inpaint"
    assert Settings(image=IMAGE, steps=10, strength=0.5).steps_run == 5


def test_a_jobs_key_changes_with_everything_the_pixels_depend_on(tmp_path: Path) -> None:
    one, other, copy = (tmp_path / name for name in ("one.png", "other.png", "copy.png"))
    one.write_bytes(b"1")
    copy.write_bytes(b"1")
    other.write_bytes(b"2")
    job = Job(1, 7, Settings("dog", image=one), None)
    key = job.key("model")
    assert replace(job, index=2, path=Path("x")).key("model") == key
    assert replace(job, settings=Settings("dog", image=copy)).key("model") == key
    different = [
        replace(job, seed=8).key("model"),
        job.key("another model"),
        replace(job, settings=Settings("dog", image=other)).key("model"),
        replace(job, settings=Settings("dog", image=one, steps=5)).key("model"),
    ]
    assert len({key, *different}) == 5
