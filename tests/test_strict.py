"""Strictness over the union of the shards, before a weight is read, by the names that the class itself translates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import diffusers
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CLIPConfig, CLIPModel, CLIPTextModel, CLIPTextModelWithProjection

from shardtool.checkpoint.inventory import read_checkpoint
from shardtool.errors import InputError, Problem
from shardtool.matching import match_names
from shardtool.meta_model import build_on_meta
from shardtool.part import read_component
from shardtool.strict import check_fit
from tests.models import (
    SINGLE,
    clip_config,
    copied,
    edited,
    pixart_pipeline,
    seeded,
    split,
    t5_encoder,
    with_old_names,
    write_shards,
)

Tensors = dict[str, torch.Tensor]


def fit(folder: Path) -> tuple[Problem, ...]:
    found = check_fit(folder, read_checkpoint(folder))
    assert found is not None
    return found


def rewritten(source: Path, target: Path, change: Callable[[Tensors], Tensors], *, sharded: bool = False) -> Path:
    """A copy of a component with its tensors changed."""
    copied(source, target)
    single = next(target.glob("*.safetensors"))
    tensors = change(load_file(single))
    single.unlink()
    if sharded:
        write_shards(target, tensors, stem=single.stem)
    else:
        save_file(tensors, single, metadata={"format": "pt"})
    return target


@pytest.mark.parametrize("name", ["unet", "vae", "text_encoder"])
@pytest.mark.parametrize("sharded", [False, True])
def test_what_diffusers_and_transformers_saved_fits(sd: Path, tmp_path: Path, name: str, *, sharded: bool) -> None:
    folder = copied(sd / name, tmp_path / name)
    if sharded:
        split(folder, "model" if name == "text_encoder" else "diffusion_pytorch_model")
    assert fit(folder) == ()


def test_every_missing_tensor_is_named(sd: Path, tmp_path: Path) -> None:
    gone = ["conv_in.weight", "mid_block.resnets.0.norm1.bias"]
    folder = rewritten(sd / "unet", tmp_path / "unet", lambda ts: {k: t for k, t in ts.items() if k not in gone})
    found = fit(folder)
    assert [(problem.code, problem.tensor) for problem in found] == [("tensor_missing", name) for name in gone]
    assert "[16, 4, 3, 3]" in found[0].message


def test_every_unexpected_tensor_is_named_with_its_file(sd: Path, tmp_path: Path) -> None:
    folder = rewritten(sd / "unet", tmp_path / "unet", lambda ts: {**ts, "stray": torch.zeros(3)}, sharded=True)
    (problem,) = fit(folder)
    assert (problem.code, problem.tensor) == ("tensor_unexpected", "stray")
    assert problem.path is not None
    assert problem.path.endswith("-of-00002.safetensors")
    assert "--allow-unexpected 'stray'" in (problem.hint or "")


def test_every_tensor_of_another_shape_is_named_with_both_shapes(sd: Path, tmp_path: Path) -> None:
    folder = rewritten(
        sd / "unet", tmp_path / "unet", lambda ts: {**ts, "conv_in.weight": torch.zeros(16, 9, 3, 3)}, sharded=True
    )
    (problem,) = fit(folder)
    assert (problem.code, problem.tensor) == ("shape_mismatch", "conv_in.weight")
    assert "[16, 9, 3, 3]" in problem.message
    assert "[16, 4, 3, 3]" in problem.message


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.float8_e8m0fnu])
def test_what_is_no_number_of_its_own_does_not_fit_in_the_place_of_weights(
    sd: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    folder = rewritten(sd / "unet", tmp_path / "unet", lambda ts: {**ts, "conv_in.bias": torch.ones(16).to(dtype)})
    (problem,) = fit(folder)
    assert (problem.code, problem.tensor) == ("dtype_mismatch", "conv_in.bias")


@pytest.mark.parametrize("sharded", [False, True])
def test_old_attention_names_fit_in_shards_too(sd: Path, tmp_path: Path, *, sharded: bool) -> None:
    folder = rewritten(sd / "vae", tmp_path / "vae", with_old_names, sharded=sharded)
    assert "encoder.mid_block.attentions.0.query.weight" in read_checkpoint(folder).tensors
    assert fit(folder) == ()


def test_old_and_new_name_of_one_tensor_side_by_side_do_not_fit(sd: Path, tmp_path: Path) -> None:
    new, old = (f"encoder.mid_block.attentions.0.{name}.bias" for name in ("to_q", "query"))
    folder = rewritten(sd / "vae", tmp_path / "vae", lambda ts: {**ts, old: ts[new].clone()})
    assert [problem.code for problem in fit(folder)] == ["tensor_unexpected"]


@pytest.mark.parametrize("model_class", [CLIPTextModel, CLIPTextModelWithProjection])
@pytest.mark.parametrize("sharded", [False, True])
def test_text_encoders_as_on_the_hub_fit(tmp_path: Path, model_class: type, *, sharded: bool) -> None:
    """With the level ``text_model.`` and with ``position_ids``, which a plain comparison refuses."""
    seeded(model_class, clip_config()).save_pretrained(tmp_path / "saved")

    def as_on_the_hub(tensors: Tensors) -> Tensors:
        outside = ("text_projection.", "text_model.")
        named = {k if k.startswith(outside) else f"text_model.{k}": tensor for k, tensor in tensors.items()}
        return {**named, "text_model.embeddings.position_ids": torch.arange(32).unsqueeze(0)}

    folder = rewritten(tmp_path / "saved", tmp_path / "hub", as_on_the_hub, sharded=sharded)
    assert "text_model.embeddings.position_ids" in read_checkpoint(folder).tensors
    assert fit(folder) == ()


def test_a_text_encoder_that_lacks_a_tensor_does_not_fit(sd: Path, tmp_path: Path) -> None:
    folder = rewritten(
        sd / "text_encoder",
        tmp_path / "text_encoder",
        lambda ts: {k: t for k, t in ts.items() if not k.endswith("layers.1.mlp.fc1.bias")},
    )
    assert [problem.code for problem in fit(folder)] == ["tensor_missing"]


def test_tied_embeddings_count_once(tmp_path: Path) -> None:
    """T5 stores ``shared`` and uses it as ``encoder.embed_tokens`` too."""
    folder = tmp_path / "t5"
    t5_encoder().save_pretrained(folder)
    assert "encoder.embed_tokens.weight" not in read_checkpoint(folder).tensors
    assert fit(folder) == ()
    only_other = rewritten(
        folder,
        tmp_path / "other",
        lambda ts: {("encoder.embed_tokens.weight" if k == "shared.weight" else k): t for k, t in ts.items()},
    )
    assert fit(only_other) == ()
    neither = rewritten(folder, tmp_path / "neither", lambda ts: {k: t for k, t in ts.items() if k != "shared.weight"})
    assert {problem.tensor for problem in fit(neither)} == {"shared.weight", "encoder.embed_tokens.weight"}


def test_the_match_says_which_name_becomes_which(sd: Path, tmp_path: Path) -> None:
    folder = rewritten(sd / "vae", tmp_path / "vae", with_old_names, sharded=True)
    part = read_component(folder)
    match = match_names(part, build_on_meta(part))
    name = "decoder.mid_block.attentions.0"
    assert match.names[f"{name}.to_out.0.weight"] == f"{name}.proj_attn.weight"
    assert match.names["decoder.conv_in.weight"] == "decoder.conv_in.weight"


# Configs that nobody checked


def test_building_takes_no_memory_for_weights(sd: Path, tmp_path: Path) -> None:
    """A config may ask for terabytes; on meta that is a shape mismatch."""
    folder = copied(sd / "unet", tmp_path / "unet")
    edited(folder / "config.json", block_out_channels=[2**16, 2**16])
    assert "shape_mismatch" in {problem.code for problem in fit(folder)}


@pytest.mark.parametrize(
    "settings",
    [
        {"layers_per_block": 10_000_000},
        {"transformer_layers_per_block": 10_000_000},
        {"down_block_types": ["DownBlock2D"] * 100_000, "block_out_channels": [16] * 100_000},
        {"layers_per_block": 64, "transformer_layers_per_block": 64},
    ],
)
def test_a_config_of_endless_layers_is_refused(sd: Path, tmp_path: Path, settings: dict[str, object]) -> None:
    """Building it would never end; the last one stays within every single limit and is stopped while it is built."""
    folder = copied(sd / "unet", tmp_path / "unet")
    edited(folder / "config.json", **settings)
    with pytest.raises(InputError) as caught:
        fit(folder)
    assert caught.value.code in ("config_invalid", "config_absurd")
    assert str(folder / "config.json") in caught.value.message


@pytest.mark.parametrize(
    "settings",
    [
        {"block_out_channels": None},
        {"block_out_channels": "wide"},
        {"down_block_types": ["NoSuchBlock", "CrossAttnDownBlock2D"]},
        {"norm_num_groups": 0},
        {"act_fn": {"a": 1}},
        {"in_channels": 1.5},
    ],
)
def test_a_config_that_makes_no_model_is_one_error_that_names_it(
    sd: Path, tmp_path: Path, settings: dict[str, object]
) -> None:
    folder = copied(sd / "unet", tmp_path / "unet")
    edited(folder / "config.json", **settings)
    try:
        assert fit(folder) != ()
    except InputError as error:
        assert error.code in ("config_invalid", "config_absurd")
        assert str(folder / "config.json") in error.message


def test_a_norm_that_is_no_name_is_the_config_s_fault(tmp_path: Path) -> None:
    folder = pixart_pipeline(tmp_path / "p") / "transformer"
    edited(folder / "config.json", _class_name="Transformer2DModel", norm_type=[])
    with pytest.raises(InputError) as caught:
        check_fit(folder, read_checkpoint(folder))
    assert caught.value.code == "config_invalid"


@pytest.mark.parametrize("name", ["DiffusionPipeline", "EulerDiscreteScheduler", "NoSuchModel", "logging"])
def test_a_class_that_is_no_model_is_refused(sd: Path, tmp_path: Path, name: str) -> None:
    folder = copied(sd / "unet", tmp_path / "unet")
    edited(folder / "config.json", _class_name=name)
    with pytest.raises(InputError) as caught:
        fit(folder)
    assert caught.value.code == "foreign_class"


def test_a_python_file_beside_the_weights_is_never_run(sd: Path, tmp_path: Path) -> None:
    """diffusers runs ``unet/diffusers.py`` if it lies in a component's folder; nobody here opens it."""
    folder = copied(sd / "unet", tmp_path / "unet")
    sentinel = tmp_path / "ran"
    for name in ("diffusers", "unet", "modeling_unet", "UNet2DConditionModel"):
        (folder / f"{name}.py").write_text(f"open({str(sentinel)!r}, 'w')\n")
    edited(folder / "config.json", auto_map={"AutoModel": "modeling_unet.UNet2DConditionModel"})
    assert fit(folder) == ()
    assert not sentinel.exists()


