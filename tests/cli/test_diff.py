"""``shardtool diff`` from outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from cli.app import app
from tests.corpus.base import NAMES, weights_file, write_component, write_pipeline


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["diff", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def data_of(*arguments: object) -> dict[str, Any]:
    return dict(json.loads(run(*arguments, "--json").stdout)["data"])


def test_the_same_tensors_however_sharded_are_equal(tmp_path: Path) -> None:
    single = tmp_path / "x.safetensors"
    single.write_bytes(weights_file(dict.fromkeys(NAMES, 4)))
    found = run(write_component(tmp_path / "unet"), single)
    assert (found.exit_code, found.stdout) == (0, "equal: 6 the same\n")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_largest_and_mean_difference_are_those_of_torch(tmp_path: Path, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(64, 70).to(dtype), torch.randn(64, 70).to(dtype)
    save_file({"w": a, "same": a.clone()}, tmp_path / "a.safetensors")
    save_file({"w": b, "same": a.clone()}, tmp_path / "b.safetensors")
    apart = (a.double() - b.double()).abs()
    found = data_of(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    (change,) = found["values"]
    assert found["same"] == 1
    assert change["max_abs"] == pytest.approx(apart.max().item(), rel=1e-12)
    assert change["mean_abs"] == pytest.approx(apart.mean().item(), rel=1e-9)
    assert change["changed"] == int((a != b).sum())


def test_every_kind_of_difference_is_told_and_exit_1(tmp_path: Path) -> None:
    one, other = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_file({"same": torch.ones(2), "shape": torch.ones(2), "dtype": torch.ones(2), "gone": torch.ones(1)}, one)
    save_file(
        {"same": torch.ones(2), "shape": torch.ones(3), "dtype": torch.ones(2).half(), "new": torch.ones(1)}, other
    )
    found = run(one, other)
    assert found.exit_code == 1
    assert "F32[2]" in found.stdout and "F32[3]" in found.stdout and "F16[2]" in found.stdout
    assert found.stdout.splitlines()[-1] == "different: 1 the same, 2 other form, 1 only in A, 1 only in B"
    data = data_of(one, other)
    assert [change["tensor"] for change in data["only_a"]] == ["gone"]
    assert [change["tensor"] for change in data["only_b"]] == ["new"]
    assert {change["tensor"] for change in data["form"]} == {"shape", "dtype"}
    assert data["equal"] is False


def test_not_a_number_is_no_number_in_json_either(tmp_path: Path) -> None:
    save_file({"w": torch.tensor([float("nan")])}, tmp_path / "a.safetensors")
    save_file({"w": torch.tensor([1.0])}, tmp_path / "b.safetensors")
    (change,) = data_of(tmp_path / "a.safetensors", tmp_path / "b.safetensors")["values"]
    assert (change["max_abs"], change["mean_abs"], change["not_finite"]) == (None, None, 1)


def test_pipelines_are_compared_component_by_component(tmp_path: Path) -> None:
    one, other = write_pipeline(tmp_path / "one"), write_pipeline(tmp_path / "other")
    shard = sorted((other / "unet").glob("*.safetensors"))[0]
    tensors = load_file(shard)
    tensors[NAMES[0]] += 1
    save_file(tensors, shard)
    (change,) = data_of(one, other)["values"]
    assert (change["component"], change["tensor"], change["max_abs"]) == ("unet", NAMES[0], 1.0)


def test_what_is_damaged_is_exit_3_and_a_pipeline_against_a_component_exit_2(tmp_path: Path) -> None:
    pipeline = write_pipeline(tmp_path / "one")
    assert run(pipeline, pipeline / "unet").exit_code == 2
    (pipeline / "unet" / "config.json").write_text("{")
    assert run(pipeline, pipeline).exit_code == 3
