"""Where images go."""

from __future__ import annotations

import string
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.errors import RefusedError, UsageError
from shardtool.images.outputs import FIELDS, Target, name_images, refuse_existing, slug
from shardtool.images.settings import Settings

NOW = datetime(2026, 12, 1, 4, 5, 6, tzinfo=UTC)
DOG = Settings("a dog", width=64, height=96, steps=20, guidance=7.5)


def names(target: Target, *seeds: int, settings: Settings = DOG) -> list[str]:
    return [str(path) for path in name_images(target, [(seed, settings) for seed in seeds], "org/model", NOW)]


def test_a_file_is_itself_and_several_are_numbered() -> None:
    assert names(Target("x/dog.png"), 7) == ["x/dog.png"]
    assert names(Target("dog.png"), 7, 8) == ["dog-1.png", "dog-2.png"]
    assert names(Target("dog.png"), *range(10))[0] == "dog-01.png"
    assert names(Target("dog.jpeg"), 7) == ["dog.jpeg"]


def test_a_folder_and_the_default_take_prompt_and_seed(tmp_path: Path) -> None:
    assert names(Target(None), 7) == ["a-dog-7.png"]
    assert names(Target("new/"), 7) == ["new/a-dog-7.png"]
    braces = tmp_path / "{x}"
    braces.mkdir()
    assert names(Target(str(braces)), 7) == [f"{braces}/a-dog-7.png"]


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{prompt}_{seed}", "a-dog_7.png"),
        ("{index:04}", "0001.png"),
        ("{model}/{w}x{h}", "org-model/64x96.png"),
        ("{width}x{height}", "64x96.png"),
        ("{steps}-{guidance}-{scheduler}.webp", "20-7.5-default.webp"),
        ("{date}/{time}", "2026-12-01/040506.png"),
        ("{{x}}-{seed}", "{x}-7.png"),
    ],
)
def test_every_field_of_a_template(template: str, name: str) -> None:
    assert names(Target(template), 7) == [name]


def test_the_hash_differs_with_the_settings() -> None:
    (one,) = names(Target("{hash}"), 7)
    (other,) = names(Target("{hash}"), 7, settings=Settings("a dog", steps=21))
    assert one != other
    assert names(Target("{hash}"), 7) == [one]


def test_every_field_is_known_to_the_template(tmp_path: Path) -> None:
    assert names(Target(str(tmp_path / "-".join(f"{{{field}}}" for field in FIELDS))), 7)


def test_two_images_never_get_one_name() -> None:
    made = names(Target("{prompt}"), 7, 8, 9)
    assert made == ["a-dog.png", "a-dog-2.png", "a-dog-3.png"]


def test_the_format_is_the_suffixs_or_the_option() -> None:
    assert Target("a.webp").image_format == "webp"
    assert Target("a.JPG").image_format == "jpg"
    assert names(Target(None, format="webp"), 7) == ["a-dog-7.webp"]
    assert Target("-").image_format == "png"


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ({"output": "a.gif"}, "format_invalid"),
        ({"output": "a.png", "format": "jpg"}, "contradiction"),
        ({"output": "-", "format": "jpg"}, "format_invalid"),
        ({"overwrite": True, "skip_existing": True}, "contradiction"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(target: dict[str, object], code: str) -> None:
    with pytest.raises(UsageError) as error:
        Target(**target)  # type: ignore[arg-type]
    assert error.value.code == code


@pytest.mark.parametrize("template", ["{colour}", "{seed!r}", "{seed:>9}", "{", "}", "{}", "{seed.real}"])
def test_a_bad_template_is_a_usage_error(template: str) -> None:
    with pytest.raises(UsageError) as error:
        names(Target(template), 7)
    assert error.value.code == "template_invalid"


def test_standard_output_takes_one_image() -> None:
    assert name_images(Target("-"), [(7, DOG)], "m", NOW) == (None,)
    with pytest.raises(UsageError):
        name_images(Target("-"), [(7, DOG), (8, DOG)], "m", NOW)


def test_what_is_there_is_refused_a_dangling_link_too(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    (tmp_path / "b.png").symlink_to(tmp_path / "nowhere")
    refuse_existing([tmp_path / "c.png"])
    with pytest.raises(RefusedError, match=r"a\.png exists \(and 1 more\)"):
        refuse_existing([tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.png"])


@settings(deadline=None, max_examples=100)
@given(st.text())
def test_a_slug_stays_in_its_folder(text: str) -> None:
    made = slug(text)
    assert made
    assert len(made.encode()) <= 60
    assert not set(made) & set(string.punctuation.replace("-", "") + string.whitespace + "\0")
    assert Path(made).name == made
