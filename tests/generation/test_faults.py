"""What goes wrong while a picture is made: no picture, no memory, a stop half way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from shardtool.errors import InputError, RunError, ShardtoolError
from shardtool.events import Event, Note
from shardtool.generation.kept import SCHEMA, Kept, read_kept, restore, write_kept
from shardtool.generation.series import generate_images
from shardtool.generation.studio import Studio
from shardtool.images.settings import Job
from shardtool.pipeline import BuiltPipeline
from shardtool.placement import Placement
from tests.generation.studios import STEPS, dog, pictures, planned


def keeping(into: list[Kept]) -> Any:
    def keep(job: Job, kept: Kept) -> Path:
        into.append(kept)
        return Path(f"kept-{job.seed}")

    return keep


def overflow_in_half(vae: torch.nn.Module) -> Any:
    """A VAE that gives NaN unless it runs in fp32, as SDXL's does in fp16."""

    def spoil(module: torch.nn.Module, _: Any, output: torch.Tensor) -> torch.Tensor:
        return output if output.dtype == torch.float32 else output * torch.nan

    return vae.decoder.register_forward_hook(spoil)  # type: ignore[operator,union-attr]


def test_a_vae_that_overflows_is_run_once_more_in_fp32(fresh: BuiltPipeline) -> None:
    expected = dog(fresh)
    fresh.pipe.vae.to(torch.bfloat16)
    overflow_in_half(fresh.pipe.vae)
    told: list[Event] = []
    (made,) = pictures(fresh, Studio(fresh, on_event=told.append), prompts=["dog"], seed=["7"])
    assert made.retried
    assert [event.code for event in told if isinstance(event, Note)] == ["vae_retried"]
    assert fresh.pipe.vae.dtype == torch.bfloat16
    # Its weights have lost their last bits in bf16, so the picture is near and not the same.
    difference = sum(abs(a - b) for a, b in zip(made.image.tobytes(), expected.tobytes(), strict=True))
    assert difference / len(expected.tobytes()) < 3


def test_what_is_no_picture_in_fp32_either_is_an_error_with_the_latents_kept(fresh: BuiltPipeline) -> None:
    fresh.pipe.vae.decoder.register_forward_hook(lambda _, __, output: output * torch.nan)
    kept: list[Kept] = []
    with pytest.raises(RunError, match=r"image 1 \(seed 7\): 100% .* latents kept in kept-7") as error:
        dog(fresh, Studio(fresh, keep=keeping(kept)))
    assert error.value.code == "nan_image"
    assert torch.isfinite(kept[0].latents).all()


def test_one_colour_all_over_is_no_picture(fresh: BuiltPipeline) -> None:
    fresh.pipe.vae.decoder.register_forward_hook(lambda _, __, output: output * 0)
    with pytest.raises(RunError, match="one colour all over"):
        dog(fresh)


def test_latents_that_are_no_numbers_are_an_error(fresh: BuiltPipeline) -> None:
    fresh.pipe.unet.register_forward_hook(lambda _, __, output: (output[0] * torch.inf,))
    with pytest.raises(RunError, match="of the latents are NaN or infinite"):
        dog(fresh)


