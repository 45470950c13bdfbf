"""Settings out of images: two independent readers take ours, and files in others' forms are read here."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from sd_parsers import ParserManager
from sd_prompt_reader.image_data_reader import ImageDataReader
from typer.testing import CliRunner

from cli.app import app
from shardtool.checkpoint.strict_json import MAX_DEPTH
from shardtool.errors import InputError
from shardtool.images.files import encode_image
from shardtool.images.inputs import read_image
from shardtool.images.parameters import parse_parameters, write_parameters
from shardtool.images.reading import read_settings
from shardtool.images.record import SCHEMA
from shardtool.images.settings import Settings
from tests.images.records import MODEL, job, picture, record

PLAIN = Settings("a dog, on the grass", negative_prompt="blurry, dark", width=64, height=48, steps=20, guidance=7.5)


def png(path: Path, **texts: str) -> Path:
    chunks = PngInfo()
    for key, text in texts.items():
        chunks.add_text(key.replace("__", "-"), text)
    picture().save(path, pnginfo=chunks)
    return path


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    made = job(PLAIN, seed=7)
    path = tmp_path / "ours.png"
    parameters = write_parameters(made, MODEL, "EulerDiscreteScheduler")
    path.write_bytes(encode_image(picture(), "png", record(made=made), parameters))
    return path


def test_sd_parsers_reads_what_is_written_here(ours: Path) -> None:
    found = ParserManager().parse(ours)
    assert found is not None
    assert [prompt.value for prompt in found.prompts] == ["a dog", "on the grass"] or "a dog" in str(found.prompts)
    assert "blurry" in str(found.negative_prompts)
    (sampler,) = found.samplers
    assert sampler.name == "Euler"
    assert {key: str(value) for key, value in sampler.parameters.items()} == {
        "cfg_scale": "7.5",
        "seed": "7",
        "steps": "20",
    }
    assert [model.name for model in found.models] == ["sd_xl"]


def test_sd_prompt_reader_reads_what_is_written_here(ours: Path) -> None:
    found = ImageDataReader(str(ours))
    assert found.positive == "a dog, on the grass"
    assert found.negative == "blurry, dark"
    assert found.parameter["seed"] == "7"
    assert found.parameter["steps"] == "20"
    assert found.parameter["size"] == "64x48"
    assert found.parameter["model"] == "sd_xl"


A1111 = (
    "masterpiece, (a dog:1.2)\nsecond line\nNegative prompt: blurry\nextra fingers\n"
    "Steps: 28, Sampler: DPM++ 2M, Schedule type: Karras, CFG scale: 6.5, Seed: 123456, Size: 832x1216, "
    'Model hash: 31e35c80fc, Model: sd_xl_base_1.0, Lora hashes: "style: aabb, other: ccdd", Version: v1.10.1'
)


def test_a1111s_text_is_read(tmp_path: Path) -> None:
    found = read_settings(png(tmp_path / "a.png", parameters=A1111))
    assert found["tool"] == "a1111"
    other = found["settings"].pop("other")
    assert found["settings"] == {
        "prompt": "masterpiece, (a dog:1.2)\nsecond line",
        "negative_prompt": "blurry\nextra fingers",
        "steps": 28,
        "scheduler": "dpmpp-2m-karras",
        "guidance": 6.5,
        "seed": 123456,
        "width": 832,
        "height": 1216,
        "model": "sd_xl_base_1.0",
    }
    assert other["Lora hashes"] == "style: aabb, other: ccdd"


def test_a1111s_text_in_a_jpeg_is_read(tmp_path: Path) -> None:
    import piexif
    import piexif.helper

    comment = piexif.helper.UserComment.dump(A1111, encoding="unicode")
    picture().save(tmp_path / "a.jpg", exif=piexif.dump({"Exif": {piexif.ExifIFD.UserComment: comment}}))
    found = read_settings(tmp_path / "a.jpg")
    assert found["tool"] == "a1111"
    assert found["settings"]["seed"] == 123456


def test_a_prompt_alone_is_a_prompt() -> None:
    assert parse_parameters("a dog: happy, blue: eyes") == {"prompt": "a dog: happy, blue: eyes", "other": {}}


def test_invokeais_metadata_are_read(tmp_path: Path) -> None:
    data = {
        "app_version": "6.9.0",
        "generation_mode": "sdxl_txt2img",
        "positive_prompt": "a dog",
        "negative_prompt": "blurry",
        "positive_style_prompt": "oil",
        "negative_style_prompt": "",
        "width": 1024,
        "height": 768,
        "seed": 42,
        "cfg_scale": 7.5,
        "steps": 30,
        "scheduler": "dpmpp_2m_k",
        "model": {"key": "…", "hash": "blake3:…", "name": "Juggernaut XL", "base": "sdxl", "type": "main"},
    }
    found = read_settings(png(tmp_path / "a.png", invokeai_metadata=json.dumps(data)))
    assert found["tool"] == "invokeai"
    assert found["settings"] == {
        "prompt": "a dog",
        "negative_prompt": "blurry",
        "prompt_2": "oil",
        "width": 1024,
        "height": 768,
        "seed": 42,
        "guidance": 7.5,
        "steps": 30,
        "scheduler": "dpmpp-2m-karras",
        "model": "Juggernaut XL",
    }


def test_invokeais_older_metadata_are_read(tmp_path: Path) -> None:
    image = {
        "prompt": [{"prompt": "a dog", "weight": 1}],
        "steps": 50,
        "cfg_scale": 7.5,
        "seed": 9,
        "sampler": "k_euler_a",
    }
    data = {"model": "stable diffusion", "model_weights": "sd-1.5", "image": {**image, "width": 512, "height": 512}}
    found = read_settings(png(tmp_path / "a.png", sd__metadata=json.dumps(data)))
    assert found["tool"] == "invokeai"
    assert found["settings"]["prompt"] == "a dog"
    assert found["settings"]["scheduler"] == "euler-a"
    assert found["settings"]["model"] == "sd-1.5"


def graph(**sampler: Any) -> dict[str, Any]:
    """ComfyUI's default workflow, with a seed node and a LoRA in the way."""
    inputs = {
        "seed": ["10", 0],
        "steps": 20,
        "cfg": 8.0,
        "sampler_name": "dpmpp_2m",
        "scheduler": "karras",
        "denoise": 1.0,
        "model": ["9", 0],
        "positive": ["6", 0],
        "negative": ["7", 0],
        "latent_image": ["5", 0],
    }
    return {
        "3": {"class_type": "KSampler", "inputs": {**inputs, **sampler}},
        "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "sd_xl.safetensors"}},
        "5": {"class_type": "EmptyLatentImage", "inputs": {"width": 832, "height": 1216, "batch_size": 1}},
        "6": {"class_type": "CLIPTextEncode", "inputs": {"text": ["11", 0], "clip": ["4", 1]}},
        "7": {"class_type": "CLIPTextEncodeSDXL", "inputs": {"text_g": "blurry", "text_l": "", "clip": ["4", 1]}},
        "9": {"class_type": "LoraLoader", "inputs": {"lora_name": "x", "model": ["4", 0], "clip": ["4", 1]}},
        "10": {"class_type": "PrimitiveInt", "inputs": {"value": 77}},
        "11": {"class_type": "PrimitiveString", "inputs": {"value": "a dog"}},
    }


