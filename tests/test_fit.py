"""Parts that do not belong together are told apart from their configs, before torch is imported."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import diffusers
import pytest

from shardtool.errors import InputError, Problem
from shardtool.fit import check_partners, require_partners
from shardtool.part import read_component
from shardtool.parts import read_parts
from tests.models import copied, edited, flux_pipeline, pixart_pipeline, sd3_pipeline


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory, demo: Path) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("families")
    return {
        "sd3": sd3_pipeline(folder / "sd3", demo),
        "flux": flux_pipeline(folder / "flux", demo),
        "pixart": pixart_pipeline(folder / "pixart"),
    }


def problems(base: Path, **overrides: Path) -> tuple[Problem, ...]:
    return check_partners(read_parts(base, overrides))


def test_what_belongs_together_fits(demo: Path, sd: Path, families: dict[str, Path]) -> None:
    for base in (demo, sd, *families.values()):
        assert problems(base) == (), base


def test_a_unet_of_another_width_is_named_with_both_numbers(demo: Path, tmp_path: Path) -> None:
    unet = copied(demo / "unet", tmp_path / "unet")
    edited(unet / "config.json", cross_attention_dim=768)
    (problem,) = problems(demo, unet=unet)
    assert problem.code == "partner_mismatch"
    assert "cross_attention_dim 768, text encoders give 160" in problem.message
    assert problem.path == str(unet / "config.json")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"cross_attention_dim": 768, "addition_embed_type": None}, "Stable Diffusion 1.x"),
        ({"cross_attention_dim": 1024, "addition_embed_type": None}, "Stable Diffusion 2.x"),
        ({"cross_attention_dim": 768, "addition_embed_type": None, "in_channels": 9}, "1.x, for inpainting"),
        ({"cross_attention_dim": 2048, "projection_class_embeddings_input_dim": 2816}, "Stable Diffusion XL"),
        ({"cross_attention_dim": [1280, 1280], "projection_class_embeddings_input_dim": 2560}, "the refiner"),
    ],
)
def test_a_unet_of_a_known_family_is_called_by_name(
    demo: Path, tmp_path: Path, settings: dict[str, object], name: str
) -> None:
    unet = copied(demo / "unet", tmp_path / "unet")
    edited(unet / "config.json", **settings)
    assert all(name in problem.message for problem in problems(demo, unet=unet))
    assert problems(demo, unet=unet) != ()


def test_sdxl_and_sd_unets_are_not_exchanged(demo: Path, sd: Path) -> None:
    """With the right widths by chance, the conditioning still tells."""
    into_sdxl = " ".join(problem.message for problem in problems(demo, unet=sd / "unet"))
    into_sd = " ".join(problem.message for problem in problems(sd, unet=demo / "unet"))
    assert "it takes no pooled text" in into_sdxl
    assert "it wants pooled text" in into_sd
    assert "the embedded demo model" in into_sd


def test_the_pooled_projection_is_compared(demo: Path, tmp_path: Path) -> None:
    encoder = copied(demo / "text_encoder_2", tmp_path / "text_encoder_2")
    edited(encoder / "config.json", projection_dim=64)
    (problem,) = problems(demo, text_encoder_2=encoder)
    assert "projection_class_embeddings_input_dim 192" in problem.message
    assert "pooled text (64) and 6 sizes of 16 give 160" in problem.message


def test_a_vae_with_other_latents_does_not_fit(demo: Path, tmp_path: Path) -> None:
    vae = copied(demo / "vae", tmp_path / "vae")
    edited(vae / "config.json", latent_channels=16)
    (problem,) = problems(demo, vae=vae)
    assert "in_channels 4, the VAE has 16 latent channels" in problem.message


def test_a_transformer_that_fills_masked_pictures_takes_more_channels(
    families: dict[str, Path], tmp_path: Path
) -> None:
    base = copied(families["flux"], tmp_path / "base")
    edited(base / "model_index.json", _class_name="FluxFillPipeline")
    edited(base / "transformer" / "config.json", in_channels=24, out_channels=4)
    assert problems(base) == ()


@pytest.mark.parametrize("key", ["scaling_factor", "shift_factor", "latents_mean", "latents_std"])
@pytest.mark.parametrize("value", ["x", True, [1, "x"], {}, pytest.param(10**400, id="huge")])
def test_what_a_picture_is_scaled_with_is_a_number(demo: Path, tmp_path: Path, key: str, value: object) -> None:
    """The VAE is asked for it after all the steps, when the picture is made."""
    vae = copied(demo / "vae", tmp_path / "vae")
    edited(vae / "config.json", **{key: value})
    (problem,) = problems(demo, vae=vae)
    assert (problem.code, problem.path) == ("config_invalid", str(vae / "config.json"))
    assert key in problem.message
    edited(vae / "config.json", **{key: [0.5, 1, 2, 3] if key.startswith("latents") else None})
    assert problems(demo, vae=vae) == ()


def test_a_projection_of_the_text_before_cross_attention_counts(sd: Path, tmp_path: Path) -> None:
    """Kandinsky-like UNets project the text themselves; the width before that is what must fit."""
    unet = copied(sd / "unet", tmp_path / "unet")
    edited(unet / "config.json", cross_attention_dim=999, encoder_hid_dim=32)
    assert problems(sd, unet=unet) == ()


@pytest.mark.parametrize(
    ("family", "component", "settings", "fault"),
    [
        ("sd3", "transformer", {"joint_attention_dim": 64}, "joint_attention_dim 64, the text encoders give 32"),
        ("sd3", "transformer", {"pooled_projection_dim": 32}, "pooled_projection_dim 32, the text encoders give 64"),
        ("sd3", "transformer", {"in_channels": 16}, "in_channels 16, the VAE has 4"),
        ("flux", "transformer", {"pooled_projection_dim": 768}, "pooled_projection_dim 768, the text encoders give 32"),
        ("flux", "vae", {"latent_channels": 16}, "in_channels 4, the VAE has 64"),
        ("pixart", "transformer", {"caption_channels": 4096}, "caption_channels 4096, the text encoders give 32"),
    ],
)
def test_transformers_are_compared_with_their_encoders(
    families: dict[str, Path], tmp_path: Path, family: str, component: str, settings: dict[str, int], fault: str
) -> None:
    folder = copied(families[family] / component, tmp_path / component)
    edited(folder / "config.json", **settings)
    assert [
        problem.message for problem in problems(families[family], **{component: folder}) if fault in problem.message
    ]


def test_a_scheduler_of_the_other_kind_does_not_fit(demo: Path, families: dict[str, Path], tmp_path: Path) -> None:
    base = copied(demo, tmp_path / "base")
    edited(base / "model_index.json", scheduler=["diffusers", "FlowMatchEulerDiscreteScheduler"])
    (problem,) = problems(base)
    assert "scheduler of flow matching" in problem.message
    other = copied(families["sd3"], tmp_path / "sd3")
    edited(other / "model_index.json", scheduler=["diffusers", "EulerDiscreteScheduler"])
    (problem,) = problems(other)
    assert "by noise prediction" in problem.message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("num_train_timesteps", steps) for steps in (10**9, 0, -1, "1000", True, 1e3)),  # tables of that length
        *(("prediction_type", word) for word in ("banana", "", 3, True, ["epsilon"], {})),  # asked for at each step
    ],
)
def test_settings_that_no_scheduler_runs_with_are_refused(demo: Path, tmp_path: Path, key: str, value: object) -> None:
    scheduler = copied(demo / "scheduler", tmp_path / "scheduler")
    edited(scheduler / "scheduler_config.json", **{key: value})
    (problem,) = problems(demo, scheduler=scheduler)
    assert (problem.code, problem.path) == ("config_invalid", str(scheduler / "scheduler_config.json"))
    assert key in problem.message


def test_every_prediction_that_a_scheduler_of_diffusers_knows_is_let_through(demo: Path, tmp_path: Path) -> None:
    """The schedulers' own source is the list: each comparison of prediction_type with a word."""
    sources = (Path(diffusers.__file__).parent / "schedulers").glob("scheduling_*.py")
    text = "".join(path.read_text("utf-8") for path in sources)
    known = set(re.findall(r'prediction_type == "(\w+)"', text))
    assert {"epsilon", "v_prediction", "sample"} <= known
    scheduler = copied(demo / "scheduler", tmp_path / "scheduler")
    for predicted in sorted(known):
        edited(scheduler / "scheduler_config.json", prediction_type=predicted)
        assert problems(demo, scheduler=scheduler) == ()


