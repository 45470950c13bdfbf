"""Verify as a whole: structure, the fit to the model's class, values, digests, and another source bit for bit."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from diffusers import StableDiffusionPipeline, UNet2DConditionModel
from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
from safetensors.torch import load_file, save_file
from transformers import CLIPConfig

from shardtool.checkpoint.contents import survey
from shardtool.checkpoint.digests import fingerprint
from shardtool.checkpoint.inventory import read_checkpoint
from shardtool.checkpoint.plan import Split
from shardtool.checkpoint.reading import TensorReader
from shardtool.checkpoint.selection import Choice
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import Manner, write_job
from shardtool.errors import UsageError
from shardtool.verification import Verification, verify_against, verify_headers, verify_values
from tests.corpus.base import write_component, write_pipeline
from tests.models import copied, edited, vae
from tests.test_fuzz import INPUTS, put


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory, demo: Path) -> Path:
    """The demo model's UNet as diffusers shards it; copied before it is changed."""
    folder = tmp_path_factory.mktemp("sharded") / "unet"
    UNet2DConditionModel.from_pretrained(demo / "unet", torch_dtype=torch.float16).save_pretrained(
        folder, max_shard_size="3MB"
    )
    return folder


@pytest.fixture
def unet(tmp_path: Path, sharded: Path) -> Path:
    return Path(shutil.copytree(sharded, tmp_path / "unet"))


def codes(found: Verification) -> list[str]:
    return [problem.code for problem in found.problems]


def change(folder: Path, **changes: torch.Tensor | None) -> None:
    """Change or remove tensors of a sharded checkpoint, and keep its index true."""
    (index,) = folder.glob("*.index.json")
    content = json.loads(index.read_text())
    for name, value in changes.items():
        path = folder / content["weight_map"].get(name, next(iter(content["weight_map"].values())))
        tensors = load_file(path)
        if value is None:
            del tensors[name], content["weight_map"][name]
        else:
            tensors[name], content["weight_map"][name] = value, path.name
        save_file(tensors, path, metadata={"format": "pt"})
    del content["metadata"]["total_size"]
    index.write_text(json.dumps(content))


def test_the_demo_is_whole_in_every_respect(demo: Path) -> None:
    found = verify_values(verify_headers(demo))
    assert found.problems == ()
    checked = {part.part.name: set(part.checked) for part in found.parts}
    assert checked["unet"] == checked["text_encoder_2"] == {"structure", "fit", "values"}
    assert checked["scheduler"] == {"structure"}


def test_what_diffusers_shards_is_whole(unet: Path) -> None:
    assert verify_headers(unet).problems == ()


@pytest.mark.parametrize(
    ("changes", "code", "tensor"),
    [
        ({"conv_in.bias": None}, "tensor_missing", "conv_in.bias"),
        ({"conv_in.bias": torch.zeros(65, dtype=torch.float16)}, "shape_mismatch", "conv_in.bias"),
        ({"lora.extra": torch.zeros(1)}, "tensor_unexpected", "lora.extra"),
    ],
)
def test_a_checkpoint_in_itself_sound_may_not_fit_its_config(
    unet: Path, changes: dict[str, torch.Tensor | None], code: str, tensor: str
) -> None:
    change(unet, **changes)
    assert verify_headers(unet, fit=False).errors == ()
    (problem,) = verify_headers(unet).errors
    assert (problem.code, problem.tensor) == (code, tensor)


def test_old_attention_names_fit(tmp_path: Path) -> None:
    """The VAE's attention as it was named before 2023: diffusers translates the names, in a single file."""
    folder = tmp_path / "vae"
    vae().save_pretrained(folder)
    (path,) = folder.glob("*.safetensors")
    old = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    tensors = {}
    for name, tensor in load_file(path).items():
        for new, before in old.items():
            name = name.replace(f"attentions.0.{new}.", f"attentions.0.{before}.")
        tensors[name] = tensor
    save_file(tensors, path, metadata={"format": "pt"})
    assert any("proj_attn" in name for name in tensors)
    assert verify_headers(folder).errors == ()


