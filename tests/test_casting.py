"""Casting changes floating-point tensors alone, as torch does, and counts what is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CLIPTextModel

from shardtool.casting import Casting
from shardtool.checkpoint.cast import Cast
from shardtool.checkpoint.dtypes import DTYPES
from shardtool.checkpoint.plan import WHOLE, Split
from shardtool.checkpoint.selection import Choice
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import Manner, write_job
from shardtool.errors import RefusedError, RunError
from tests.checkpoint.test_shard_peers import text_encoder

TORCH = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def tensors(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "big.weight": torch.randn(700, 600).to(dtype),
        "scalar": torch.tensor(0.5, dtype=dtype),
        "empty": torch.zeros(0, 3, dtype=dtype),
        "position_ids": torch.arange(77),
        "mask": torch.tensor([True, False]),
    }


def cast(source: Path, target: Path, dtype: str, split: Split = WHOLE, variant: str | None = None) -> Casting:
    casting = Casting()
    shape = Shape(split, cast=Cast(DTYPES[dtype], casting.convert, casting.check))
    write_job(plan_job(source, Choice(variant), shape), target, Manner(durable=False, verify=True))
    return casting


def component(
    folder: Path, content: dict[str, torch.Tensor], name: str = "diffusion_pytorch_model.safetensors"
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"_class_name": "UNet2DConditionModel"}')
    save_file(content, folder / name, {"format": "pt"})
    return folder


@pytest.mark.parametrize("before", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("after", TORCH)
def test_values_are_those_of_torch_and_integers_stay(tmp_path: Path, before: torch.dtype, after: str) -> None:
    source = component(tmp_path / "source", tensors(before))
    cast(source, tmp_path / "out", after, Split(400_000, allow_oversize=True))
    found: dict[str, torch.Tensor] = {}
    for path in (tmp_path / "out").glob("*.safetensors"):
        found |= load_file(path)
    for name, tensor in tensors(before).items():
        expected = tensor.to(TORCH[after]) if tensor.is_floating_point() else tensor
        assert found[name].dtype == expected.dtype
        assert torch.equal(found[name], expected)


def test_eight_bit_floats_are_cast_too(tmp_path: Path) -> None:
    content = {"a": torch.randn(50, 40).to(torch.float8_e4m3fn)}
    cast(component(tmp_path / "source", content), tmp_path / "out", "fp16")
    found = load_file(tmp_path / "out" / "diffusion_pytorch_model.safetensors")["a"]
    assert torch.equal(found, content["a"].to(torch.float16))


def test_what_overflows_is_counted_and_nothing_is_published(tmp_path: Path) -> None:
    content = {"a": torch.tensor([70_000.0, -70_000.0, 1.0, float("inf")]), "b": torch.tensor([1.0])}
    with pytest.raises(
        RunError, match="2 values in 1 tensors are too large for this dtype, most of them in 'a'"
    ) as caught:
        cast(component(tmp_path / "source", content), tmp_path / "out", "fp16")
    assert caught.value.exit_code == 5
    assert not (tmp_path / "out").exists()


def test_what_vanishes_is_counted_and_told(tmp_path: Path) -> None:
    content = {"a": torch.tensor([1e-9, 0.0, -1e-9, 1e-40, 1.0])}
    casting = cast(component(tmp_path / "source", content), tmp_path / "out", "fp16")
    assert casting.vanished == {"a": 3}
    assert [note.text for note in casting.notes()] == ["3 values in 1 tensors became zero, most of them in 'a'"]


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    source = component(tmp_path / "source", tensors())
    (source / "config.json").write_text('{"_class_name": "X", "quantization_config": {"quant_method": "bitsandbytes"}}')
    with pytest.raises(RefusedError, match="is quantised"):
        cast(source, tmp_path / "out", "fp16")


@pytest.mark.parametrize(
    ("present", "variant", "dtype", "written"),
    [
        ("", "fp16", "fp16", ".fp16"),
        ("", None, "fp16", ""),
        (".fp16", "fp16", "fp32", ""),
        (".fp16", None, "fp16", ".fp16"),
        ("", "mine", "bf16", ".mine"),
    ],
)
def test_names_follow(tmp_path: Path, present: str, variant: str | None, dtype: str, written: str) -> None:
    """No name may promise another dtype than the file has."""
    source = component(tmp_path / "source", tensors(), f"diffusion_pytorch_model{present}.safetensors")
    cast(source, tmp_path / "out", dtype, variant=variant)
    assert [path.name for path in (tmp_path / "out").glob("*.safetensors")] == [
        f"diffusion_pytorch_model{written}.safetensors"
    ]


def test_transformers_loads_the_result_in_its_new_dtype(tmp_path: Path) -> None:
    """It goes by the dtype that the config names, so the config follows."""
    model = text_encoder(1)
    model.save_pretrained(tmp_path / "source")
    cast(tmp_path / "source", tmp_path / "out", "fp16", Split(60_000))
    loaded = CLIPTextModel.from_pretrained(tmp_path / "out")
    expected = model.state_dict()
    for name, tensor in loaded.state_dict().items():
        assert tensor.dtype == torch.float16
        assert torch.equal(tensor, expected[name].half())
