"""shardtool from Python: cheap to import, typed, and the same as the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from diffusers import UNet2DConditionModel

import shardtool
from shardtool.errors import InputError
from tests.models import same_weights


def fresh(program: str) -> str:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = ["torch", "diffusers", "transformers", "accelerate", "numpy", "safetensors", "huggingface_hub", "rich"]
    program = f"import sys, json, shardtool; shardtool.load_component; shardtool.Inventory; {_loaded(heavy)}"
    assert json.loads(fresh(program)) == []


def _loaded(names: list[str]) -> str:
    return f"print(json.dumps([name for name in {names!r} if name in sys.modules]))"


def test_every_name_it_offers_is_there() -> None:
    for name in shardtool.__all__:
        assert getattr(shardtool, name) is not None
    assert set(shardtool.__all__) <= set(dir(shardtool))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = shardtool.nothing


def test_a_component_is_loaded_by_name(sd: Path) -> None:
    for source in (sd / "unet", str(sd / "unet")):
        loaded = shardtool.load_component(source, device="cpu", dtype="bf16")
        assert same_weights(loaded.model, UNet2DConditionModel.from_pretrained(sd / "unet", dtype=torch.bfloat16))
        assert (loaded.placement.device, loaded.placement.dtype) == ("cpu", "bf16")
        assert loaded.report.parameters == loaded.model.num_parameters()


def test_the_embedded_model_is_called_demo(demo: Path) -> None:
    loaded = shardtool.load_component("demo:unet", device="cpu")
    assert loaded.report.source == str(demo / "unet")
    built = shardtool.build_pipeline("demo", device="cpu", unet=loaded.model)
    assert built.pipe.unet is loaded.model


def test_a_pipeline_is_built_of_named_components(demo: Path, sd: Path) -> None:
    built = shardtool.build_pipeline(sd, device="cpu", vae=sd / "vae", components={"unet": str(sd / "unet")})
    assert built.components["unet"].source == str(sd / "unet")
    with pytest.raises(InputError, match="does not fit the pipeline"):
        shardtool.build_pipeline("demo", device="cpu", unet=sd / "unet")


def test_a_pipeline_where_a_component_belongs_is_an_error_that_says_so(demo: Path) -> None:
    with pytest.raises(InputError, match="is a pipeline, not one component"):
        shardtool.load_component("demo")


def test_every_public_call_says_what_it_raises() -> None:
    for call in (shardtool.load_component, shardtool.build_pipeline, shardtool.plan_placement):
        assert "Raises ``" in (call.__doc__ or "")
