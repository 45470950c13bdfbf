"""What a replay takes from an image, and how the result is judged."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from shardtool.errors import InputError, ShardtoolError, UsageError
from shardtool.images.files import encode_image
from shardtool.images.layers import Layers
from shardtool.images.replay import Expectation, Replay, judge, read_begun, read_replay
from shardtool.images.request import Request
from tests.images.records import picture, record


def saved(path: Path, made: dict[str, Any]) -> Path:
    path.write_bytes(encode_image(picture(), "png", made, "x"))
    return path


def test_an_image_gives_back_the_options_it_was_made_with(tmp_path: Path) -> None:
    options = read_replay(saved(tmp_path / "a.png", record())).options
    assert options["prompt"] == record()["settings"]["prompt"]
    assert options["seed"] == ("7",)
    assert (options["steps"], options["scheduler"], options["width"]) == (20, "euler-a", 64)
    assert (options["model"], options["unet"]) == ("/home/somebody/models/sd_xl", "./shards/unet")
    assert options["lora"] == ("/home/somebody/loras/style.safetensors:0.5",)
    assert "device" not in options  # it was made on a GPU, which may have another name here


def test_what_was_made_on_the_cpu_is_made_on_the_cpu_again_in_its_dtype(tmp_path: Path) -> None:
    made = record(environment={"device": "cpu", "dtype": "bf16"})
    options = read_replay(saved(tmp_path / "a.png", made)).options
    assert (options["device"], options["dtype"]) == ("cpu", "bf16")


def test_the_settings_of_other_tools_are_replayed(tmp_path: Path) -> None:
    chunks = PngInfo()
    chunks.add_text("parameters", "a dog\nSteps: 5, Sampler: Euler a, CFG scale: 4, Seed: 9, Size: 64x48")
    picture().save(tmp_path / "a.png", pnginfo=chunks)
    replay = read_replay(tmp_path / "a.png")
    assert replay.tool == "a1111"
    assert replay.options == {
        "prompt": "a dog",
        "steps": 5,
        "scheduler": "euler-a",
        "guidance": 4.0,
        "seed": ("9",),
        "width": 64,
        "height": 48,
    }


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, *above: Any) -> Iterator[tuple[Any, ...]]:
    """Every place in a record, as the keys that lead to it."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        yield (*above, key)
        yield from places(item, *above, key)


def with_junk(value: Any, place: tuple[Any, ...], junk: Any) -> Any:
    if not place:
        return junk
    changed = copy.copy(value)
    changed[place[0]] = with_junk(value[place[0]], place[1:], junk)
    return changed


MADE = json.loads(json.dumps(record()))


@settings(deadline=None)
@given(st.lists(st.sampled_from(list(places(MADE))), min_size=1, max_size=2, unique=True), JUNK)
def test_whatever_stands_in_a_record_is_an_option_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, where: list[tuple[Any, ...]], junk: Any
) -> None:
    folder = tmp_path_factory.getbasetemp()
    changed = MADE
    for place in where:
        with suppress(LookupError, TypeError):  # the first change took the second's place away
            changed = with_junk(changed, place, junk)
    (folder / "a.json").write_text(json.dumps(changed))
    with suppress(UnicodeEncodeError):  # half a surrogate pair is nothing that a PNG could hold
        saved(folder / "a.png", changed)
    for path in (folder / "a.json", folder / "a.png"):
        with suppress(ShardtoolError):
            Request.read(Layers({}, read_replay(path).options), lambda: b"")


def test_an_image_that_says_nothing_cannot_be_replayed(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    with pytest.raises(InputError) as error:
        read_replay(tmp_path / "a.png")
    assert error.value.code == "record_missing"
    (tmp_path / "a.json").write_text('{"schema": "something/1"}')
    with pytest.raises(InputError):
        read_replay(tmp_path / "a.json")


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"\x02\0\0\0\0\0\0\0{}"])
def test_a_file_without_latents_cannot_be_resumed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "l.safetensors").write_bytes(content)
    with pytest.raises(InputError):
        read_begun(tmp_path / "l.safetensors")


@pytest.mark.parametrize(("text", "psnr"), [("same", None), ("close", 30.0), ("close:41.5", 41.5)])
def test_expectations(text: str, psnr: float | None) -> None:
    assert Expectation.parse(text) == Expectation(psnr)


@pytest.mark.parametrize("text", ["", "equal", "close:", "close:x", "close:-1", "close:nan", "same:30"])
def test_other_words_are_no_expectation(text: str) -> None:
    with pytest.raises(UsageError):
        Expectation.parse(text)


def shifted(by: int) -> Image.Image:
    return picture().point(lambda value: min(255, value + by))


def test_psnr_is_what_it_is_defined_as(tmp_path: Path) -> None:
    replay = Replay(tmp_path / "a.png", {}, None, saved(tmp_path / "a.png", record()))
    before, after = picture().tobytes(), shifted(3).tobytes()
    error = sum((a - b) ** 2 for a, b in zip(before, after, strict=True)) / len(before)
    verdict = judge(replay, shifted(3), record(), None)
    assert verdict.psnr == pytest.approx(10 * math.log10(255**2 / error))
    assert not verdict.same


def test_same_means_the_same_pixels_and_close_a_psnr(tmp_path: Path) -> None:
    import hashlib

    def hashed(image: Image.Image) -> dict[str, Any]:
        return record(pixel_sha256=hashlib.sha256(image.tobytes()).hexdigest())

    before = hashed(picture())
    replay = Replay(tmp_path / "a.png", {}, before, saved(tmp_path / "a.png", before))
    assert judge(replay, picture(), before, Expectation()).met
    near = hashed(shifted(1))
    assert not judge(replay, shifted(1), near, Expectation()).met
    assert judge(replay, shifted(1), near, Expectation(40.0)).met
    assert not judge(replay, shifted(99), hashed(shifted(99)), Expectation(40.0)).met
    assert judge(replay, Image.new("RGB", (8, 8)), near, Expectation(1.0)).psnr == 0.0


def test_a_changed_environment_is_named(tmp_path: Path) -> None:
    before = record()
    after = record(environment={**before["environment"], "torch": "2.14.0", "extra": 1})
    verdict = judge(Replay(tmp_path, {}, before), picture(), after, None)
    assert verdict.differences == (("environment.torch", "2.13.0", "2.14.0"),)
    assert verdict.as_json()["differences"] == [{"what": "environment.torch", "was": "2.13.0", "is": "2.14.0"}]
