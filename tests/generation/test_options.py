"""What each option of a run does to the pixels; plain diffusers is the referee wherever it can do the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from diffusers import AutoencoderKL, StableDiffusionXLImg2ImgPipeline, StableDiffusionXLInpaintPipeline
from PIL import Image, ImageDraw

from shardtool.errors import InputError
from shardtool.events import Event, Note
from shardtool.generation.equipping import equip
from shardtool.generation.series import generate_images
from shardtool.generation.studio import Studio
from shardtool.pipeline import BuiltPipeline, build_pipeline
from tests.generation.studios import STEPS, dog, pictures, plain_image, plain_pipeline, planned
from tests.models import sd_pipeline

# diffusers hands tensors to numpy in a way that numpy is giving up.
pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 × 64 pixels to begin with: a yellow disc on blue."""
    path = tmp_path_factory.mktemp("start") / "start.png"
    image = Image.new("RGB", (64, 64), "#2040a0")
    ImageDraw.Draw(image).ellipse((12, 12, 52, 52), fill="#f0d020")
    image.save(path)
    return path


@pytest.fixture(scope="module")
def mask(start: Path) -> Path:
    """White in the left half, which is redrawn."""
    path = start.with_name("mask.png")
    image = Image.new("L", (64, 64), 0)
    image.paste(255, (0, 0, 32, 64))
    image.save(path)
    return path


@pytest.mark.parametrize(
    ("name", "class_name", "settings"),
    [
        ("euler-a", "EulerAncestralDiscreteScheduler", {}),
        ("ddim", "DDIMScheduler", {}),
        ("dpmpp-2m", "DPMSolverMultistepScheduler", {"algorithm_type": "dpmsolver++"}),
        ("euler-karras", "EulerDiscreteScheduler", {"use_karras_sigmas": True}),
        ("heun", "HeunDiscreteScheduler", {}),
    ],
)
def test_scheduler_is_the_class_with_the_models_own_config(
    built: BuiltPipeline, demo: Path, name: str, class_name: str, settings: dict[str, Any]
) -> None:
    pipe = plain_pipeline(demo)
    pipe.scheduler = getattr(diffusers, class_name).from_config(pipe.scheduler.config, **settings)
    assert dog(built, scheduler=name).tobytes() == plain_image(pipe, "dog", 7).tobytes()
    assert dog(built, scheduler=name).tobytes() != dog(built).tobytes()


def test_a_scheduler_that_does_not_suit_the_model_is_told_once(built: BuiltPipeline) -> None:
    told: list[Event] = []
    pictures(built, Studio(built, on_event=told.append), prompts=["dog", "cat"], seed=["7"], scheduler="heun")
    assert [event.code for event in told if isinstance(event, Note)] == ["scheduler_unfit"]


def test_image_and_strength_are_those_of_diffusers(built: BuiltPipeline, plain: Any, start: Path) -> None:
    pipe = StableDiffusionXLImg2ImgPipeline(**plain.components)
    pipe.set_progress_bar_config(disable=True)
    image = Image.open(start)
    options = {"image": start, "steps": 6}
    for strength in (0.5, 0.8):
        expected = plain_image(pipe, "dog", 7, image=image, strength=strength, num_inference_steps=6)
        assert dog(built, **options, strength=strength).tobytes() == expected.tobytes()
    default = dog(built, **options).tobytes()
    assert default not in (dog(built, steps=6).tobytes(), dog(built, **options, strength=0.9).tobytes())


def test_an_image_is_brought_to_the_size_asked_for(built: BuiltPipeline, start: Path) -> None:
    assert dog(built, image=start).size == (64, 64)
    assert dog(built, image=start, width=96, height=64).size == (96, 64)


def test_mask_redraws_only_where_it_is_white(built: BuiltPipeline, plain: Any, start: Path, mask: Path) -> None:
    pipe = StableDiffusionXLInpaintPipeline(**plain.components)
    pipe.set_progress_bar_config(disable=True)
    sources = {"image": Image.open(start), "mask_image": Image.open(mask)}
    size = {"width": 64, "height": 64}
    expected = plain_image(pipe, "dog", 7, **sources, **size, strength=0.9, num_inference_steps=6)
    made = dog(built, image=start, mask=mask, strength=0.9, steps=6)
    assert made.tobytes() == expected.tobytes()
    whole = dog(built, image=start, strength=0.9, steps=6)
    assert made.crop((48, 0, 64, 64)).tobytes() != whole.crop((48, 0, 64, 64)).tobytes()


