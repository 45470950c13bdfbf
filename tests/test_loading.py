"""A component is loaded whole, to where it was placed, in the numbers that were chosen, and nothing is left behind."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CLIPTextModel, T5EncoderModel

from shardtool.checkpoint.inventory import read_checkpoint
from shardtool.dtypes import TORCH_DTYPES
from shardtool.errors import InputError, RefusedError, RunError
from shardtool.events import Advanced, Event, Finished, Note, Started
from shardtool.load_plan import STRICT, Allowed, plan_component
from shardtool.load_run import load_planned
from shardtool.loading import load_part
from shardtool.needs import Dtype
from shardtool.part import read_component
from shardtool.placed import check_placed
from shardtool.placement import Request
from shardtool.recast import Recast
from tests.models import (
    SINGLE,
    copied,
    pixart_pipeline,
    same_weights,
    split,
    t5_encoder,
    unet,
    with_old_names,
    write_shards,
)

DTYPES: list[Dtype] = ["fp32", "fp16", "bf16"]
REFEREES = {
    "unet": diffusers.UNet2DConditionModel,
    "vae": diffusers.AutoencoderKL,
    "text_encoder": CLIPTextModel,
}


def load(folder: Path, dtype: Dtype = "fp32", **options: Any) -> Any:
    return load_part(read_component(folder), "cpu", dtype, **options)[0]


def by_library(folder: Path, dtype: Dtype = "fp32", name: str | None = None) -> Any:
    return REFEREES[name or folder.name].from_pretrained(folder, dtype=TORCH_DTYPES[dtype])


@pytest.mark.parametrize("name", sorted(REFEREES))
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_loaded_model_is_bit_for_bit_the_librarys(sd: Path, name: str, dtype: Dtype) -> None:
    assert same_weights(load(sd / name, dtype), by_library(sd / name, dtype))


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_stored_dtype_is_cast_as_torch_casts_it(
    sd: Path, tmp_path: Path, stored: torch.dtype, dtype: Dtype
) -> None:
    folder = copied(sd / "unet", tmp_path / "unet")
    tensors = {name: tensor.to(stored) for name, tensor in load_file(folder / SINGLE).items()}
    save_file(tensors, folder / SINGLE)
    model = load(folder, dtype)
    assert all(torch.equal(t, tensors[n].to(TORCH_DTYPES[dtype])) for n, t in model.state_dict().items())


@pytest.mark.parametrize("dtype", DTYPES)
def test_shards_load_as_the_single_file_does(sd: Path, tmp_path: Path, dtype: Dtype) -> None:
    for name in REFEREES:
        folder = copied(sd / name, tmp_path / name)
        split(folder, "model" if name == "text_encoder" else "diffusion_pytorch_model", parts=3)
        assert same_weights(load(folder, dtype), load(sd / name, dtype)), name


def test_mixed_dtypes_in_one_file_become_one(sd: Path, tmp_path: Path) -> None:
    folder = copied(sd / "unet", tmp_path / "unet")
    tensors = load_file(folder / SINGLE)
    for name in list(tensors)[::2]:
        tensors[name] = tensors[name].half()
    save_file(tensors, folder / SINGLE)
    assert {parameter.dtype for parameter in load(folder, "fp16").parameters()} == {torch.float16}
    assert same_weights(load(folder, "fp32"), by_library(folder, "fp32", "unet"))


@pytest.mark.parametrize("sharded", [False, True])
def test_a_text_encoder_as_on_the_hub_loads_as_transformers_does(sd: Path, tmp_path: Path, *, sharded: bool) -> None:
    folder = copied(sd / "text_encoder", tmp_path / "text_encoder")
    plain = load_file(folder / "model.safetensors")
    tensors = {f"text_model.{name}" if not name.startswith("text_model.") else name: t for name, t in plain.items()}
    tensors["text_model.embeddings.position_ids"] = torch.arange(32).unsqueeze(0)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if sharded:
        split(folder, "model")
    assert same_weights(load(folder, "fp16"), by_library(sd / "text_encoder", "fp16"))


def test_what_a_class_keeps_in_fp32_stays_so(tmp_path: Path) -> None:
    """T5 keeps ``wo`` in fp32 when the rest is fp16; it must not have been fp16 in between."""
    folder = tmp_path / "text_encoder"
    t5_encoder().save_pretrained(folder)
    ours, theirs = load(folder, "fp16"), T5EncoderModel.from_pretrained(folder, dtype=torch.float16)
    assert {p.dtype for n, p in ours.named_parameters() if ".wo." in n} == {torch.float32}
    assert same_weights(ours, theirs)


def test_modules_that_a_diffusers_class_keeps_in_fp32_stay_so(sd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diffusers.UNet2DConditionModel, "_keep_in_fp32_modules", ["time_embedding"])
    ours = load(sd / "unet", "fp16")
    assert {p.dtype for n, p in ours.named_parameters() if "time_embedding" in n.split(".")} == {torch.float32}
    assert same_weights(ours, by_library(sd / "unet", "fp16"))


def test_buffers_that_no_file_holds_are_made(tmp_path: Path) -> None:
    base = pixart_pipeline(tmp_path / "pixart")
    ours = load(base / "transformer")
    theirs = diffusers.PixArtTransformer2DModel.from_pretrained(base / "transformer")
    assert any(True for _ in ours.buffers())
    assert same_weights(ours, theirs)


def test_nothing_is_left_on_meta_and_no_hook(sd: Path) -> None:
    for name in REFEREES:
        model = load(sd / name, "bf16")
        assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
        assert not any(hasattr(module, "_hf_hook") for module in model.modules())
        assert not hasattr(model, "hf_device_map")
        assert not model.training


def test_a_model_given_back_by_to_is_still_whole(sd: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = load(sd / "unet", "fp16")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.to("cpu").to(torch.float32)
    assert all(torch.equal(tensor, before[name].float()) for name, tensor in model.state_dict().items())
    assert capfd.readouterr() == ("", "")


def test_what_was_loaded_can_be_saved_and_loaded_by_diffusers(sd: Path, tmp_path: Path) -> None:
    model = load(sd / "vae", "fp16")
    model.save_pretrained(tmp_path / "vae")
    assert same_weights(by_library(tmp_path / "vae", "fp16"), model)


# Strictness


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda ts: {name: t for name, t in ts.items() if name != "conv_in.bias"}, "tensor_missing"),
        (lambda ts: {**ts, "stray": torch.zeros(1)}, "tensor_unexpected"),
        (lambda ts: {**ts, "conv_in.bias": torch.zeros(17)}, "shape_mismatch"),
    ],
)
@pytest.mark.parametrize("sharded", [False, True])
def test_what_does_not_fit_is_refused(sd: Path, tmp_path: Path, change: Any, code: str, *, sharded: bool) -> None:
    folder = copied(sd / "unet", tmp_path / "unet")
    tensors = change(load_file(folder / SINGLE))
    (folder / SINGLE).unlink()
    if sharded:
        write_shards(folder, tensors)
    else:
        save_file(tensors, folder / SINGLE)
    with pytest.raises(InputError) as caught:
        load(folder)
    assert (caught.value.code, caught.value.exit_code) == (code, 3)


def test_many_faults_are_counted_in_one_sentence(sd: Path, tmp_path: Path) -> None:
    folder = copied(sd / "unet", tmp_path / "unet")
    tensors = load_file(folder / SINGLE)
    renamed = {f"model.{name}": tensor for name, tensor in tensors.items()}
    save_file(renamed, folder / SINGLE)
    with pytest.raises(InputError, match=rf"{len(tensors)} missing, {len(tensors)} unexpected") as caught:
        load(folder)
    assert len(caught.value.problems) == 2 * len(tensors)


def test_globs_let_through_what_is_missing_and_unexpected_and_say_so(sd: Path, tmp_path: Path) -> None:
    folder = copied(sd / "unet", tmp_path / "unet")
    tensors = load_file(folder / SINGLE)
    del tensors["conv_in.bias"]
    tensors["stray.a"] = torch.ones(1)
    save_file(tensors, folder / SINGLE)
    heard: list[Event] = []
    allowed = Allowed(missing=("conv_in.*",), unexpected=("stray.?",))
    model = load(folder, "fp16", allowed=allowed, on_event=heard.append)
    assert torch.equal(model.conv_in.bias, torch.zeros(16, dtype=torch.float16))
    assert any(isinstance(event, Note) and event.warning and "conv_in.bias" in event.text for event in heard)
    for part_of_it in (Allowed(missing=("conv_in.*",)), Allowed(unexpected=("stray.?",)), STRICT):
        with pytest.raises(InputError):
            load(folder, allowed=part_of_it)


def test_a_missing_tensor_of_a_text_encoder_may_be_let_through_too(sd: Path, tmp_path: Path) -> None:
    folder = copied(sd / "text_encoder", tmp_path / "text_encoder")
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if name.endswith("final_layer_norm.bias"))
    del tensors[name]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model = load(folder, allowed=Allowed(missing=("*final_layer_norm.bias",)))
    assert torch.equal(model.state_dict()[name], torch.zeros(32))


# Files that change, casts that fail


def test_a_file_that_changed_after_its_header_was_read_is_refused(sd: Path, tmp_path: Path) -> None:
    for dtype in ("fp32", "fp16"):
        folder = copied(sd / "unet", tmp_path / dtype)
        part = read_component(folder)
        with (folder / SINGLE).open("r+b") as file:
            file.seek(-4, os.SEEK_END)
            file.write(b"\1\2\3\4")
        with pytest.raises(InputError) as caught:
            load_part(part, "cpu", dtype)  # type: ignore[arg-type]
        assert caught.value.code == "file_changed"


def test_a_file_that_became_shorter_is_an_error_and_no_crash(sd: Path, tmp_path: Path) -> None:
    folder = copied(sd / "unet", tmp_path / "unet")
    part = read_component(folder)
    os.truncate(folder / SINGLE, (folder / SINGLE).stat().st_size // 2)
    with pytest.raises(InputError):
        load_part(part, "cpu", "fp16")


def test_a_cast_that_is_not_wanted_any_more_stops(sd: Path) -> None:
    recast = Recast(read_checkpoint(sd / "unet"), torch.bfloat16, threads=1)
    recast.close()
    recast.close()


def test_a_cast_that_gets_no_memory_ends_in_that_error(sd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As page-locked memory may be refused; nobody must wait for threads that have ended."""
    monkeypatch.setattr("shardtool.recast.PIECE", 2**60)
    recast = Recast(read_checkpoint(sd / "unet"), torch.float16, threads=2)
    errors: list[str] = []

    def wait() -> None:
        try:
            list(recast.progress())
        except RuntimeError as error:
            errors.append(str(error))

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(20)
    assert "memory" in errors[0]