@pytest.mark.parametrize(
    ("offload", "hint"),
    [("none", "--offload model"), ("model", "--offload group"), ("group", "--offload sequential")],
)
def test_out_of_memory_names_the_next_offload(fresh: BuiltPipeline, offload: Any, hint: str) -> None:
    def exhaust(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    fresh.pipe.unet.register_forward_pre_hook(exhaust)
    placed = replace(fresh, placement=Placement("cuda:0", "fp16", offload))
    with pytest.raises(RunError) as error:
        dog(placed)
    assert error.value.code == "out_of_memory"
    assert (error.value.hint or "").startswith(f"try {hint} or ")


def test_out_of_memory_on_the_cpu_is_caught_too(fresh: BuiltPipeline) -> None:
    with pytest.raises(RunError) as error:
        fresh.pipe.unet.register_forward_pre_hook(lambda *_: torch.empty(2**60))
        dog(fresh)
    assert error.value.code == "out_of_memory"
    assert "offload" not in (error.value.hint or "")


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (lambda *_: torch.ones(2) @ torch.ones(3), "RuntimeError: inconsistent tensor size"),
        (lambda *_: "x" / 2, "TypeError: unsupported operand"),
        (lambda *_: {}["x"], "KeyError"),
    ],
)
def test_other_failures_of_a_model_are_told_as_such(fresh: BuiltPipeline, fails: Any, words: str) -> None:
    """Neither as memory nor as a bug of this program: classes and configs come from elsewhere."""
    fresh.pipe.unet.register_forward_pre_hook(fails)
    with pytest.raises(RunError, match=words) as error:
        dog(fresh)
    assert (error.value.code, error.value.exit_code) == ("model_failed", 5)
    assert error.value.__cause__ is not None


def test_keep_going_makes_the_others_and_returns_the_failures(fresh: BuiltPipeline) -> None:
    calls: list[int] = []

    def spoil(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return output * torch.nan if len(calls) == 2 else output

    fresh.pipe.vae.decoder.register_forward_hook(spoil)
    made: list[int] = []
    jobs = planned(prompts=["dog"], seed=["1-3"], overwrite=True).jobs
    failures = generate_images(Studio(fresh), jobs, lambda one: made.append(one.job.seed), keep_going=True)
    assert made == [1, 3]
    assert [(one.job.seed, one.error.code) for one in failures] == [(2, "nan_image")]


def test_what_was_made_before_a_failure_is_saved(fresh: BuiltPipeline) -> None:
    made: list[int] = []

    def save(picture: Any) -> None:
        made.append(picture.job.seed)
        if picture.job.seed == 2:
            raise RunError("disk full", code="write_failed")

    jobs = planned(prompts=["dog"], seed=["1-5"], overwrite=True).jobs
    with pytest.raises(RunError, match="disk full"):
        generate_images(Studio(fresh), jobs, save)
    assert made in ([1, 2], [1, 2, 3])


SCHEDULERS = [None, "euler-a", "dpmpp-2m", "unipc", "heun", "pndm", "ddim"]


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_picture_that_was_stopped_goes_on_as_if_it_had_not_been(
    built: BuiltPipeline, tmp_path: Path, scheduler: str | None
) -> None:
    """Through the file, for schedulers with memory, with noise of their own, and of second order."""
    options = {} if scheduler is None else {"scheduler": scheduler}
    whole = dog(built, steps=5, **options)
    for stop_after in (1, 3):
        kept: list[Kept] = []
        steps: list[int] = []
        studio = Studio(
            built,
            stop=lambda limit=stop_after, steps=steps: len(steps) == limit,
            step_done=lambda _, steps=steps: steps.append(1),
            keep=keeping(kept),
        )
        with pytest.raises(KeyboardInterrupt):
            dog(built, studio, steps=5, **options)
        write_kept(tmp_path / "l.safetensors", kept[0])
        (job,) = planned(prompts=["dog"], seed=["7"], steps=5, overwrite=True, **options).jobs
        continued = Studio(built).make(job, read_kept(tmp_path / "l.safetensors"))
        assert continued.image.tobytes() == whole.tobytes()


def test_the_unet_does_not_run_for_the_steps_that_are_done(built: BuiltPipeline) -> None:
    kept: list[Kept] = []
    runs: list[int] = []
    steps: list[int] = []
    hook = built.pipe.unet.conv_in.register_forward_hook(lambda *_: runs.append(1))
    try:
        studio = Studio(built, stop=lambda: len(steps) == 2, step_done=lambda _: steps.append(1), keep=keeping(kept))
        with pytest.raises(KeyboardInterrupt):
            dog(built, studio, steps=5)
        assert len(runs) == 2
        (job,) = planned(prompts=["dog"], seed=["7"], steps=5, overwrite=True).jobs
        Studio(built).make(job, kept[0])
        assert len(runs) == 5
    finally:
        hook.remove()
    assert "forward" not in vars(built.pipe.unet)


def test_kept_latents_hold_tensors_and_json_only(tmp_path: Path) -> None:
    path = tmp_path / "l.safetensors"
    state = {"a": [None, torch.ones(2)], "b": 1, "c": "x", "d": torch.zeros(1, dtype=torch.int64)}
    generator = torch.Generator("cpu").manual_seed(1).get_state()
    write_kept(path, Kept(3, torch.ones(1, 4, 8, 8), state, generator, {"key": "k"}))
    found = read_kept(path)
    assert (found.step, found.record) == (3, {"key": "k"})
    assert torch.equal(found.generator, generator)
    assert found.scheduler["a"][0] is None
    assert torch.equal(found.scheduler["a"][1], torch.ones(2))
    assert (found.scheduler["b"], found.scheduler["c"]) == (1, "x")


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200))
def test_any_other_file_is_an_input_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "l.safetensors"
    path.write_bytes(data)
    with pytest.raises(InputError) as error:
        read_kept(path)
    assert error.value.code == "latents_invalid"


