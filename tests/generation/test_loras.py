"""LoRAs in the names of diffusers, PEFT and sd-scripts, added to the weights; what does not fit is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from shardtool.errors import InputError, RefusedError
from shardtool.generation.loras import add_loras
from shardtool.images.resolve import LoraFile, parse_lora
from shardtool.pipeline import BuiltPipeline, build_pipeline
from shardtool.placement import Placement
from tests.generation.studios import dog
from tests.models import bitnet

RANK, ALPHA, SCALE = 4, 2.0, 0.5

MODULES = {
    "unet": (
        "down_blocks.1.attentions.0.transformer_blocks.0.attn1.to_q",
        "down_blocks.1.attentions.0.transformer_blocks.0.attn2.to_out.0",
        "down_blocks.1.resnets.0.conv1",
    ),
    "text_encoder": ("encoder.layers.0.self_attn.q_proj",),
    "text_encoder_2": ("text_model.encoder.layers.1.mlp.fc1",),
}

Pair = tuple[torch.Tensor, torch.Tensor]


def pairs(built: BuiltPipeline) -> dict[tuple[str, str], Pair]:
    """A down and an up matrix for some modules of each component."""
    generator = torch.Generator().manual_seed(0)
    made = {}
    for component, names in MODULES.items():
        for name in names:
            weight = getattr(built.pipe, component).get_submodule(actual(built, component, name)).weight
            down = torch.randn(RANK, *weight.shape[1:], generator=generator)
            up = torch.randn(weight.shape[0], RANK, *(1 for _ in weight.shape[2:]), generator=generator) * 0.05
            made[component, name] = (down, up)
    return made


def actual(built: BuiltPipeline, component: str, name: str) -> str:
    """The module's present name: a CLIP with a projection has a ``text_model`` level, one without has none."""
    modules = dict(getattr(built.pipe, component).named_modules())
    return next(one for one in (name, name.removeprefix("text_model."), f"text_model.{name}") if one in modules)


def peft(component: str, name: str, down: torch.Tensor, up: torch.Tensor) -> dict[str, torch.Tensor]:
    return {f"{component}.{name}.lora_A.weight": down, f"{component}.{name}.lora_B.weight": up}


def diffusers(component: str, name: str, down: torch.Tensor, up: torch.Tensor) -> dict[str, torch.Tensor]:
    inner = "lora" if component == "unet" else "lora_linear_layer"
    start = f"{component}.{name}.{inner}"
    return {f"{start}.down.weight": down, f"{start}.up.weight": up, f"{component}.{name}.alpha": torch.tensor(ALPHA)}


def processors(component: str, name: str, down: torch.Tensor, up: torch.Tensor) -> dict[str, torch.Tensor]:
    """The oldest names, which hang on attention processors."""
    if ".attn" not in name:
        return diffusers(component, name, down, up)
    block, _, last = name.removesuffix(".0").rpartition(".")
    start = f"{component}.{block}.processor.{last}_lora"
    alpha = {f"{component}.{block}.processor.{last}.alpha": torch.tensor(ALPHA)}
    return {f"{start}.down.weight": down, f"{start}.up.weight": up, **alpha}


def kohya(component: str, name: str, down: torch.Tensor, up: torch.Tensor) -> dict[str, torch.Tensor]:
    prefix = {"unet": "lora_unet", "text_encoder": "lora_te1", "text_encoder_2": "lora_te2"}[component]
    text = "" if component == "unet" or name.startswith("text_model.") else "text_model."
    start = f"{prefix}_{text}{name}".replace(".", "_")
    return {
        f"{start}.lora_down.weight": down,
        f"{start}.lora_up.weight": up,
        f"{start}.alpha": torch.tensor(ALPHA),
    }


@pytest.mark.parametrize("naming", [peft, diffusers, processors, kohya], ids=lambda naming: naming.__name__)
def test_every_naming_adds_the_same_to_the_weights(
    fresh: BuiltPipeline, tmp_path: Path, naming: Callable[..., dict[str, torch.Tensor]]
) -> None:
    tensors: dict[str, torch.Tensor] = {}
    expected: dict[tuple[str, str], torch.Tensor] = {}
    for (component, name), (down, up) in pairs(fresh).items():
        tensors |= naming(component, name, down, up)
        where = actual(fresh, component, name)
        weight = getattr(fresh.pipe, component).get_submodule(where).weight
        delta = torch.einsum("or,r...->o...", up.flatten(1), down)
        expected[component, where] = weight.detach() + SCALE * ALPHA / RANK * delta
    config = {f"{component}.lora_alpha": ALPHA for component in MODULES} if naming is peft else {}
    save_file(tensors, tmp_path / "l.safetensors", metadata={"lora_adapter_metadata": json.dumps(config)})
    before = dog(fresh).tobytes()
    add_loras(fresh, (LoraFile("l", tmp_path / "l.safetensors", SCALE),))
    for (component, where), weight in expected.items():
        now = getattr(fresh.pipe, component).get_submodule(where).weight
        torch.testing.assert_close(now.detach(), weight, rtol=1e-5, atol=1e-6)
    assert dog(fresh).tobytes() != before


def one_lora(built: BuiltPipeline, path: Path, **changes: Any) -> LoraFile:
    (component, name), (down, up) = next(iter(pairs(built).items()))
    save_file({**peft(component, name, down, up), **changes}, path)
    return LoraFile("l", path, 1.0)