def test_the_hint_names_what_came_from_elsewhere(demo: Path, tmp_path: Path) -> None:
    encoder = copied(demo / "text_encoder", tmp_path / "text_encoder")
    edited(encoder / "config.json", hidden_size=128)
    (problem,) = problems(demo, text_encoder=encoder)
    assert problem.hint is not None and "text_encoder came from elsewhere" in problem.hint
    base = copied(demo, tmp_path / "base")
    edited(base / "text_encoder" / "config.json", hidden_size=128)
    (problem,) = problems(base)
    assert problem.hint is not None and "from one place" in problem.hint


def test_a_tokenizer_that_is_longer_than_its_encoder_does_not_fit(demo: Path, tmp_path: Path) -> None:
    base = copied(demo, tmp_path / "base")
    edited(base / "tokenizer" / "tokenizer_config.json", model_max_length=77)
    (problem,) = problems(base)
    assert "77 tokens" in problem.message
    assert "32 positions" in problem.message


def test_all_that_is_wrong_is_said_at_once(demo: Path, tmp_path: Path) -> None:
    unet = copied(demo / "unet", tmp_path / "unet")
    edited(unet / "config.json", cross_attention_dim=768, in_channels=9, projection_class_embeddings_input_dim=2816)
    with pytest.raises(InputError) as caught:
        require_partners(read_parts(demo, {"unet": unet}))
    assert len(caught.value.problems) == 3


