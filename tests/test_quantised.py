"""Quantised components: loaded by their own class, checked before and after, refused where it cannot be."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CLIPTextModel
from transformers.integrations.bitnet import BitLinear, replace_with_bitnet_linear

from shardtool import load_component
from shardtool.checkpoint.plan import Split
from shardtool.checkpoint.selection import Choice
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import Manner, write_job
from shardtool.errors import InputError, RefusedError
from shardtool.verification import verify_headers
from tests.models import copied, edited

FILE = "model.safetensors"
BITNET = {"quant_method": "bitnet", "linear_class": "bitlinear", "quantization_mode": "offline"}


@pytest.fixture(scope="module")
def bitnet(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's text encoder in BitNet's form, two bits a weight; the one method that needs no further package."""
    folder = copied(demo / "text_encoder", tmp_path_factory.mktemp("bitnet") / "text_encoder")
    edited(folder / "config.json", quantization_config=BITNET, dtype="float32")
    model = replace_with_bitnet_linear(CLIPTextModel.from_pretrained(demo / "text_encoder", dtype=torch.float32))
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, BitLinear):
            module.weight.random_(0, 256)
            module.weight_scale.fill_(8.0)
    save_file(
        {name: tensor.contiguous() for name, tensor in model.state_dict().items()}, folder / FILE, {"format": "pt"}
    )
    return folder


def states(model: torch.nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(torch.arange(8).reshape(1, 8)).last_hidden_state
    return found


def test_a_quantised_component_is_what_its_library_makes_of_it(bitnet: Path) -> None:
    loaded = load_component(bitnet, device="cpu", dtype="fp32")
    theirs = CLIPTextModel.from_pretrained(bitnet, dtype=torch.float32).eval()
    assert torch.equal(states(loaded.model), states(theirs))
    assert not loaded.model.training
    assert loaded.report.dtypes["U8"] > 0
    assert loaded.report.nbytes == sum(tensor.nbytes for tensor in load_file(bitnet / FILE).values())


def test_sharding_moves_packed_weights_as_they_are(bitnet: Path, tmp_path: Path) -> None:
    write_job(plan_job(bitnet, Choice(), Shape(Split(330_000))), tmp_path / "out", Manner(durable=False))
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 1
    sharded = load_component(tmp_path / "out", device="cpu", dtype="fp32")
    assert torch.equal(states(sharded.model), states(load_component(bitnet, device="cpu", dtype="fp32").model))


def test_missing_tensors_of_a_quantised_component_are_named(bitnet: Path, tmp_path: Path) -> None:
    folder = copied(bitnet, tmp_path / "text_encoder")
    tensors = load_file(folder / FILE)
    gone = next(name for name in tensors if name.endswith("final_layer_norm.weight"))
    save_file({name: tensor for name, tensor in tensors.items() if name != gone}, folder / FILE, {"format": "pt"})
    with pytest.raises(InputError, match="final_layer_norm") as error:
        load_component(folder, device="cpu", dtype="fp32")
    assert error.value.code == "tensor_missing"


def test_damage_is_found_before_the_quantiser_is_asked(bitnet: Path, tmp_path: Path) -> None:
    folder = copied(bitnet, tmp_path / "text_encoder")
    (folder / FILE).write_bytes((bitnet / FILE).read_bytes()[:-10])
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


@pytest.mark.parametrize("config", [{"quant_method": "nobody-knows"}, {"quant_method": 5}, {"x": 1}, ["x"], "x", 7])
def test_a_quantisation_that_makes_no_sense_is_refused(sd: Path, tmp_path: Path, config: object) -> None:
    folder = copied(sd / "unet", tmp_path / "unet")
    edited(folder / "config.json", quantization_config=config)
    with pytest.raises(RefusedError) as error:
        load_component(folder, device="cpu", dtype="fp32")
    assert (error.value.code, error.value.path) == ("quantised", str(folder / "config.json"))


def test_the_fit_of_packed_tensors_is_not_judged(bitnet: Path) -> None:
    assert all(not part.problems for part in verify_headers(bitnet).parts)


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
        assert torch.equal(mine.dequantize() if mine.is_quantized else mine, theirs), name
