"""What diffusers and transformers save, we shard and merge; what we write, they load, with equal values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import AutoencoderKL, ModelMixin, UNet2DConditionModel
from safetensors.torch import load_file, save_file
from transformers import CLIPTextConfig, CLIPTextModel

from shardtool.checkpoint.job import Job
from shardtool.checkpoint.plan import WHOLE, Split
from shardtool.checkpoint.selection import Choice
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import Manner, write_job

QUICK = Manner(overwrite=True, durable=False)
LIMIT = 60_000


def put(source: Path, target: Path, split: Split, **shape: Any) -> Job:
    job = plan_job(source, Choice(shape.pop("variant", None)), Shape(split, **shape))
    write_job(job, target, QUICK)
    return job


def unet(seed: int) -> UNet2DConditionModel:
    torch.manual_seed(seed)
    return UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=8,
        attention_head_dim=2,
        norm_num_groups=4,
        layers_per_block=1,
    )


def vae(seed: int) -> AutoencoderKL:
    torch.manual_seed(seed)
    return AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=4, layers_per_block=1)


def text_encoder(seed: int) -> CLIPTextModel:
    torch.manual_seed(seed)
    config = CLIPTextConfig(
        vocab_size=200, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
    )
    return CLIPTextModel(config)


MAKERS = {"unet": unet, "text_encoder": text_encoder}


def same(model: torch.nn.Module, path: Path, **options: Any) -> bool:
    """Whether the model's own class, in plain form, loads these values from ``path``."""
    loaded = type(model).from_pretrained(path, **options)  # type: ignore[attr-defined]
    expected, found = model.state_dict(), loaded.state_dict()
    assert expected.keys() == found.keys()
    assert not any(tensor.is_meta for tensor in found.values())
    return all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("variant", [None, "fp16"])
def test_peers_save_we_shard_and_merge_peers_load(tmp_path: Path, kind: str, variant: str | None) -> None:
    model = MAKERS[kind](1)
    model.save_pretrained(tmp_path / "theirs", max_shard_size="40KB", variant=variant)
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 2
    put(tmp_path / "theirs", tmp_path / "ours", Split(LIMIT))
    files = list((tmp_path / "ours").glob("*.safetensors"))
    assert len(files) > 1
    assert max(path.stat().st_size for path in files) <= LIMIT
    assert same(model, tmp_path / "ours", variant=variant)
    put(tmp_path / "ours", tmp_path / "merged", WHOLE)
    assert len(list((tmp_path / "merged").glob("*.safetensors"))) == 1
    assert same(model, tmp_path / "merged", variant=variant)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("before", ["40KB", "5GB", "both"])
@pytest.mark.parametrize("after", [LIMIT, None])
def test_over_whatever_lay_there_peers_load_only_the_new_values(
    tmp_path: Path, kind: str, before: str, after: int | None
) -> None:
    """diffusers prefers an index, transformers a single file: a leftover of either kind would win in one of them."""
    old, new = MAKERS[kind](1), MAKERS[kind](2)
    for size in ("40KB", "5GB") if before == "both" else (before,):
        old.save_pretrained(tmp_path / "part", max_shard_size=size)
        (tmp_path / "out").mkdir(exist_ok=True)
        for path in (tmp_path / "part").iterdir():
            path.rename(tmp_path / "out" / path.name)
    new.save_pretrained(tmp_path / "new")
    put(tmp_path / "new", tmp_path / "out", Split(after))
    assert same(new, tmp_path / "out")


def test_another_variant_in_the_same_folder_is_not_touched(tmp_path: Path) -> None:
    default, half, newer = unet(1), unet(2), unet(3)
    default.save_pretrained(tmp_path / "out", max_shard_size="40KB")
    half.save_pretrained(tmp_path / "half", max_shard_size="40KB", variant="fp16")
    for path in (tmp_path / "half").iterdir():
        path.rename(tmp_path / "out" / path.name)
    newer.save_pretrained(tmp_path / "new")
    put(tmp_path / "new", tmp_path / "out", Split(LIMIT))
    assert same(newer, tmp_path / "out")
    assert same(half, tmp_path / "out", variant="fp16")


OLD = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}


def with_old_names(model: ModelMixin, folder: Path) -> Path:
    """The model as it was saved in 2022."""
    model.save_pretrained(folder)
    path = folder / "diffusion_pytorch_model.safetensors"
    tensors = load_file(path)
    for name in list(tensors):
        for new, old in OLD.items():
            if f"attentions.0.{new}." in name:
                tensors[name.replace(f".{new}.", f".{old}.")] = tensors.pop(name)
    assert sum("proj_attn" in name for name in tensors) == 4
    save_file(tensors, path, {"format": "pt"})
    return folder


def test_names_that_diffusers_translates_in_single_files_only_are_renamed_in_shards(tmp_path: Path) -> None:
    model = vae(1)
    source = with_old_names(model, tmp_path / "old")
    assert same(model, source)
    job = put(source, tmp_path / "out", Split(20_000))
    assert "16 tensors renamed" in next(note.text for note in job.notes if note.code == "legacy_names")
    assert same(model, tmp_path / "out")


def test_they_stay_in_a_single_file_or_if_asked(tmp_path: Path) -> None:
    source = with_old_names(vae(1), tmp_path / "old")
    single = source / "diffusion_pytorch_model.safetensors"
    put(source, tmp_path / "whole", WHOLE)
    assert (tmp_path / "whole" / single.name).read_bytes() == single.read_bytes()
    put(source, tmp_path / "kept", Split(20_000), keep_names=True)
    names = json.loads((tmp_path / "kept" / f"{single.name}.index.json").read_text())["weight_map"]
    assert names.keys() == load_file(single).keys()