def test_every_variant_is_checked_unless_one_is_named(unet: Path) -> None:
    (unet / "diffusion_pytorch_model.fp16.safetensors").write_bytes(b"cut")
    found = verify_headers(unet, fit=False)
    assert [part.part.variant for part in found.parts] == [None, "fp16"]
    assert codes(found) == ["truncated"]
    assert codes(verify_headers(unet, "fp16", fit=False)) == ["truncated"]


def test_parts_of_a_pipeline_that_do_not_fit_each_other_are_told(tmp_path: Path, demo: Path) -> None:
    pipeline = Path(shutil.copytree(demo, tmp_path / "pipeline"))
    config = json.loads((pipeline / "unet" / "config.json").read_text())
    config["cross_attention_dim"] = 24
    (pipeline / "unet" / "config.json").write_text(json.dumps(config))
    found = verify_headers(pipeline)
    assert found.problems, "the width of the cross attention is no longer that of the text encoders"
    assert verify_headers(pipeline, fit=False).errors == ()


def test_a_pipeline_of_one_variant_alone_is_whole(tmp_path: Path, sd: Path) -> None:
    pipe = StableDiffusionPipeline.from_pretrained(sd, torch_dtype=torch.float16)
    pipe.save_pretrained(tmp_path / "p", variant="fp16")
    assert codes(verify_headers(tmp_path / "p")) == []
    assert codes(verify_headers(tmp_path / "p", "fp16")) == []


def test_the_pipeline_says_of_which_library_a_component_is(tmp_path: Path, sd: Path) -> None:
    """The safety checker's own config names a class without saying that it is one of diffusers."""
    base = copied(sd, tmp_path / "p")
    sides = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 1, "num_attention_heads": 4}
    text, vision = {**sides, "vocab_size": 49408}, {**sides, "image_size": 30, "patch_size": 10}
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    StableDiffusionSafetyChecker(config).save_pretrained(base / "safety_checker")
    edited(base / "model_index.json", safety_checker=["stable_diffusion", "StableDiffusionSafetyChecker"])
    found = verify_headers(base)
    assert codes(found) == []
    assert all("fit" in part.checked for part in found.parts if part.part.checkpoint)


def test_without_a_config_there_is_no_fit_to_check(unet: Path) -> None:
    (unet / "config.json").unlink()
    found = verify_headers(unet)
    assert found.errors == ()
    assert codes(found) == ["config_missing"]
    assert [part.checked for part in found.parts] == [("structure",)]


@pytest.mark.parametrize("name", ["unet", "vae", "text_encoder"])
@pytest.mark.parametrize("fit", [True, False])
def test_a_component_without_its_config_is_what_breaks_a_pipeline(
    demo: Path, tmp_path: Path, name: str, *, fit: bool
) -> None:
    """It is told of the component, beside the others, which are whole."""
    pipeline = Path(shutil.copytree(demo, tmp_path / "pipeline"))
    (pipeline / name / "config.json").unlink()
    found = verify_headers(pipeline, fit=fit)
    assert {part.part.name: [problem.code for problem in part.problems] for part in found.parts if part.problems} == {
        name: ["config_missing"]
    }
    assert found.problems == found.errors


def test_other_weights_beside_the_component_s_own_have_no_fit_to_check(unet: Path) -> None:
    save_file({"lora.down": torch.ones(2)}, unet / "pytorch_lora_weights.safetensors")
    found = verify_headers(unet)
    assert found.errors == ()
    assert [part.checked for part in found.parts] == [("structure", "fit"), ("structure",)]


def test_values_are_read_where_the_structure_allows_it(unet: Path) -> None:
    change(unet, **{"conv_in.bias": torch.full((64,), float("nan"), dtype=torch.float16)})
    found = verify_values(verify_headers(unet, fit=False))
    (problem,) = found.errors
    assert (problem.code, problem.tensor) == ("not_finite", "conv_in.bias")
    assert "64 NaN of 64" in problem.message


