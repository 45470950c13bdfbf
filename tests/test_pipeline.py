"""A pipeline of parts from anywhere: in one place, in one dtype, running as diffusers' own does."""

from __future__ import annotations

import importlib
import io
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from shardtool.devices import Accelerator, Inventory
from shardtool.errors import InputError, RefusedError
from shardtool.load_plan import plan_pipeline
from shardtool.needs import OFFLOADS, Offload
from shardtool.pipeline import assemble, build_pipeline
from shardtool.placement import Request
from tests.models import (
    SINGLE,
    copied,
    edited,
    flux_pipeline,
    pixart_pipeline,
    same_weights,
    sd3_pipeline,
    split,
    unet,
)


def picture(pipe: Any, **options: Any) -> np.ndarray[Any, Any]:
    pipe.set_progress_bar_config(disable=True)
    made = pipe(
        "w1 dog",
        num_inference_steps=2,
        height=16,
        width=16,
        generator=torch.Generator().manual_seed(1),
        output_type="np",
        **options,
    )
    return np.asarray(made.images)


def by_diffusers(base: Path, dtype: torch.dtype = torch.float32) -> Any:
    return diffusers.DiffusionPipeline.from_pretrained(str(base), dtype=dtype)


@pytest.fixture(scope="module")
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, demo: Path, sd: Path) -> Path:
    folder = tmp_path_factory.mktemp("family") / request.param
    match request.param:
        case "sd":
            return sd
        case "sdxl":
            return demo
        case "sd3":
            return sd3_pipeline(folder, demo)
        case "flux":
            return flux_pipeline(folder, demo)
        case _:
            return pixart_pipeline(folder)


OPTIONS: dict[str, dict[str, Any]] = {
    "StableDiffusionPipeline": {},
    "StableDiffusionXLPipeline": {},
    "StableDiffusion3Pipeline": {"max_sequence_length": 8},
    "FluxPipeline": {"max_sequence_length": 8},
    "PixArtAlphaPipeline": {"use_resolution_binning": False, "clean_caption": False},
}


@pytest.mark.parametrize("family", ["sd", "sdxl", "sd3", "flux", "pixart"], indirect=True)
def test_every_family_is_built_as_diffusers_builds_it(family: Path) -> None:
    ours, theirs = build_pipeline(family, device="cpu", dtype="fp32"), by_diffusers(family)
    assert type(ours.pipe) is type(theirs)
    assert ours.components.keys() == {n for n, c in theirs.components.items() if isinstance(c, torch.nn.Module)}
    for name in ours.components:
        assert same_weights(getattr(ours.pipe, name), getattr(theirs, name)), name
    assert ours.pipe.components.keys() == theirs.components.keys()
    options = OPTIONS[type(theirs).__name__]
    assert np.array_equal(picture(ours.pipe, **options), picture(theirs, **options))
    for key, value in theirs.config.items():
        assert ours.pipe.config[key] == value, key


def test_one_dtype_holds_for_all_components(demo: Path) -> None:
    """Left to themselves, diffusers would load fp32 and transformers fp16, and the first product fails."""
    for dtype, expected in (("auto", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)):
        built = build_pipeline(demo, device="cpu", dtype=dtype)
        for name in built.components:
            parameters = getattr(built.pipe, name).parameters()
            assert {parameter.dtype for parameter in parameters} == {expected}, (dtype, name)


def test_an_overridden_component_of_the_base_is_not_read(demo: Path, tmp_path: Path) -> None:
    base = copied(demo, tmp_path / "base")
    (base / "unet" / SINGLE).write_bytes(b"not weights at all")
    built = build_pipeline(base, overrides={"unet": demo / "unet"}, device="cpu")
    assert built.components["unet"].source == str(demo / "unet")
    shutil.rmtree(base / "unet")
    build_pipeline(base, overrides={"unet": demo / "unet"}, device="cpu")
    with pytest.raises(InputError, match="missing"):
        build_pipeline(base, device="cpu")