@pytest.mark.parametrize(
    "header",
    [
        "[" * 100_000,
        "[]",
        json.dumps({"schema": SCHEMA, "step": 1, "scheduler": {"a": {"tensor": "nowhere"}}, "record": {}}),
        json.dumps({"schema": SCHEMA, "step": 1, "scheduler": [], "record": {}}),
        json.dumps({"schema": SCHEMA, "step": float("inf"), "scheduler": {}, "record": {}}),
        json.dumps({"schema": SCHEMA, "step": True, "scheduler": {}, "record": {}}),
        json.dumps({"schema": SCHEMA, "step": 1, "scheduler": {}, "record": "none"}),
    ],
)
def test_latents_that_say_what_makes_no_sense_are_an_input_error(tmp_path: Path, header: str) -> None:
    path = tmp_path / "l.safetensors"
    save_file({"latents": torch.ones(1), "generator": torch.ones(1)}, path, metadata={"shardtool": header})
    with pytest.raises(InputError) as error:
        read_kept(path)
    assert error.value.code == "latents_invalid"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"step": 10**6}, InputError),
        ({"latents": torch.ones(1, 4, 3, 3)}, InputError),
        ({"generator": torch.ones(3)}, RunError),
        ({"scheduler": {"sigmas": 1}}, RunError),
    ],
)
def test_latents_of_another_picture_make_none(
    fresh: BuiltPipeline, changes: dict[str, Any], expected: type[ShardtoolError]
) -> None:
    (job,) = planned(prompts=["dog"], seed=["7"]).jobs
    generator = torch.Generator("cpu").manual_seed(7).get_state()
    begun = replace(Kept(1, torch.ones(1, 4, 8, 8), {}, generator, {}), **changes)
    with pytest.raises(expected):
        Studio(fresh).make(job, begun)


def test_only_what_changes_from_step_to_step_is_put_back(fresh: BuiltPipeline) -> None:
    scheduler = fresh.pipe.scheduler
    before = dict(scheduler.config)
    restore(scheduler, {"_internal_dict": [], "config": [], "set_timesteps": None, "no_such": 1})
    assert dict(scheduler.config) == before
    assert callable(scheduler.set_timesteps)
    assert not hasattr(scheduler, "no_such")


def test_a_scheduler_that_its_config_does_not_make_is_an_error_of_the_run(fresh: BuiltPipeline) -> None:
    fresh.pipe.scheduler.register_to_config(beta_schedule="banana")
    with pytest.raises(RunError, match="banana") as error:
        dog(fresh)
    assert error.value.code == "model_failed"


def test_steps_is_the_number_of_runs(built: BuiltPipeline) -> None:
    assert dog(built).tobytes() == dog(built, steps=STEPS).tobytes() != dog(built, steps=STEPS + 1).tobytes()