def test_a_config_does_not_choose_how_attention_is_computed(tmp_path: Path) -> None:
    """It may name kernels on the Hub, in a part of it too; transformers fetches and runs them if it can."""
    config = CLIPConfig(
        text_config=clip_config().to_dict(),
        vision_config={"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 1, "num_attention_heads": 4},
    )
    seeded(CLIPModel, config).save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    parts = {name: {**values[name], "attn_implementation": "evil/kernel"} for name in ("text_config", "vision_config")}
    edited(tmp_path / "config.json", attn_implementation="flash_attention_2", **parts)
    assert fit(tmp_path) == ()
    assert build_on_meta(read_component(tmp_path)).config.text_config._attn_implementation == "sdpa"


def test_the_global_hooks_of_the_cap_are_gone_afterwards(sd: Path) -> None:
    fit(sd / "unet")
    with pytest.raises(InputError):
        build_on_meta(read_component(_bomb(sd)))
    torch.nn.ModuleList(torch.nn.Identity() for _ in range(11_000))


def _bomb(sd: Path) -> Path:
    folder = sd.parent / "bomb"
    if not folder.exists():
        copied(sd / "unet", folder)
        edited(folder / "config.json", layers_per_block=64, transformer_layers_per_block=64)
    return folder


def test_a_checkpoint_of_real_diffusers_models_builds_like_diffusers(sd: Path) -> None:
    meta = build_on_meta(read_component(sd / "unet"))
    real = diffusers.UNet2DConditionModel.from_config(json.loads((sd / "unet" / "config.json").read_text()))
    assert {k: t.shape for k, t in meta.state_dict().items()} == {k: t.shape for k, t in real.state_dict().items()}
    assert all(parameter.is_meta for parameter in meta.parameters())
    assert (sd / "unet" / SINGLE).exists()


def test_quantised_weights_are_not_judged(sd: Path, tmp_path: Path) -> None:
    """Their tensors are packed; saying that they do not fit would be wrong."""
    folder = copied(sd / "unet", tmp_path / "unet")
    edited(folder / "config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    assert check_fit(folder, read_checkpoint(folder)) is None