def test_the_same_tensors_in_other_shards_are_the_same(unet: Path, demo: Path) -> None:
    same, problems = verify_against(survey(unet), survey(demo / "unet"))
    assert (same, problems) == (212, ())


def test_every_tensor_that_is_not_the_same_is_told(unet: Path, demo: Path) -> None:
    change(
        unet,
        **{
            "conv_in.bias": torch.zeros(64, dtype=torch.float16),
            "conv_out.bias": torch.zeros(4),
            "conv_in.weight": None,
            "extra": torch.zeros(1),
        },
    )
    same, problems = verify_against(survey(unet), survey(demo / "unet"))
    assert same == 209
    assert {(problem.code, problem.tensor) for problem in problems} == {
        ("against_values", "conv_in.bias"),
        ("against_form", "conv_out.bias"),
        ("against_missing", "conv_in.weight"),
        ("against_missing", "extra"),
    }
    assert {problem.hint is not None and "shardtool diff" in problem.hint for problem in problems} == {True}


def test_a_component_that_only_one_pipeline_has_is_told(tmp_path: Path, demo: Path) -> None:
    _, problems = verify_against(survey(write_pipeline(tmp_path / "one")), survey(demo))
    assert "against_component" in {problem.code for problem in problems}


def test_a_pipeline_against_a_component_is_wrong_usage(demo: Path) -> None:
    with pytest.raises(UsageError):
        verify_against(survey(demo), survey(demo / "unet"))


def content_of(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    with TensorReader() as reader:
        return {
            name: (stored.info.dtype, stored.info.shape, b"".join(reader.blocks(stored)))
            for name, stored in read_checkpoint(folder).tensors.items()
        }


def test_one_flipped_bit_anywhere_is_found_where_digests_are_recorded(tmp_path: Path) -> None:
    """In header, payload or index: what is not refused is the same model, to the bit; only its metadata differ."""
    folder = write_component(tmp_path / "unet")
    record_digests(folder)
    sound = content_of(folder)
    files = [path for path in sorted(folder.iterdir()) if ".safetensors" in path.name]
    dice = random.Random(0)
    refused = 0
    for _ in range(INPUTS // 20):
        path = dice.choice(files)
        good = path.read_bytes()
        spoilt = bytearray(good)
        spoilt[dice.randrange(len(good))] ^= 1 << dice.randrange(8)
        put(path, bytes(spoilt))
        found = verify_headers(folder, fit=False)
        found = found if found.errors else verify_values(found, workers=1)
        refused += bool(found.errors)
        if found.errors:
            assert all(problem.path for problem in found.errors)
        else:
            assert content_of(folder) == sound
        put(path, good)
    assert refused > INPUTS // 30


def record_digests(folder: Path) -> None:
    digests = {name: hashlib.sha256(data).hexdigest() for name, (_, _, data) in content_of(folder).items()}
    forms = [(name, dtype, shape) for name, (dtype, shape, _) in content_of(folder).items()]
    entry = {"fingerprint": fingerprint(forms, digests), "tensors": digests}
    content = {"schema": "shardtool.digests/1", "checkpoints": {"diffusion_pytorch_model": entry}}
    (folder / "shardtool.digests.json").write_text(json.dumps(content))


def test_a_path_may_be_text(unet: Path) -> None:
    assert verify_headers(str(unet), fit=False) == verify_headers(unet, fit=False)
    assert survey(str(unet)) == survey(unet)
    assert read_checkpoint(str(unet)) == read_checkpoint(unet)
    target = str(unet.parent / "sharded")
    write_job(plan_job(str(unet), Choice(), Shape(Split(limit=3_000_000))), target, Manner())
    assert verify_against(survey(target), survey(unet))[1] == ()