def test_vae_is_the_one_that_is_named(demo: Path, tmp_path: Path) -> None:
    vae = AutoencoderKL.from_pretrained(demo / "vae", dtype=torch.float32)
    with torch.no_grad():
        vae.decoder.conv_out.bias += 0.3
    vae.save_pretrained(tmp_path / "vae")
    other = build_pipeline(demo, overrides={"vae": tmp_path / "vae"}, device="cpu")
    assert dog(other).tobytes() == plain_image(plain_pipeline(demo, vae=vae), "dog", 7).tobytes()


def test_vae_tiling_is_diffusers_own(fresh: BuiltPipeline, plain: Any, demo: Path) -> None:
    whole = dog(fresh, size="128x128")
    equip(fresh, planned(prompts=["dog"], vae_tiling=True))
    tiled = plain_pipeline(demo)
    tiled.vae.enable_tiling()
    made = dog(fresh, size="128x128")
    assert made.tobytes() == plain_image(tiled, "dog", 7, width=128, height=128).tobytes()
    assert made.tobytes() != whole.tobytes()


def test_vae_slicing_is_switched_on_and_changes_no_pixel(fresh: BuiltPipeline) -> None:
    before = dog(fresh)
    equip(fresh, planned(prompts=["dog"], vae_slicing=True))
    assert fresh.pipe.vae.use_slicing
    assert dog(fresh).tobytes() == before.tobytes()


def test_compile_compiles_the_unet_in_place(fresh: BuiltPipeline) -> None:
    """The compiler itself takes a minute here, so the picture is made with its stance set to run eagerly."""
    before = dog(fresh)
    equip(fresh, planned(prompts=["dog"], compile=True))
    assert fresh.pipe.unet._compiled_call_impl is not None
    with torch.compiler.set_stance("force_eager"):
        assert dog(fresh).tobytes() == before.tobytes()


LONG = " ".join(["red circle"] * 15) + " dog"


def test_a_long_prompt_is_cut_as_diffusers_cuts_it(built: BuiltPipeline, plain: Any) -> None:
    assert dog(built, prompts=[LONG]).tobytes() == plain_image(plain, LONG, 7).tobytes()
    assert dog(built, prompts=[LONG]).tobytes() == dog(built, prompts=[LONG + " on the grass"]).tobytes()


def test_chunk_encodes_all_of_it_in_windows(built: BuiltPipeline, plain: Any) -> None:
    """Each window by itself through diffusers' own ``encode_prompt``, side by side; the pooled text is the first's."""
    words = LONG.split()  # each is one token, and 30 fit between the begin and the end token
    windows = [" ".join(words[:30]), " ".join(words[30:])]
    one, two = (plain.encode_prompt(text, negative_prompt="cat") for text in windows)
    empty = plain.encode_prompt("dog", negative_prompt="")
    embeddings = {
        "prompt_embeds": torch.cat([one[0], two[0]], dim=1),
        "negative_prompt_embeds": torch.cat([one[1], empty[1]], dim=1),
        "pooled_prompt_embeds": one[2],
        "negative_pooled_prompt_embeds": one[3],
    }
    from shardtool.generation.encoding import PromptEncoder

    encoded = PromptEncoder(built.pipe, windows=True).encode(
        planned(prompts=[LONG], negative_prompt="cat").jobs[0].settings
    )
    assert encoded.keys() == embeddings.keys()
    for name, tensor in embeddings.items():
        assert torch.equal(encoded[name], tensor), name
    longer = dog(built, Studio(built, windows=True), prompts=[LONG])
    assert longer.tobytes() != dog(built, prompts=[LONG]).tobytes()
    assert longer.tobytes() != dog(built, Studio(built, windows=True), prompts=[LONG + " on the grass"]).tobytes()