# Which part comes from where


def test_a_component_that_is_replaced_need_not_exist(demo: Path, tmp_path: Path) -> None:
    base = copied(demo, tmp_path / "base")
    shutil.rmtree(base / "unet")
    with pytest.raises(InputError) as caught:
        read_parts(base)
    assert (caught.value.code, caught.value.path) == ("component_missing", str(base / "unet"))
    assert read_parts(base, {"unet": demo / "unet"}).parts["unet"].folder == demo / "unet"
    assert read_parts(base, given={"unet": {}}).parts.keys() == set(read_parts(demo).parts) - {"unet"}


def test_a_pipeline_given_for_a_component_stands_for_its_own(demo: Path, sd: Path) -> None:
    assert read_parts(demo, {"unet": demo}).parts["unet"].folder == demo / "unet"
    assert read_parts(sd, {"vae": demo}).parts["vae"].folder == demo / "vae"


def test_a_weights_file_with_its_config_beside_it_is_a_component(demo: Path) -> None:
    file = demo / "unet" / "diffusion_pytorch_model.safetensors"
    part = read_parts(demo, {"unet": file}).parts["unet"]
    assert part.class_name == "UNet2DConditionModel"
    assert part.checkpoint is not None
    assert part.checkpoint.files[0].path == file


def test_a_name_that_the_pipeline_has_not_is_refused_with_those_it_has(demo: Path) -> None:
    with pytest.raises(InputError, match="no component 'transformer'") as caught:
        read_parts(demo, {"transformer": demo / "unet"})
    assert "text_encoder_2" in (caught.value.hint or "")


def test_a_component_of_another_kind_is_refused(demo: Path) -> None:
    with pytest.raises(InputError, match="AutoencoderKL, and that of the pipeline's unet is UNet2D"):
        read_parts(demo, {"unet": demo / "vae"})


def test_every_damaged_part_is_reported(demo: Path, tmp_path: Path) -> None:
    base = copied(demo, tmp_path / "base")
    for name in ("unet", "vae"):
        file = base / name / "diffusion_pytorch_model.safetensors"
        file.write_bytes(file.read_bytes()[:-10])
    (base / "text_encoder" / "config.json").unlink()
    with pytest.raises(InputError) as caught:
        read_parts(base)
    assert {problem.code for problem in caught.value.problems} == {"truncated", "config_missing"}
    assert len(caught.value.problems) == 3


def test_a_variant_that_a_component_lacks_is_refused_with_those_there_are(demo: Path) -> None:
    with pytest.raises(InputError, match="present: default"):
        read_parts(demo, variant="fp16")


# Whose code is run


@pytest.mark.parametrize(
    "entry",
    [
        ["os", "system"],
        ["my_module", "MyUNet"],
        ["diffusers_modules", "Evil"],
        ["unet.evil", "UNet2DConditionModel"],
        ["diffusers", "models.modeling_utils"],
        ["transformers", "__import__"],
        ["shardtool.pipeline", "build_pipeline"],
    ],
)
def test_a_class_from_elsewhere_is_refused(demo: Path, tmp_path: Path, entry: list[str]) -> None:
    base = copied(demo, tmp_path / "base")
    edited(base / "model_index.json", unet=entry)
    with pytest.raises(InputError) as caught:
        read_parts(base)
    assert caught.value.code == "foreign_class"
    assert "unet" in caught.value.message


def test_a_module_of_diffusers_pipelines_is_let_through(demo: Path, sd: Path, tmp_path: Path) -> None:
    base = copied(sd, tmp_path / "base")
    copied(demo / "scheduler", base / "safety_checker")
    edited(base / "model_index.json", safety_checker=["stable_diffusion", "StableDiffusionSafetyChecker"])
    assert read_parts(base).parts["safety_checker"].library == "stable_diffusion"


def test_a_config_that_names_no_class_is_refused(demo: Path, tmp_path: Path) -> None:
    unet = copied(demo / "unet", tmp_path / "unet")
    (unet / "config.json").write_text("{}")
    with pytest.raises(InputError, match="names no class"):
        read_component(unet)


def test_all_this_is_known_without_torch(demo: Path, sd: Path) -> None:
    program = (
        "import sys, json; from pathlib import Path\n"
        "from shardtool.fit import check_partners; from shardtool.parts import read_parts\n"
        "from shardtool.needs import count_needs\n"
        f"base, unet = Path({str(demo)!r}), Path({str(sd)!r})\n"
        "parts = read_parts(base, {'unet': unet})\n"
        "count_needs(parts.with_weights)\n"
        "heavy = [name for name in ('torch', 'diffusers', 'numpy') if name in sys.modules]\n"
        "print(json.dumps([len(check_partners(parts)), heavy]))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found, heavy = json.loads(ran.stdout)
    assert found > 0
    assert heavy == []
