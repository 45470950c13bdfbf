"""Which files would be loaded: the files that the libraries do load, told by the values that arrive."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from diffusers import UNet2DConditionModel
from diffusers.pipelines.pipeline_loading_utils import variant_compatible_siblings
from safetensors.torch import save_file
from transformers import CLIPTextModel

from shardtool.checkpoint.contents import survey
from shardtool.checkpoint.resolve import Resolution, mixture, resolve
from shardtool.errors import InputError
from tests.models import clip_config, seeded

SETS = ["single", "shards", "fp16 single", "fp16 shards"]
SOME = [chosen for size in range(1, 5) for chosen in itertools.combinations(SETS, size)]


def write_set(folder: Path, stem: str, label: str, tensors: dict[str, torch.Tensor]) -> None:
    variant = ".fp16" if label.startswith("fp16") else ""
    if label.endswith("single"):
        save_file(tensors, folder / f"{stem}{variant}.safetensors", metadata={"format": "pt"})
        return
    names = list(tensors)
    halves = {1: names[: len(names) // 2], 2: names[len(names) // 2 :]}
    weight_map = {}
    for number, held in halves.items():
        file = f"{stem}{variant}-{number:05d}-of-00002.safetensors"
        save_file({name: tensors[name] for name in held}, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(held, file)
    index = f"{stem}.safetensors.index{variant}.json"
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def label_of(found: Resolution) -> str:
    kind = "shards" if len(found.files) > 1 else "single"
    return f"fp16 {kind}" if found.variant == "fp16" else kind


@pytest.fixture(scope="module")
def tiny_unet() -> UNet2DConditionModel:
    return UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(4,),
        down_block_types=("DownBlock2D",),
        up_block_types=("UpBlock2D",),
        layers_per_block=1,
        norm_num_groups=2,
        cross_attention_dim=8,
        attention_head_dim=2,
    )


@pytest.mark.parametrize("variant", [None, "fp16"])
@pytest.mark.parametrize("chosen", SOME, ids="+".join)
def test_a_component_is_resolved_as_diffusers_loads_it(
    tmp_path: Path, tiny_unet: UNet2DConditionModel, chosen: tuple[str, ...], variant: str | None
) -> None:
    tiny_unet.save_config(tmp_path)
    for label in chosen:
        value = float(SETS.index(label))
        tensors = {name: torch.full_like(tensor, value) for name, tensor in tiny_unet.state_dict().items()}
        write_set(tmp_path, "diffusion_pytorch_model", label, tensors)
    found = resolve(tmp_path, variant, library="diffusers")
    try:
        loaded = UNet2DConditionModel.from_pretrained(tmp_path, variant=variant)
    except OSError:
        assert found.outcome != "found"
    else:
        assert found.outcome == "found"
        assert label_of(found) == SETS[int(loaded.conv_in.bias[0].item())]
    assert {name or "default" for name in found.present} == {
        "fp16" if label.startswith("fp16") else "default" for label in chosen
    }


@pytest.mark.parametrize(
    "chosen", [("single", "shards"), ("fp16 single", "shards"), ("single", "fp16 shards")], ids="+".join
)
@pytest.mark.parametrize("variant", [None, "fp16"])
def test_a_component_is_resolved_as_transformers_loads_it(
    tmp_path: Path, chosen: tuple[str, ...], variant: str | None
) -> None:
    model = seeded(CLIPTextModel, clip_config())
    model.config.save_pretrained(tmp_path)
    for label in chosen:
        value = float(SETS.index(label))
        tensors = {name: torch.full_like(tensor, value) for name, tensor in model.state_dict().items()}
        write_set(tmp_path, "model", label, tensors)
    found = resolve(tmp_path, variant, library="transformers")
    try:
        loaded = CLIPTextModel.from_pretrained(tmp_path, variant=variant)
    except OSError:
        assert found.outcome != "found"
    else:
        value = loaded.final_layer_norm.weight[0].item()
        assert label_of(found) == SETS[int(value)]


@pytest.mark.parametrize("unet", SOME, ids="+".join)
def test_a_pipeline_mixes_what_diffusers_says_it_mixes(tmp_path: Path, unet: tuple[str, ...]) -> None:
    """diffusers' own list of files for a variant: a component without the variant gives its default files."""
    found: dict[str, Resolution] = {}
    names = set()
    for component, labels in (("unet", unet), ("vae", ("single", "fp16 single")), ("other", ("shards",))):
        folder = tmp_path / component
        folder.mkdir()
        for label in labels:
            write_set(folder, "diffusion_pytorch_model", label, {"a": torch.zeros(1), "b": torch.zeros(1)})
        names |= {f"{component}/{path.name}" for path in folder.iterdir()}
        found[component] = resolve(folder, "fp16", library="diffusers")
    usable, of_variant = variant_compatible_siblings(names, variant="fp16")
    for component, resolution in found.items():
        taken = {f"{component}/{name}" for name in resolution.files}
        assert taken <= usable
        assert (resolution.outcome == "found") == bool(taken & of_variant)
    assert mixture(found) == tuple(
        name for name, resolution in found.items() if resolution.outcome == "default_instead"
    )
    assert "other" in mixture(found)


def test_a_variant_that_no_component_has_is_refused_with_those_that_there_are(demo: Path) -> None:
    with pytest.raises(InputError) as caught:
        survey(demo, "fp16")
    assert caught.value.code == "variant_absent"
    assert "present: default" in caught.value.message
