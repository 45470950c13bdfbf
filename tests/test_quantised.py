"""Quantised components: loaded by their own class, checked before and after, refused where it cannot be."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CLIPTextModel

from shardtool import build_pipeline, load_component
from shardtool.checkpoint.plan import Split
from shardtool.checkpoint.selection import Choice
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import Manner, write_job
from shardtool.dtypes import TORCH_DTYPES
from shardtool.errors import InputError, RefusedError
from shardtool.load_plan import plan_component
from shardtool.loading import load_part
from shardtool.needs import count_needs
from shardtool.part import read_component
from shardtool.placement import Request
from shardtool.verification import verify_headers
from tests.models import bitnet, copied, edited

FILE = "model.safetensors"


@pytest.fixture(scope="module")
def packed(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's text encoder in BitNet's form; the one method that needs no further package."""
    return bitnet(demo / "text_encoder", tmp_path_factory.mktemp("bitnet") / "text_encoder")


def states(model: torch.nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(torch.arange(8).reshape(1, 8)).last_hidden_state
    return found


def test_a_quantised_component_is_what_its_library_makes_of_it(packed: Path) -> None:
    loaded = load_component(packed, device="cpu", dtype="fp32")
    theirs = CLIPTextModel.from_pretrained(packed, dtype=torch.float32).eval()
    assert torch.equal(states(loaded.model), states(theirs))
    assert not loaded.model.training
    assert loaded.report.dtypes["U8"] > 0
    assert loaded.report.nbytes == sum(tensor.nbytes for tensor in load_file(packed / FILE).values())


def test_sharding_moves_packed_weights_as_they_are(packed: Path, tmp_path: Path) -> None:
    write_job(plan_job(packed, Choice(), Shape(Split(330_000))), tmp_path / "out", Manner(durable=False))
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 1
    sharded = load_component(tmp_path / "out", device="cpu", dtype="fp32")
    assert torch.equal(states(sharded.model), states(load_component(packed, device="cpu", dtype="fp32").model))


def test_missing_tensors_of_a_quantised_component_are_named(packed: Path, tmp_path: Path) -> None:
    folder = copied(packed, tmp_path / "text_encoder")
    tensors = load_file(folder / FILE)
    gone = next(name for name in tensors if name.endswith("final_layer_norm.weight"))
    save_file({name: tensor for name, tensor in tensors.items() if name != gone}, folder / FILE, {"format": "pt"})
    with pytest.raises(InputError, match="final_layer_norm") as error:
        load_component(folder, device="cpu", dtype="fp32")
    assert error.value.code == "tensor_missing"


def test_damage_is_found_before_the_quantiser_is_asked(packed: Path, tmp_path: Path) -> None:
    folder = copied(packed, tmp_path / "text_encoder")
    (folder / FILE).write_bytes((packed / FILE).read_bytes()[:-10])
    with pytest.raises(InputError) as error:
        load_component(folder, device="cpu", dtype="fp32")
    assert error.value.path == str(folder / FILE)


@pytest.mark.parametrize(
    ("method", "module", "package"),
    [
        ("torchao", "torchao", "torchao"),
        ("quanto", "optimum", "optimum-quanto"),
        ("bitsandbytes", "bitsandbytes", "bitsandbytes"),
    ],
)
def test_a_quantiser_that_is_not_installed_is_named_with_its_package(
    sd: Path, tmp_path: Path, method: str, module: str, package: str
) -> None:
    if find_spec(module) is not None:
        pytest.skip(f"{module} is installed here")
    folder = copied(sd / "unet", tmp_path / "unet")
    edited(folder / "config.json", quantization_config={"quant_method": method})
    with pytest.raises(RefusedError, match=f"quantised with {method}, which is not installed") as error:
        load_component(folder, device="cpu", dtype="fp32")
    assert error.value.hint == f"pip install {package}"


def test_a_pipeline_with_a_quantised_part_makes_pictures_and_moves(demo: Path, packed: Path) -> None:
    pipe = build_pipeline(demo, text_encoder=packed, device="cpu").pipe
    made = pipe("dog", num_inference_steps=1, output_type="np").images
    assert made.shape[-1] == 3
    pipe.to("meta")
    assert {parameter.device.type for parameter in pipe.text_encoder.parameters()} == {"meta"}


def test_only_the_weights_that_were_examined_are_loaded(packed: Path, tmp_path: Path) -> None:
    """The library would look for its own names, and follow an adapter's config to another model."""
    folder = copied(packed, tmp_path / "text_encoder")
    (folder / FILE).rename(folder / "mine.safetensors")
    save_file({"nothing": torch.zeros(1)}, folder / FILE, {"format": "pt"})
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "elsewhere"}')
    mine = load_component(folder / "mine.safetensors", device="cpu", dtype="fp32").model
    assert torch.equal(states(mine), states(load_component(packed, device="cpu", dtype="fp32").model))
    assert mine.name_or_path == str(folder)