def test_parts_from_anywhere_make_the_picture_that_diffusers_makes_of_them(demo: Path, tmp_path: Path) -> None:
    halves = copied(demo / "unet", tmp_path / "unet")
    save_file({name: tensor * 0.5 for name, tensor in load_file(halves / SINGLE).items()}, halves / SINGLE)
    split(halves, parts=3)
    single = copied(demo / "vae", tmp_path / "vae") / SINGLE
    built = build_pipeline(demo, overrides={"unet": halves, "vae": single, "text_encoder": demo}, device="cpu")
    theirs = by_diffusers(demo)
    theirs.unet = diffusers.UNet2DConditionModel.from_pretrained(halves)
    assert np.array_equal(picture(built.pipe), picture(theirs))


def test_a_model_that_is_loaded_already_is_taken_as_it_is(sd: Path) -> None:
    mine = unet()
    built = build_pipeline(sd, overrides={"unet": mine}, device="cpu")
    assert built.pipe.unet is mine
    assert built.components["unet"].source == "given"


def test_a_loaded_model_that_carries_hooks_is_refused(sd: Path) -> None:
    import accelerate

    mine = unet()
    accelerate.cpu_offload(mine, execution_device="cpu")
    with pytest.raises(RefusedError, match="unet: carries accelerate hooks") as caught:
        build_pipeline(sd, overrides={"unet": mine}, device="cpu")
    assert (caught.value.code, caught.value.exit_code) == ("hooked_component", 4)
    assert caught.value.hint


def test_a_loaded_model_on_another_device_is_refused(sd: Path) -> None:
    with pytest.raises(RefusedError, match="is on meta, and the pipeline on cpu") as caught:
        build_pipeline(sd, overrides={"unet": unet().to("meta")}, device="cpu")
    assert caught.value.code == "component_elsewhere"


def test_a_loaded_model_in_another_dtype_is_refused(sd: Path) -> None:
    with pytest.raises(RefusedError, match="float16, and the pipeline in fp32") as caught:
        build_pipeline(sd, overrides={"unet": unet().half()}, device="cpu")
    assert caught.value.code == "dtype_mixed"


def test_a_loaded_model_that_does_not_fit_is_refused(sd: Path) -> None:
    with pytest.raises(InputError, match="cross_attention_dim 64, text encoders give 32"):
        build_pipeline(sd, overrides={"unet": unet(cross_attention_dim=64)}, device="cpu")


def test_what_cannot_be_placed_is_refused_before_weights_are_read(demo: Path, tmp_path: Path) -> None:
    """The weights here are of a model that its config does not describe: only reading on would show it."""
    base = copied(demo, tmp_path / "base")
    edited(base / "unet" / "config.json", out_channels=8)
    two = Inventory(tuple(Accelerator("cuda", n, "Test", 10**10, 10**10) for n in range(2)), 10**10, 10**10)
    with pytest.raises(RefusedError, match="--device auto with 2 accelerators"):
        build_pipeline(base, inventory=two)
    small = Inventory((), 10**6, 10**6)
    with pytest.raises(RefusedError, match=r"none needs .* of main memory in fp32, 1\.00 MB are free"):
        build_pipeline(base, inventory=small)
    with pytest.raises(InputError, match="the weights do not fit UNet2DConditionModel: 2 of another shape"):
        build_pipeline(base, inventory=small, force=True)
    assert build_pipeline(demo, inventory=small, force=True).placement.device == "cpu"


def test_nothing_is_printed_and_the_libraries_settings_come_back(
    demo: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    their_logging = [importlib.import_module(f"{name}.utils.logging") for name in ("diffusers", "transformers")]
    before = [(module.get_verbosity(), module.is_progress_bar_enabled()) for module in their_logging]
    built = build_pipeline(demo, device="cpu")
    built.pipe.to("cpu")
    assert capfd.readouterr() == ("", "")
    assert not [warning for warning in recwarn if "torch" not in str(warning.filename)]
    assert [(module.get_verbosity(), module.is_progress_bar_enabled()) for module in their_logging] == before


def test_the_pipelines_own_bars_are_off(demo: Path, capfd: pytest.CaptureFixture[str]) -> None:
    built = build_pipeline(demo, device="cpu")
    built.pipe("dog", num_inference_steps=1, output_type="latent")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        (["diffusers", "DiffusionPipeline"], "is no model class"),
        (["diffusers", "NoSuchModel"], "unknown to it"),
        (["transformers", "pipeline"], "unknown to it"),
        (["transformers", "Trainer"], "is no model class"),
    ],
)
def test_only_models_of_the_libraries_are_made(demo: Path, tmp_path: Path, entry: list[str], match: str) -> None:
    base = copied(demo, tmp_path / "base")
    edited(base / "model_index.json", text_encoder=entry)
    with pytest.raises(InputError, match=match) as caught:
        build_pipeline(base, device="cpu")
    assert caught.value.code == "foreign_class"


