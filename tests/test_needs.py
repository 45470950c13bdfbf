"""What a pipeline needs, counted from headers and configs, against the real models."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from safetensors.torch import load_file, save_file
from transformers import T5EncoderModel

from shardtool.activations import Run, count_activations
from shardtool.loading import load_part
from shardtool.needs import Needs, count_needs
from shardtool.part import Part, read_component
from shardtool.parts import read_parts
from tests.models import SINGLE, copied, edited, pixart_pipeline, t5_encoder

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def counting() -> ModuleType:
    """``benchmarks/activations.py``, which counts what the real models hold."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("activations_benchmark", BENCHMARKS / "activations.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_the_bytes_of_weights_are_those_of_the_loaded_model(demo: Path, dtype: str) -> None:
    for name, part in read_parts(demo).with_weights.items():
        (need,) = count_needs({name: part}).components
        model, _ = load_part(part, "cpu", dtype)  # type: ignore[arg-type]
        assert need.weight_bytes(dtype) == sum(p.nbytes for p in model.parameters()), name  # type: ignore[arg-type]


def test_eight_bit_floats_are_counted_as_what_they_become(sd: Path, tmp_path: Path) -> None:
    unet = copied(sd / "unet", tmp_path / "unet")
    narrow = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in load_file(unet / SINGLE).items()}
    save_file(narrow, unet / SINGLE, metadata={"format": "pt"})
    part = read_component(unet)
    (need,) = count_needs({"unet": part}).components
    model, _ = load_part(part, "cpu", "bf16")
    assert need.weight_bytes("bf16") == sum(p.nbytes for p in model.parameters())


def test_what_stays_in_fp32_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "text_encoder"
    t5_encoder().save_pretrained(folder)
    (need,) = count_needs({"text_encoder": read_component(folder)}).components
    model = T5EncoderModel.from_pretrained(folder, dtype=torch.float16)
    assert need.weight_bytes("fp16") == sum(parameter.nbytes for parameter in model.parameters())


def test_groups_are_those_that_diffusers_moves(sd: Path) -> None:
    """Block level: an entry of a list at the top moves alone; what is in no list stays for the whole pass."""
    (need,) = count_needs({"unet": read_component(sd / "unet")}).components
    model = UNet2DConditionModel.from_pretrained(sd / "unet")
    lists = [child for child in model.children() if isinstance(child, torch.nn.ModuleList)]
    in_groups = [sum(p.numel() for p in entry.parameters()) for children in lists for entry in children]
    outside = model.num_parameters() - sum(in_groups)
    assert need.largest_group == outside + max(in_groups)
    leaves = [sum(p.numel() for p in module.parameters(recurse=False)) for module in model.modules()]
    assert need.largest_layer == max(leaves)


def test_offload_needs_ever_less_on_the_device_and_all_of_it_in_memory(demo: Path) -> None:
    needs = count_needs(read_parts(demo).with_weights, Run())
    sizes = [needs.device_bytes("fp16", offload) for offload in ("none", "model", "group", "sequential")]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 4
    weights = sum(part.weight_bytes("fp16") for part in needs.components)
    assert needs.host_bytes("fp16", "cuda:0", "model") == weights
    assert needs.host_bytes("fp16", "cuda:0", "none") == 0
    assert needs.host_bytes("fp16", "cpu", "none") == needs.device_bytes("fp16", "none")


def test_nothing_needs_nothing() -> None:
    assert Needs(()).device_bytes("fp32", "model") == 0


def _part(name: str, model: torch.nn.Module) -> Part:
    config = {key: list(value) if isinstance(value, tuple) else value for key, value in model.config.items()}
    return Part(name, "diffusers", type(model).__name__, Path(name), config)


@pytest.mark.parametrize("make", ["sdxl_unet", "sd_unet"])
@pytest.mark.parametrize(("side", "images"), [(64, 1), (128, 1), (96, 2)])
def test_a_unets_activations_are_what_the_real_one_holds(
    counting: ModuleType, make: str, side: int, images: int
) -> None:
    unet = getattr(counting, make)()
    parts = {"unet": _part("unet", unet), "vae": _part("vae", counting.sd_vae())}
    formula = count_activations(parts, Run(side * 8, side * 8, images))["unet"]
    assert formula == pytest.approx(counting.unet_peak(unet, side, 2 * images), rel=0.05)


@pytest.mark.parametrize("side", [64, 128])
def test_a_vaes_activations_are_a_third_above_what_the_real_one_holds(counting: ModuleType, side: int) -> None:
    vae: AutoencoderKL = counting.sd_vae()
    formula = count_activations({"vae": _part("vae", vae)}, Run(side * 8, side * 8))["vae"]
    assert formula == pytest.approx(counting.vae_peak(vae, side, 1) * 4 / 3, rel=0.01)


def test_a_transformers_activations_are_not_less_than_the_real_one_holds(counting: ModuleType) -> None:
    import diffusers

    flux = counting.meta(
        lambda: diffusers.FluxTransformer2DModel(num_layers=1, num_single_layers=1, guidance_embeds=True)
    )
    formula = count_activations({"transformer": _part("transformer", flux)}, Run(1024, 1024, guidance=False))
    counted = counting.flux_peak(flux, 4096)
    assert counted <= formula["transformer"] <= 1.5 * counted


def test_a_run_grows_with_pixels_and_pictures(demo: Path) -> None:
    parts = read_parts(demo).with_weights
    one, wide, two = (count_activations(parts, run) for run in (Run(64, 64), Run(128, 64), Run(64, 64, images=2)))
    for name in ("unet", "vae"):
        assert wide[name] == two[name] == 2 * one[name]
    assert count_activations(parts, Run()) == one
    assert count_activations(parts, Run(64, 64, guidance=False))["unet"] * 2 == one["unet"]


def test_a_pipeline_of_transformers_is_counted_too(tmp_path: Path) -> None:
    found = count_activations(read_parts(pixart_pipeline(tmp_path / "p")).with_weights, Run())
    assert all(numbers > 0 for numbers in found.values())


ODD = [
    ("unet", {"down_block_types": None}),
    ("unet", {"down_block_types": []}),
    ("unet", {"down_block_types": 5}),
    ("unet", {"sample_size": -8}),
    ("unet", {"block_out_channels": [-16, 32]}),
    ("vae", {"block_out_channels": [16] * 3000}),
]


@pytest.mark.parametrize(("name", "values"), ODD)
def test_a_config_that_makes_no_sense_gives_no_absurd_count(
    sd: Path, tmp_path: Path, name: str, values: dict[str, object]
) -> None:
    base = copied(sd, tmp_path / "base")
    edited(base / name / "config.json", **values)
    found = count_activations(read_parts(base).with_weights, Run())
    assert all(0 <= numbers < 10**12 for numbers in found.values())


def test_a_vae_that_is_upcast_for_decoding_is_counted_in_fp32(demo: Path) -> None:
    (need,) = count_needs({"vae": read_parts(demo).parts["vae"]}, Run()).components
    upcast = replace(need, activations_fp32=True)
    assert upcast.run_bytes("fp16") == 2 * need.run_bytes("fp16") + need.numbers * 2
