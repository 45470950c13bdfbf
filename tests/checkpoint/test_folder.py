"""What lies in a folder, and which of it is meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardtool.checkpoint.folder import choose_weights, kind_of, read_pipeline, weights_in
from shardtool.checkpoint.names import WeightsName
from shardtool.errors import InputError
from tests.corpus.base import INDEX, SINGLE, shard_name, write_component, write_pipeline


def test_the_kind_of_a_source(tmp_path: Path, demo: Path) -> None:
    assert kind_of(demo) == "pipeline"
    assert kind_of(demo / "unet") == "component"
    assert kind_of(demo / "unet" / SINGLE) == "file"
    for path, code in ((tmp_path, "not_a_checkpoint"), (tmp_path / "nothing", "file_missing")):
        with pytest.raises(InputError) as caught:
            kind_of(path)
        assert caught.value.code == code


def test_weights_of_one_name_belong_together(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    (folder / "diffusion_pytorch_model.fp16.safetensors").touch()
    found = weights_in(folder)
    assert list(found) == [WeightsName("diffusion_pytorch_model"), WeightsName("diffusion_pytorch_model", "fp16")]
    default = found[WeightsName("diffusion_pytorch_model")]
    assert list(default) == [INDEX, *(shard_name(number) for number in (1, 2, 3))]
    assert default.single is None


@pytest.mark.parametrize(
    ("names", "variant", "code", "words"),
    [
        (["model.safetensors"], "fp16", "variant_absent", ["no fp16 variant", "present: default"]),
        (["model.fp16.safetensors"], None, "variant_absent", ["present: fp16"]),
        (["a.safetensors", "b.safetensors"], None, "ambiguous", ["a.safetensors", "b.safetensors"]),
        (["pytorch_model.bin"], None, "pickle", ["pytorch_model.bin"]),
        (["config.json"], None, "weights_missing", ["no weights"]),
    ],
)
def test_what_cannot_be_chosen_is_told_with_what_is_there(
    tmp_path: Path, names: list[str], variant: str | None, code: str, words: list[str]
) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(InputError) as caught:
        choose_weights(tmp_path, variant)
    assert caught.value.code == code
    assert all(word in caught.value.message for word in words)


@pytest.mark.parametrize(("name", "typed"), [("pytorch_model.bin", ""), ("sd.ckpt", "/sd.ckpt")])
def test_a_folder_of_pickles_is_a_component_and_what_to_type_is_told(tmp_path: Path, name: str, typed: str) -> None:
    (tmp_path / name).touch()
    assert kind_of(tmp_path) == "component"
    with pytest.raises(InputError) as caught:
        choose_weights(tmp_path)
    assert caught.value.hint == f"convert them with `shardtool shard {tmp_path}{typed} --allow-pickle`"


def test_a_single_file_of_any_name_is_chosen(tmp_path: Path) -> None:
    (tmp_path / "sdxl.safetensors").touch()
    assert choose_weights(tmp_path).single == "sdxl.safetensors"


def test_a_pipeline_is_read_without_its_absent_components(tmp_path: Path) -> None:
    found = read_pipeline(write_pipeline(tmp_path / "pipeline"))
    assert found.class_name == "StableDiffusionXLPipeline"
    assert list(found.components) == ["scheduler", "tokenizer", "unet"]
    assert found.components["unet"] == ("diffusers", "UNet2DConditionModel")
    assert found.settings == {"force_zeros_for_empty_prompt": True}
    assert found.with_weights() == ["unet"]
    assert found.custom_module is None


def test_a_pipeline_of_own_code_names_its_module(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": ["my_pipeline", "MyPipeline"]}))
    found = read_pipeline(tmp_path)
    assert (found.class_name, found.custom_module) == ("MyPipeline", "my_pipeline")


def test_a_component_that_leads_out_of_the_pipeline_is_not_entered(tmp_path: Path) -> None:
    pipeline = write_pipeline(tmp_path / "pipeline")
    (pipeline / "unet").rename(tmp_path / "outside")
    (pipeline / "unet").symlink_to(tmp_path / "outside")
    with pytest.raises(InputError) as caught:
        read_pipeline(pipeline).folder("unet")
    assert caught.value.code == "link_outside"