def test_chunk_changes_nothing_for_a_prompt_that_fits(built: BuiltPipeline) -> None:
    assert dog(built, Studio(built, windows=True)).tobytes() == dog(built).tobytes()


def test_windows_of_one_window_encode_as_diffusers_does(built: BuiltPipeline) -> None:
    """The windows' own code path, made to run for a short prompt, gives the same embeddings as ``encode_prompt``."""
    from shardtool.generation.encoding import PromptEncoder, _encode_windows

    settings = planned(prompts=["a dog"], negative_prompt="cat", prompt_2="a fox").jobs[0].settings
    with torch.inference_mode():
        ours = _encode_windows(built.pipe, settings, True)
        theirs = PromptEncoder(built.pipe).encode(settings)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


def test_encoded_prompts_are_used_again(built: BuiltPipeline) -> None:
    studio = Studio(built)
    calls: list[int] = []
    hook = built.pipe.text_encoder.register_forward_hook(lambda *_: calls.append(1))
    try:
        pictures(built, studio, prompts=["dog", "cat"], seed=["1-3"])
    finally:
        hook.remove()
    assert len(calls) == 2  # once for each prompt; SDXL's empty negative prompt is zeros


def test_a_picture_in_the_making_is_shown_every_n_steps(built: BuiltPipeline) -> None:
    shown: list[tuple[int, int, tuple[int, int]]] = []
    studio = Studio(built, show=lambda job, step, image: shown.append((job.seed, step, image.size)), show_every=2)
    plain_pixels = dog(built, steps=5).tobytes()
    assert dog(built, studio, steps=5).tobytes() == plain_pixels
    assert shown == [(7, 2, (64, 64)), (7, 4, (64, 64)), (7, 5, (64, 64))]


def test_a_large_preview_is_small(built: BuiltPipeline) -> None:
    shown: list[tuple[int, int]] = []
    studio = Studio(built, show=lambda *call: shown.append(call[2].size), show_every=1)
    dog(built, studio, steps=1, size="512x264")
    assert shown == [(256, 128), (512, 264)]


def test_other_kinds_of_pipeline_are_refused(built: BuiltPipeline) -> None:
    from dataclasses import replace

    class OtherPipeline:
        pass

    with pytest.raises(InputError) as error:
        Studio(replace(built, pipe=OtherPipeline()))
    assert error.value.code == "pipeline_unsupported"


def test_stable_diffusion_1_makes_the_pictures_of_diffusers(
    demo: Path, tmp_path: Path, start: Path, mask: Path
) -> None:
    """One text encoder, no pooled text; also from an image and with a mask."""
    folder = sd_pipeline(tmp_path / "sd", demo)
    small = build_pipeline(folder, device="cpu")
    plain = diffusers.StableDiffusionPipeline.from_pretrained(folder, dtype=torch.float32)
    options = {"model": str(folder), "size": "64x64"}
    made = dog(small, **options, negative_prompt="cat")
    assert made.tobytes() == plain_image(plain, "dog", 7, negative_prompt="cat", width=64, height=64).tobytes()
    from_image = diffusers.StableDiffusionImg2ImgPipeline(**plain.components, requires_safety_checker=False)
    expected = plain_image(from_image, "dog", 7, image=Image.open(start), strength=0.9, num_inference_steps=4)
    assert dog(small, **options, image=start, strength=0.9, steps=4).tobytes() == expected.tobytes()
    masked = dog(small, **options, image=start, mask=mask, strength=0.9, steps=4)
    assert masked.tobytes() != expected.tobytes()
    whole = dog(small, Studio(small, windows=True), **options, prompts=[LONG])
    assert whole.tobytes() != dog(small, **options, prompts=[LONG]).tobytes()


def test_progress_counts_every_step_and_every_image(built: BuiltPipeline) -> None:
    from shardtool.events import Advanced

    told: list[Event] = []
    studio = Studio(built, on_event=told.append)
    generate_images(studio, planned(prompts=["dog"], seed=["1-2"], overwrite=True).jobs, lambda _: None)
    assert told.count(Advanced("denoise")) == 2 * STEPS
    assert told.count(Advanced("images")) == 2