@pytest.mark.parametrize("name", ["UNet2DConditionModel", "NoSuchPipeline", "os", ["pipeline", "MyPipeline"]])
def test_only_pipelines_of_diffusers_are_made(demo: Path, tmp_path: Path, name: object) -> None:
    base = copied(demo, tmp_path / "base")
    (base / "pipeline.py").write_text("raise SystemExit('code from a checkpoint was run')\n")
    edited(base / "model_index.json", _class_name=name)
    with pytest.raises(InputError, match="is no pipeline class of diffusers"):
        build_pipeline(base, device="cpu")


def test_no_code_of_the_checkpoint_is_run(demo: Path, tmp_path: Path) -> None:
    """With such files in place, diffusers' own loading looks for them by the library's name."""
    base = copied(demo, tmp_path / "base")
    for folder in ("", "unet", "scheduler", "text_encoder", "tokenizer", "vae"):
        for name in ("diffusers", "transformers", "pipeline", "unet"):
            (base / folder / f"{name}.py").write_text("raise SystemExit('code from a checkpoint was run')\n")
    assert build_pipeline(base, device="cpu").pipe.unet is not None


def test_nobody_is_asked_whether_code_of_the_checkpoint_may_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = pixart_pipeline(tmp_path / "base")
    edited(base / "model_index.json", tokenizer=["transformers", "AutoTokenizer"])
    own = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}}
    edited(base / "tokenizer" / "tokenizer_config.json", **own)
    code = f"open({str(tmp_path / 'run')!r}, 'w')\nfrom transformers import T5TokenizerFast as OwnTokenizer\n"
    (base / "tokenizer" / "own.py").write_text(code)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))

    with pytest.raises(InputError) as caught:
        build_pipeline(base, device="cpu")
    assert caught.value.code == "component_invalid"
    assert not (tmp_path / "run").exists()


def test_a_pipeline_that_lacks_a_component_is_refused_by_its_name(sd: Path, tmp_path: Path) -> None:
    base = copied(sd, tmp_path / "base")
    edited(base / "model_index.json", scheduler=[None, None])
    with pytest.raises(InputError, match="names no scheduler, which StableDiffusionPipeline needs"):
        build_pipeline(base, device="cpu")


def test_a_damaged_tokenizer_is_an_error_that_names_it(demo: Path, tmp_path: Path) -> None:
    base = copied(demo, tmp_path / "base")
    (base / "tokenizer" / "tokenizer.json").write_text("{")
    (base / "tokenizer" / "vocab.json").write_text("{")
    with pytest.raises(InputError) as caught:
        build_pipeline(base, device="cpu")
    assert caught.value.code == "component_invalid"
    assert str(base / "tokenizer") in caught.value.message


@pytest.mark.parametrize("offload", ["group"])
def test_offload_leaves_the_picture_as_it_is(demo: Path, offload: Offload) -> None:
    """Group offload can be had from memory to memory, so that its wiring is seen without an accelerator."""
    plan = plan_pipeline(demo, Request("cpu", "fp32"))
    moved = assemble(replace(plan, placement=replace(plan.placement, offload=offload)))
    plain = build_pipeline(demo, device="cpu", dtype="fp32")
    assert np.array_equal(picture(moved.pipe), picture(plain.pipe))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("offload", OFFLOADS)
def test_on_a_gpu_every_offload_gives_the_same_picture(demo: Path, offload: Offload) -> None:
    built = build_pipeline(demo, device="cuda:0", dtype="fp32", offload=offload)
    plain = build_pipeline(demo, device="cpu", dtype="fp32")
    assert np.abs(picture(built.pipe) - picture(plain.pipe)).max() < 0.02