def test_a_cast_gives_every_tensor_and_counts_every_byte(sd: Path) -> None:
    checkpoint = read_checkpoint(sd / "unet")
    recast = Recast(checkpoint, torch.float16, threads=3)
    assert sum(recast.progress()) == checkpoint.nbytes
    expected = load_file(sd / "unet" / SINGLE)
    assert recast.tensors.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name].half()) for name, tensor in recast.tensors.items())


def test_on_the_way_to_a_device_every_float_is_read(sd: Path) -> None:
    """There is no accelerator here; what can be seen is that all are read, as stored too, and arrive in pieces."""
    checkpoint = read_checkpoint(sd / "unet")
    recast = Recast(checkpoint, torch.float32, "cpu:0")
    assert sum(recast.progress()) == checkpoint.nbytes
    expected = load_file(sd / "unet" / SINGLE)
    assert recast.tensors.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in recast.tensors.items())


def test_a_model_whose_inputs_are_not_known_is_an_error_of_the_run(tmp_path: Path) -> None:
    unet(num_class_embeds=10).save_pretrained(tmp_path / "unet")
    plan = plan_component(tmp_path / "unet", Request("cpu", "fp32"))
    with pytest.raises(RunError) as caught:
        load_planned(plan, forward=True)
    assert caught.value.code == "forward_failed"