def test_scale_nought_changes_nothing_and_two_loras_add_up(fresh: BuiltPipeline, demo: Path, tmp_path: Path) -> None:
    lora = one_lora(fresh, tmp_path / "l.safetensors")
    before = dog(fresh).tobytes()
    add_loras(fresh, (replace(lora, scale=0.0),))
    assert dog(fresh).tobytes() == before
    add_loras(fresh, (lora, replace(lora, scale=-1.0)))
    weight = fresh.pipe.unet.get_submodule(MODULES["unet"][0]).weight
    untouched = type(fresh.pipe.unet).from_pretrained(demo / "unet", dtype=torch.float32)
    original = untouched.get_submodule(MODULES["unet"][0]).weight
    torch.testing.assert_close(weight, original, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unet.no.such.lora_A.weight": torch.ones(4, 4)}, "1 of 3 tensors fit no module of this model, unet.no.such"),
        ({"something": torch.ones(1)}, "1 of 3 tensors fit no module"),
        ({f"unet.{MODULES['unet'][1]}.lora_A.weight": torch.ones(4, 64)}, "1 of 3 tensors"),
        ({f"unet.{MODULES['unet'][0]}.lora_A.weight": torch.ones(4, 7)}, "do not make a weight of"),
        ({f"unet.{MODULES['unet'][0]}.lora_A.weight": torch.ones(3, 128)}, "do not make a weight of"),
    ],
)
def test_a_lora_that_does_not_fit_is_refused(
    fresh: BuiltPipeline, tmp_path: Path, changes: dict[str, torch.Tensor], words: str
) -> None:
    with pytest.raises(InputError, match=words) as error:
        add_loras(fresh, (one_lora(fresh, tmp_path / "l.safetensors", **changes),))
    assert error.value.code == "lora_unfit"


def test_a_damaged_file_is_an_input_error(fresh: BuiltPipeline, tmp_path: Path) -> None:
    path = tmp_path / "l.safetensors"
    path.write_bytes(b"no safetensors")
    with pytest.raises(InputError) as error:
        add_loras(fresh, (LoraFile("l", path, 1.0),))
    assert error.value.code == "lora_invalid"


FIRST = f"unet.{MODULES['unet'][0]}"


@pytest.mark.parametrize(
    "changes",
    [
        {f"{FIRST}.lora_A.weight": torch.tensor(1.0)},
        {f"{FIRST}.lora_A.weight": torch.ones(4)},
        {f"{FIRST}.lora_A.weight": torch.ones(0, 64), f"{FIRST}.lora_B.weight": torch.ones(64, 0)},
        {f"{FIRST}.lora_A.weight": torch.ones(1, 10**6), f"{FIRST}.lora_B.weight": torch.ones(10**6, 1)},
        {f"{FIRST}.lora_B.weight": torch.ones(64, 4, 2)},
        {f"{FIRST}.lora_B.weight": torch.tensor(1, dtype=torch.int64)},
    ],
)
def test_matrices_of_odd_shapes_are_refused_before_they_are_multiplied(
    fresh: BuiltPipeline, tmp_path: Path, changes: dict[str, torch.Tensor]
) -> None:
    with pytest.raises(InputError, match="do not make a weight of") as error:
        add_loras(fresh, (one_lora(fresh, tmp_path / "l.safetensors", **changes),))
    assert error.value.code == "lora_unfit"


@pytest.mark.parametrize("alpha", [torch.tensor(torch.nan), torch.tensor(torch.inf), torch.ones(2), torch.ones(0)])
def test_a_factor_that_is_no_number_is_refused(fresh: BuiltPipeline, tmp_path: Path, alpha: torch.Tensor) -> None:
    with pytest.raises(InputError, match="NaN or infinite") as error:
        add_loras(fresh, (one_lora(fresh, tmp_path / "l.safetensors", **{f"{FIRST}.alpha": alpha}),))
    assert error.value.code == "lora_invalid"


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "[]", '{"a": 1, "a": 2}', '{"unet.lora_alpha": NaN}'])
def test_settings_that_are_no_json_object_are_an_input_error(fresh: BuiltPipeline, tmp_path: Path, text: str) -> None:
    lora = one_lora(fresh, tmp_path / "l.safetensors")
    save_file(load_file(lora.path), lora.path, metadata={"lora_adapter_metadata": text})
    with pytest.raises(InputError) as error:
        add_loras(fresh, (lora,))
    assert error.value.code == "lora_invalid"


def test_weights_that_are_kept_away_cannot_be_added_to(fresh: BuiltPipeline, tmp_path: Path) -> None:
    lora = one_lora(fresh, tmp_path / "l.safetensors")
    away = replace(fresh, placement=Placement("cuda:0", "fp16", "sequential"))
    with pytest.raises(RefusedError):
        add_loras(away, (lora,))


def test_quantised_weights_cannot_be_added_to(demo: Path, tmp_path: Path) -> None:
    packed = bitnet(demo / "text_encoder", tmp_path / "text_encoder")
    built = build_pipeline(demo, overrides={"text_encoder": packed}, device="cpu")
    down, up = torch.ones(RANK, 64), torch.ones(64, RANK)
    save_file(peft("text_encoder", MODULES["text_encoder"][0], down, up), tmp_path / "l.safetensors")
    with pytest.raises(RefusedError, match="changes the text_encoder, whose weights are quantised") as error:
        add_loras(built, (LoraFile("l", tmp_path / "l.safetensors", 1.0),))
    assert error.value.code == "lora_quantised"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("a.safetensors", ("a.safetensors", 1.0)),
        ("a.safetensors:0.8", ("a.safetensors", 0.8)),
        ("org/name:-1", ("org/name", -1.0)),
        ("org/name@main:sub:0.5", ("org/name@main:sub", 0.5)),
        ("org/name:sub", ("org/name:sub", 1.0)),
    ],
)
def test_a_scale_stands_behind_the_last_colon(text: str, parsed: tuple[str, float]) -> None:
    assert parse_lora(text) == parsed
