"""The findings that shardtool grew from (docs/design.md), each as a promise on real small models.

They come from the work that let sharded models be used inside diffusers pipelines.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import diffusers
import pytest
import torch
from safetensors.torch import load_file, save_file

from shardtool.devices import Accelerator, Inventory
from shardtool.errors import InputError, RefusedError
from shardtool.pipeline import build_pipeline
from tests.models import SINGLE, copied, same_weights, split, unet, with_old_names, write_shards

GB = 10**9


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory, sd: Path) -> Path:
    """The UNet of ``sd`` in three shards."""
    folder = copied(sd / "unet", tmp_path_factory.mktemp("sharded") / "unet")
    split(folder, parts=3)
    return folder


def machine(count: int) -> Inventory:
    devices = tuple(Accelerator("cuda", index, "Test", 24 * GB, 24 * GB) for index in range(count))
    return Inventory(devices, 64 * GB, 64 * GB)


def test_a_sharded_unet_carries_no_hooks_and_the_pipeline_moves_freely(sd: Path, sharded: Path) -> None:
    """In a process of its own, for all that accelerate, diffusers and transformers might print at import too."""
    program = f"""
from pathlib import Path
import torch
from shardtool.pipeline import build_pipeline

built = build_pipeline(Path({str(sd)!r}), overrides={{"unet": Path({str(sharded)!r})}}, device="cpu")
for name in built.components:
    model = getattr(built.pipe, name)
    assert not any(hasattr(module, "_hf_hook") for module in model.modules()), name
    assert not hasattr(model, "hf_device_map"), name
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())), name
built.pipe.to("cpu")
built.pipe.to(torch.float16)
assert built.pipe.unet.dtype == built.pipe.text_encoder.dtype == torch.float16
built.pipe.to("meta", torch.float32)
assert built.pipe.unet.device.type == "meta"
"""
    ran = subprocess.run([sys.executable, "-W", "default", "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert (ran.stdout, ran.stderr) == ("", "")


def test_a_sharded_unet_is_the_same_model(sd: Path, sharded: Path) -> None:
    whole = build_pipeline(sd, device="cpu").pipe.unet
    assert same_weights(build_pipeline(sd, overrides={"unet": sharded}, device="cpu").pipe.unet, whole)


@pytest.mark.parametrize(("count", "device"), [(0, "cpu"), (1, "cuda:0")])
def test_auto_takes_the_cpu_or_the_only_gpu(sd: Path, count: int, device: str) -> None:
    from shardtool.load_plan import plan_pipeline
    from shardtool.placement import Request

    assert plan_pipeline(sd, Request(), inventory=machine(count)).placement.device == device


@pytest.mark.parametrize("count", [2, 8])
def test_auto_with_several_gpus_refuses_before_weights_are_read(sd: Path, sharded: Path, count: int) -> None:
    """A model that is split over GPUs fails later with mixed devices; here nothing is split."""
    with pytest.raises(RefusedError) as caught:
        build_pipeline(sd, overrides={"unet": sharded}, inventory=machine(count))
    assert (caught.value.exit_code, caught.value.code) == (4, "multi_gpu")
    assert "--device cuda:0" in (caught.value.hint or "")


def test_a_unet_that_carries_hooks_is_refused_by_the_builder(sd: Path) -> None:
    """Moving a pipeline that holds one makes accelerate say that one should not move such a model."""
    from accelerate import dispatch_model

    hooked = dispatch_model(unet(), device_map={"": "cpu"}, force_hooks=True)
    with pytest.raises(RefusedError, match="unet: carries accelerate hooks"):
        build_pipeline(sd, overrides={"unet": hooked}, device="cpu")


def test_a_component_elsewhere_is_an_error_and_no_late_mismatch(sd: Path) -> None:
    with pytest.raises(RefusedError, match="is on meta, and the pipeline on cpu"):
        build_pipeline(sd, overrides={"unet": unet().to("meta")}, device="cpu")


def test_a_shard_that_lacks_a_tensor_its_index_names_is_refused(sharded: Path, sd: Path, tmp_path: Path) -> None:
    """diffusers loads it without a word and leaves the parameter on meta."""
    folder = copied(sharded, tmp_path / "unet")
    shard = folder / "diffusion_pytorch_model-00002-of-00003.safetensors"
    tensors = load_file(shard)
    name = next(iter(tensors))
    del tensors[name]
    save_file(tensors, shard, metadata={"format": "pt"})
    theirs = diffusers.UNet2DConditionModel.from_pretrained(folder)
    assert theirs.get_parameter(name).is_meta
    with pytest.raises(InputError) as caught:
        build_pipeline(sd, overrides={"unet": folder}, device="cpu")
    assert (caught.value.exit_code, caught.value.code) == (3, "tensor_absent")
    assert (caught.value.tensor, caught.value.path) == (name, str(shard))


@pytest.mark.parametrize("fault", ["missing", "unexpected", "misshapen"])
def test_strictness_holds_over_the_union_of_the_shards(sd: Path, tmp_path: Path, fault: str) -> None:
    """Index and shards agree here; it is the class that wants something else."""
    folder = copied(sd / "unet", tmp_path / "unet")
    tensors = load_file(folder / SINGLE)
    (folder / SINGLE).unlink()
    if fault == "missing":
        del tensors["conv_out.weight"]
    elif fault == "unexpected":
        tensors["conv_oud.weight"] = torch.zeros(3)
    else:
        tensors["conv_out.weight"] = torch.zeros(4, 16, 1, 1)
    write_shards(folder, tensors, parts=3)
    with pytest.raises(InputError, match=r"conv_ou[td]") as caught:
        build_pipeline(sd, overrides={"unet": folder}, device="cpu")
    assert caught.value.exit_code == 3


def test_weights_given_to_meta_parameters_arrive(sharded: Path, sd: Path) -> None:
    """Copied into meta parameters they are dropped without a word, so they are assigned."""
    built = build_pipeline(sd, overrides={"unet": sharded}, device="cpu", dtype="fp16")
    expected = load_file(sd / "unet" / SINGLE)
    assert all(torch.equal(t, expected[name].half()) for name, t in built.pipe.unet.state_dict().items())


def test_deprecated_attention_names_in_shards_load_the_same_values_as_in_one_file(sd: Path, tmp_path: Path) -> None:
    """diffusers translates them in single files only, and leaves sixteen parameters on meta otherwise."""
    single = copied(sd / "vae", tmp_path / "single")
    old = with_old_names(load_file(single / SINGLE))
    save_file(old, single / SINGLE, metadata={"format": "pt"})
    shards = copied(sd / "vae", tmp_path / "shards")
    (shards / SINGLE).unlink()
    write_shards(shards, old, parts=2)
    left = [name for name, p in diffusers.AutoencoderKL.from_pretrained(shards).named_parameters() if p.is_meta]
    assert len(left) == 16
    from_shards = build_pipeline(sd, overrides={"vae": shards}, device="cpu").pipe.vae
    assert same_weights(from_shards, build_pipeline(sd, overrides={"vae": single}, device="cpu").pipe.vae)
    assert same_weights(from_shards, diffusers.AutoencoderKL.from_pretrained(single))