# Where things are


def test_a_model_with_hooks_is_refused_by_name() -> None:
    import accelerate

    model = unet()
    accelerate.hooks.add_hook_to_module(model.conv_in, accelerate.hooks.AlignDevicesHook("cpu"))
    with pytest.raises(RefusedError, match=r"unet: carries accelerate hooks \(at conv_in\)") as caught:
        check_placed("unet", model, "cpu")
    assert (caught.value.code, caught.value.exit_code) == ("hooked_component", 4)


def test_a_model_with_one_tensor_elsewhere_is_refused_by_its_name() -> None:
    model = unet()
    model.conv_in.to("meta")
    with pytest.raises(RefusedError, match=r"conv_in.weight is on meta, and the pipeline on cpu"):
        check_placed("unet", model, "cpu")


def test_a_buffer_elsewhere_counts_too() -> None:
    model = torch.nn.BatchNorm1d(2)
    model.running_mean = torch.zeros(2, device="meta")
    with pytest.raises(RefusedError, match="running_mean"):
        check_placed("norm", model, "cpu")


# What is reported


def test_the_report_says_what_the_model_is(sd: Path) -> None:
    _, report = load_part(read_component(sd / "unet"), "cpu", "bf16")
    reference = by_library(sd / "unet", "bf16")
    assert report.class_name == "UNet2DConditionModel"
    assert report.parameters == reference.num_parameters()
    assert report.nbytes == sum(tensor.nbytes for tensor in reference.state_dict().values())
    assert report.dtypes == {"bfloat16": report.nbytes}
    assert (report.device, report.renamed) == ("cpu", 0)


def test_the_report_counts_renamed_tensors(sd: Path, tmp_path: Path) -> None:
    folder = copied(sd / "vae", tmp_path / "vae")
    save_file(with_old_names(load_file(folder / SINGLE)), folder / SINGLE)
    _, report = load_part(read_component(folder), "cpu", "fp32")
    assert report.renamed == 16


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_progress_adds_up_to_the_bytes_of_the_checkpoint(sd: Path, dtype: Dtype) -> None:
    heard: list[Event] = []
    load(sd / "unet", dtype, on_event=heard.append)
    started, finished = heard[0], heard[-1]
    assert isinstance(started, Started)
    assert finished == Finished(started.task)
    assert sum(event.by for event in heard if isinstance(event, Advanced)) == started.total


def test_a_plan_is_carried_out_as_often_as_asked(sd: Path) -> None:
    plan = plan_component(sd / "unet", Request("cpu", "fp16"))
    loaded = load_planned(plan, repeat=3, forward=True)
    assert len(loaded.loads) == 3
    assert set(loaded.plan.phases.seconds) >= {"headers", "import torch", "import diffusers", "load", "forward"}
    assert loaded.forwards["unet"].shape == (1, 4, 16, 16)
    again = load_planned(plan_component(sd / "unet", Request("cpu", "fp16")), forward=True)
    assert again.forwards["unet"].digest == loaded.forwards["unet"].digest