def test_a_file_that_changed_after_its_header_was_read_is_refused(packed: Path, tmp_path: Path) -> None:
    folder = copied(packed, tmp_path / "text_encoder")
    part = read_component(folder)
    with (folder / FILE).open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\1\2\3\4")
    with pytest.raises(InputError) as error:
        load_part(part, "cpu", "fp32")
    assert error.value.code == "file_changed"


def test_packed_weights_need_what_they_take_in_the_file_and_the_plan_says_so(packed: Path) -> None:
    stored = sum(tensor.nbytes for tensor in load_file(packed / FILE).values())
    (need,) = count_needs({"text_encoder": read_component(packed)}).components
    assert {need.weight_bytes(dtype) for dtype in TORCH_DTYPES} == {stored}
    reasons = plan_component(packed, Request("cpu")).placement.reasons
    assert "weights: quantised with bitnet, its packed weights stay as stored" in reasons
    assert not any("cast" in reason for reason in reasons)


def test_old_configs_of_bitsandbytes_name_no_method(sd: Path, tmp_path: Path) -> None:
    folder = copied(sd / "unet", tmp_path / "unet")
    edited(folder / "config.json", quantization_config={"load_in_8bit": True, "quant_method": "bitnet"})
    assert read_component(folder).quantised == "bitsandbytes"


def test_the_quantisation_of_a_text_part_counts(sd: Path, tmp_path: Path) -> None:
    """transformers goes by it."""
    folder = copied(sd / "text_encoder", tmp_path / "text_encoder")
    edited(folder / "config.json", text_config={"quantization_config": {"quant_method": "fp8"}})
    with pytest.raises(RefusedError, match="is quantised with fp8, which is not loaded here"):
        load_component(folder, device="cpu")


@pytest.mark.parametrize(
    "config",
    [{"quant_method": "nobody-knows"}, {"quant_method": "nunchaku_lite"}, {"quant_method": 5}, {"x": 1}, {}, ["x"], 7],
)
def test_a_quantisation_that_makes_no_sense_is_refused(sd: Path, tmp_path: Path, config: object) -> None:
    folder = copied(sd / "unet", tmp_path / "unet")
    edited(folder / "config.json", quantization_config=config)
    with pytest.raises(RefusedError) as error:
        load_component(folder, device="cpu", dtype="fp32")
    assert (error.value.code, error.value.path) == ("quantised", str(folder / "config.json"))
    with pytest.raises(RefusedError, match="which is not loaded here"):
        plan_component(folder, Request("cpu"))


def test_the_fit_of_packed_tensors_is_not_judged(packed: Path) -> None:
    (part,) = verify_headers(packed).parts
    assert (part.problems, part.checked) == ((), ("structure",))


@pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed")
def test_a_unet_of_torchao_is_what_diffusers_makes_of_it(sd: Path, tmp_path: Path) -> None:
    from diffusers import TorchAoConfig, UNet2DConditionModel
    from torchao.quantization import Int8WeightOnlyConfig

    quantised = TorchAoConfig(Int8WeightOnlyConfig(version=2))
    made = UNet2DConditionModel.from_pretrained(sd / "unet", quantization_config=quantised, dtype=torch.bfloat16)
    made.save_pretrained(tmp_path / "unet")
    assert json.loads((tmp_path / "unet" / "config.json").read_text())["quantization_config"]
    loaded = load_component(tmp_path / "unet", device="cpu", dtype="bf16").model
    assert {type(one) for one in loaded.parameters()} == {type(one) for one in made.parameters()}
    for (name, mine), theirs in zip(loaded.state_dict().items(), made.state_dict().values(), strict=True):
        packed = type(mine.data) is not torch.Tensor
        assert packed == (type(theirs.data) is not torch.Tensor), name
        assert torch.equal(*((mine.dequantize(), theirs.dequantize()) if packed else (mine, theirs))), name
    with pytest.raises(RefusedError) as error:
        load_component(tmp_path / "unet", device="cpu", dtype="fp32")
    assert error.value.code == "dtype_quantised"