def test_comfyuis_graph_is_read(tmp_path: Path) -> None:
    found = read_settings(png(tmp_path / "a.png", prompt=json.dumps(graph()), workflow="{}"))
    assert found["tool"] == "comfyui"
    assert found["settings"] == {
        "prompt": "a dog",
        "negative_prompt": "blurry",
        "seed": 77,
        "steps": 20,
        "guidance": 8.0,
        "scheduler": "dpmpp-2m-karras",
        "width": 832,
        "height": 1216,
        "model": "sd_xl.safetensors",
    }


def test_a_graph_in_a_circle_ends(tmp_path: Path) -> None:
    circle = graph(seed=["3", 0], positive=["20", 0], model=["20", 0], latent_image=["20", 0])
    circle["20"] = {"class_type": "X", "inputs": {name: ["20", 0] for name in ("conditioning", "model", "samples")}}
    found = read_settings(png(tmp_path / "a.png", prompt=json.dumps(circle)))
    assert "prompt" not in found["settings"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=25)
@given(JSON)
def test_damaged_metadata_of_any_kind_do_no_harm(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.png"
    text = json.dumps(data)
    for key in ("invokeai_metadata", "sd__metadata", "prompt", "shardtool", "parameters"):
        found = read_settings(png(path, **{key: text}))
        assert found["record"] is None
    nested = json.dumps({"1": {"class_type": "KSampler", "inputs": {"seed": data, "positive": data, "model": data}}})
    assert read_settings(png(path, prompt=nested))["tool"] == "comfyui"


@pytest.mark.parametrize(
    ("content", "code"),
    [(None, "file_missing"), (b"no image", "image_invalid"), (b"\x89PNG\r\n\x1a\n" + b"\0" * 20, "image_invalid")],
)
def test_what_is_no_image_is_an_input_error(tmp_path: Path, content: bytes | None, code: str) -> None:
    path = tmp_path / "a.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_settings(path)
    assert error.value.code == code


def test_an_image_without_metadata_has_no_settings(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    assert read_settings(tmp_path / "a.png")["tool"] is None


@pytest.mark.parametrize(
    "text",
    [
        "a" * 300_000,
        "a: " * 100_000,
        'a:"' * 100_000,
        "Steps: 1, Size: " + "9" * 5000 + "x1, Seed: " + "9" * 5000 + ", a: b",
    ],
    ids=["letters", "keys", "quotes", "digits"],
)
def test_no_text_takes_long_or_cannot_be_read(tmp_path: Path, text: str) -> None:
    """Within the time that a test may take; with the square of the text it would be many minutes."""
    assert read_settings(png(tmp_path / "a.png", parameters=f"dog\n{text}"))["tool"] == "a1111"


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["png", "jpg", "webp"]), st.data())
def test_a_damaged_image_is_read_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, kind: Any, data: st.DataObject
) -> None:
    whole = bytearray(encode_image(picture(), kind, record(), "dog\nSteps: 1, Sampler: Euler, Seed: 1"))
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=4)):
        whole[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / f"damaged.{kind}"
    path.write_bytes(whole[: data.draw(st.integers(1, len(whole)))])
    with suppress(InputError):
        read_settings(path)
    with suppress(InputError):
        read_image(path)


DEEP = "[" * 900 + "]" * 900


@pytest.mark.parametrize(
    "texts",
    [
        {"shardtool": json.dumps({"schema": SCHEMA, "settings": {"guidance": math.nan, "steps": math.inf}})},
        {"shardtool": json.dumps({"schema": SCHEMA, "settings": {"guidance": 1}}).replace("1}", "1e999}")},
        {
            "shardtool": json.dumps({"schema": SCHEMA, "settings": {}, "x": 0}).replace(
                "0}", "[" * 900 + "]" * 900 + "}"
            )
        },
        {"invokeai_metadata": json.dumps({"cfg_scale": math.inf})},
        {"invokeai_metadata": '{"steps": ' + DEEP + "}"},
        {"sd-metadata": '{"image": {"steps": NaN, "seed": -1e999}}'},
        {"prompt": '{"3": {"class_type": "KSampler", "inputs": {"cfg": Infinity, "seed": 1e999, "steps": NaN}}}'},
        {"parameters": "dog\nSteps: 1e999, CFG scale: nan, Seed: inf"},
    ],
)
def test_whatever_numbers_an_image_holds_can_be_written_as_json(tmp_path: Path, texts: dict[str, str]) -> None:
    path = png(tmp_path / "a.png", **texts)
    read_settings(path)
    ran = CliRunner().invoke(app, ["inspect", str(path), "--json"])
    assert ran.exit_code == 0, ran.output
    assert "Infinity" not in re.sub('"-?Infinity"', "", ran.stdout)
    assert json.loads(ran.stdout)["ok"]


@pytest.mark.parametrize("levels", range(MAX_DEPTH - 8, MAX_DEPTH + 2))
def test_a_record_of_any_depth_that_is_read_can_be_written_again(tmp_path: Path, levels: int) -> None:
    text = json.dumps({"schema": SCHEMA, "settings": {}, "x": 0}).replace("0}", "[" * levels + "]" * levels + "}")
    path = png(tmp_path / "a.png", shardtool=text)
    ran = CliRunner().invoke(app, ["inspect", str(path), "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["ok"]
