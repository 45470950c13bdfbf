"""``shardtool generate`` as it is typed: what each option does to names and files, and what a bad value says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from cli.app import app
from shardtool.images.reading import read_settings
from tests.models import copied, edited


def run(*arguments: object, stdin: str | None = None, **environment: str) -> Result:
    typed = ["generate", *(str(argument) for argument in arguments)]
    return CliRunner().invoke(app, typed, input=stdin, env=dict(environment))


def made(*arguments: object, **more: Any) -> Result:
    """A run of two steps on the CPU that must succeed."""
    result = run(*arguments, "--steps", 2, "--device", "cpu", "-q", **more)
    assert result.exit_code == 0, result.output
    return result


def planned(*arguments: object, **more: Any) -> dict[str, Any]:
    """The plan of a dry run that must succeed."""
    result = run(*arguments, "--dry-run", "--json", **more)
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)["data"]
    return data


def pixels(path: Path) -> bytes:
    with Image.open(path) as image:
        return image.convert("RGB").tobytes()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def dog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The picture that the others are compared with."""
    path = tmp_path_factory.mktemp("dog") / "dog.png"
    made("dog", "--seed", 7, "-o", path)
    return path


# What a run says and writes.


def test_the_paths_are_the_output_and_the_rest_goes_to_stderr(elsewhere: Path) -> None:
    result = run("dog", "cat", "--seed", "3", "--steps", 2, "-o", "out/", "--device", "cpu")
    assert result.exit_code == 0
    assert result.stdout == "out/dog-3.png\nout/cat-3.png\n"
    assert "the embedded demo" in result.stderr
    assert {path.name for path in (elsewhere / "out").glob("*.png")} == {"dog-3.png", "cat-3.png"}


def test_a_drawn_seed_is_reported_and_makes_the_picture_again(elsewhere: Path) -> None:
    made("dog", "-o", "a.png")
    seed = read_settings(elsewhere / "a.png")["settings"]["seed"]
    made("dog", "-o", "b.png", "--seed", seed)
    assert pixels(elsewhere / "a.png") == pixels(elsewhere / "b.png")
    drawn = run("dog", "--dry-run", "-o", "c.png")
    assert re.search(r"seed: \d+, drawn", drawn.stderr)
    assert "drawn" not in run("dog", "--dry-run", "-o", "c.png", "--seed", 7).stderr


def test_json_names_every_image(dog: Path) -> None:
    result = made("dog", "cat", "--seed", 7, "--json", "-o", "o/")
    document = json.loads(result.stdout)
    assert document["schema"] == "shardtool.generate/1"
    images = document["data"]["images"]
    assert [(image["prompt"], image["seed"], image["status"]) for image in images] == [
        ("dog", 7, "made"),
        ("cat", 7, "made"),
    ]
    assert images[0]["pixel_sha256"] == read_settings(dog)["record"]["pixel_sha256"]
    assert images[0]["tokens"] == [{"field": "prompt", "tokens": 3, "limit": 32, "lost": ""}]
    assert document["data"]["placement"]["device"] == "cpu"
    assert document["data"]["environment"]["torch"]


def test_progress_json_counts_steps() -> None:
    result = run("dog", "--steps", 2, "--seed", 7, "--progress", "json", "--device", "cpu")
    events = [json.loads(line) for line in result.stderr.splitlines()]
    steps = [event["done"] for event in events if event.get("task") == "denoise" and event["event"] == "progress"]
    assert steps == [1, 2]


def test_a_dash_writes_one_png_to_stdout(dog: Path) -> None:
    result = made("dog", "--seed", 7, "-o", "-")
    Path("piped.png").write_bytes(result.stdout_bytes)
    assert pixels(Path("piped.png")) == pixels(dog)
    assert run("dog", "-o", "-", "-c", 2).exit_code == 2
    assert run("dog", "-o", "-", "--grid").exit_code == 2


# Asking.


def test_prompts_come_from_arguments_files_and_stdin(elsewhere: Path) -> None:
    (elsewhere / "p.txt").write_text("# two\na dog --s 5 --d 9\na cat --w 96\n")
    images = planned("a fox", "--prompts-file", "p.txt", "--prompt", "a bear", "-", stdin="a pig\n")["images"]
    assert [image["prompt"] for image in images] == ["a fox", "a pig", "a bear", "a dog", "a cat"]
    assert (images[3]["steps"], images[3]["seed"], images[4]["width"]) == (5, 9, 96)
    assert [image["prompt"] for image in planned("-", stdin='{"prompt": "a cow"}\n')["images"]] == ["a cow"]
    assert [image["prompt"] for image in planned("--prompts-file", "-", stdin="a cow\n")["images"]] == ["a cow"]


def test_standard_input_is_not_read_unless_asked() -> None:
    assert [image["prompt"] for image in planned("a dog", stdin="a cat\n")["images"]] == ["a dog"]


def test_seeds_and_counts() -> None:
    def seeds(*arguments: object) -> list[int]:
        return [image["seed"] for image in planned("dog", *arguments)["images"]]

    assert seeds("--seed", "1-3,9") == [1, 2, 3, 9]
    assert seeds("--seed", 1, "-s", 5) == [1, 5]
    assert seeds("--seed", 7, "--count", 3) == [7, 8, 9]
    first, second = seeds("-c", 2)
    assert second == first + 1
    assert seeds() != seeds()


@pytest.mark.parametrize(
    ("options", "setting", "value"),
    [
        (["--steps", "5"], "steps", 5),
        (["--num-inference-steps", "5"], "steps", 5),
        (["-g", "2.5"], "guidance", 2.5),
        (["--guidance-scale", "2.5"], "guidance", 2.5),
        (["--cfg-scale", "2.5"], "guidance", 2.5),
        (["-n", "cat"], "negative_prompt", "cat"),
        (["--negative-prompt-2", "cat"], "negative_prompt_2", "cat"),
        (["--prompt-2", "cat"], "prompt_2", "cat"),
        (["--scheduler", "euler-a"], "scheduler", "euler-a"),
        (["-W", "96"], "width", 96),
        (["-H", "96"], "height", 96),
        (["--size", "96x64"], "width", 96),
    ],
)
def test_an_option_is_the_setting(options: list[str], setting: str, value: object) -> None:
    assert planned("dog", *options)["images"][0][setting] == value
    assert planned("dog")["images"][0][setting] != value


def test_a_seed_picture_and_its_mask_change_the_picture(elsewhere: Path, dog: Path) -> None:
    Image.new("RGB", (64, 64), "#2040a0").save("start.png")
    Image.new("L", (64, 64), 0).save("mask.png")
    for name, options in (
        ("a.png", ("--strength", 0.9)),
        ("b.png", ("--strength", 0.5)),
        ("c.png", ("--mask", "mask.png")),
    ):
        result = run("dog", "--seed", 7, "-i", "start.png", "--steps", 4, "--device", "cpu", *options, "-o", name)
        assert result.exit_code == 0, result.output
    assert len({pixels(Path(name)) for name in ("a.png", "b.png", "c.png", str(dog))}) == 4
    assert "image" in read_settings(elsewhere / "a.png")["record"]["inputs"]


def test_environment_and_config_file_come_after_what_is_typed(elsewhere: Path) -> None:
    (elsewhere / "c.toml").write_text('[generate]\nsteps = 11\nguidance = 3\nprompts = ["a cow"]\n')
    (image,) = planned("--config", "c.toml", "--guidance", "4", SHARDTOOL_STEPS="12")["images"]
    assert (image["prompt"], image["steps"], image["guidance"]) == ("a cow", 12, 4.0)


def test_list_schedulers_lists_them() -> None:
    result = run("--list-schedulers")
    assert result.exit_code == 0
    assert "dpmpp-2m-sde" in result.stdout
    assert "DPMSolverMultistepScheduler" in result.stdout


# The model.


def test_the_model_is_the_demo_unless_something_else_is_named(demo: Path, elsewhere: Path) -> None:
    copy = elsewhere / "copy"
    shutil.copytree(demo, copy)
    assert planned("dog")["model"]["source"] == "demo"
    assert planned("dog", SHARDTOOL_MODEL="copy")["model"]["path"] == "copy"
    assert planned("dog", "--model", "demo", SHARDTOOL_MODEL="copy")["model"]["source"] == "demo"
    inside = planned("dog", "--unet", "copy/unet", SHARDTOOL_MODEL="demo")["model"]
    assert (inside["source"], inside["overrides"]) == ("copy", {"unet": "copy/unet"})


def test_a_unet_by_itself_finds_its_base_by_its_shape(demo: Path, elsewhere: Path) -> None:
    shutil.copytree(demo / "unet", elsewhere / "unet")
    assert planned("dog", "--unet", "unet")["model"]["source"] == "demo"
    config = json.loads((elsewhere / "unet" / "config.json").read_text())
    config["cross_attention_dim"] = 99
    (elsewhere / "unet" / "config.json").write_text(json.dumps(config))
    result = run("dog", "--unet", "unet", "--dry-run")
    assert result.exit_code == 2
    assert "--model" in result.stderr


def test_a_unet_of_another_family_is_refused_before_any_weight_is_read(demo: Path, elsewhere: Path) -> None:
    shutil.copytree(demo / "unet", elsewhere / "unet")
    config = json.loads((elsewhere / "unet" / "config.json").read_text())
    config |= {"cross_attention_dim": 768, "addition_embed_type": None}
    (elsewhere / "unet" / "config.json").write_text(json.dumps(config))
    result = run("dog", "--model", "demo", "--unet", "unet", "--dry-run")
    assert result.exit_code == 3
    assert "cross_attention_dim 768, text encoders give 160; looks like Stable Diffusion 1.x" in result.stderr


def test_a_sharded_unet_makes_the_same_picture_and_has_the_same_fingerprint(elsewhere: Path, dog: Path) -> None:
    sharded = CliRunner().invoke(app, ["shard", "demo", "--max-size", "1MB", "-o", "sharded"])
    assert sharded.exit_code == 0, sharded.output
    made("dog", "--seed", 7, "--unet", "sharded/unet", "-o", "a.png")
    assert pixels(elsewhere / "a.png") == pixels(dog)
    components = read_settings(elsewhere / "a.png")["record"]["model"]["components"]
    assert components == read_settings(dog)["record"]["model"]["components"]
    assert {"unet", "vae", "text_encoder", "text_encoder_2", "tokenizer", "scheduler"} <= set(components)


def test_every_component_can_come_from_elsewhere(demo: Path, elsewhere: Path, dog: Path) -> None:
    """As diffusers says of the same mixture; and the picture says what it was made of, so that it can be made again."""
    import torch
    from diffusers import DDIMScheduler
    from transformers import CLIPTextModel, CLIPTextModelWithProjection

    from tests.generation.studios import plain_image, plain_pipeline

    torch.manual_seed(0)
    scheduler = DDIMScheduler.from_pretrained(demo / "scheduler")
    one = CLIPTextModel(CLIPTextModel.config_class.from_pretrained(demo / "text_encoder")).eval()
    two = CLIPTextModelWithProjection(CLIPTextModelWithProjection.config_class.from_pretrained(demo / "text_encoder_2"))
    scheduler.save_pretrained("ddim")
    one.save_pretrained("one")
    two.save_pretrained("two")
    shutil.copytree(demo / "tokenizer", "words")
    replaced = {
        "text_encoder": (["--text-encoder", "one"], {"text_encoder": one}),
        "text_encoder_2": (["--text-encoder-2", "two"], {"text_encoder_2": two.eval()}),
        "scheduler": (["--component", "scheduler=ddim"], {"scheduler": scheduler}),
    }
    for name, (options, given) in replaced.items():
        made("dog", "--seed", 7, *options, "-o", f"{name}.png")
        theirs = plain_image(plain_pipeline(demo, **given), "dog", 7, num_inference_steps=2)
        assert pixels(Path(f"{name}.png")) == theirs.tobytes() != pixels(dog)
    everything = [*replaced["scheduler"][0], "--component", "tokenizer=words", "--component", "text_encoder=one"]
    made("dog", "--seed", 7, *everything, "-o", "all.png")
    recorded = read_settings(Path("all.png"))["record"]["model"]["overrides"]
    assert recorded == {"scheduler": "ddim", "tokenizer": "words", "text_encoder": "one"}
    made("--replay", "all.png", "--expect", "same")
    assert run("--replay", "all.png", "--expect", "same", "--component", "text_encoder=demo").exit_code == 1


def test_another_scheduler_or_tokenizer_is_another_picture(demo: Path, elsewhere: Path) -> None:
    """What is there already was made with the model's own, and is not taken for the picture that is asked for."""
    shutil.copytree(demo / "scheduler", "mine")
    config = json.loads(Path("mine/scheduler_config.json").read_text())
    Path("mine/scheduler_config.json").write_text(json.dumps(config | {"steps_offset": 0}))
    again = ["dog", "--seed", 7, "--steps", 2, "--device", "cpu", "-o", "a.png", "--skip-existing"]
    assert run(*again).exit_code == 0
    assert run(*again).exit_code == 0
    refused = run(*again, "--component", "scheduler=mine")
    assert refused.exit_code == 4
    assert "a.png exists and was made with other settings or another model" in refused.stderr


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("vae/config.json", {"scaling_factor": 0.5}),
        ("unet/config.json", {"norm_eps": 0.1}),
        ("text_encoder/config.json", {"hidden_act": "relu"}),
        ("model_index.json", {"scheduler": ["diffusers", "EulerAncestralDiscreteScheduler"]}),
        ("model_index.json", {"force_zeros_for_empty_prompt": False}),
    ],
)
def test_another_config_is_another_model(demo: Path, elsewhere: Path, file: str, changes: dict[str, Any]) -> None:
    """With the same weights; what was made before is not taken for it, and a replay says what differs."""
    copied(demo, elsewhere / "m")
    again = ["dog", "--model", "m", "--seed", 7, "--steps", 1, "--device", "cpu", "-o", "a.png", "--skip-existing"]
    assert run(*again).exit_code == 0
    edited(elsewhere / "m" / file, **changes)
    refused = run(*again)
    assert refused.exit_code == 4
    assert "made with other settings or another model" in refused.stderr
    replayed = json.loads(run("--replay", "a.png", "--expect", "same", "--device", "cpu", "--json").stdout)
    changed = {one["what"] for one in replayed["data"]["verdict"]["differences"]}
    part = file.partition("/")[0] if "/" in file else "scheduler" if "scheduler" in changes else "pipeline"
    assert f"model.configs.{part}" in changed


def test_who_wrote_a_config_makes_no_other_model(demo: Path, elsewhere: Path) -> None:
    copied(demo, elsewhere / "m")
    again = ["dog", "--model", "m", "--seed", 7, "--steps", 1, "--device", "cpu", "-o", "a.png", "--skip-existing"]
    assert run(*again).exit_code == 0
    edited(elsewhere / "m" / "unet" / "config.json", _diffusers_version="0.0", _name_or_path="x")
    edited(elsewhere / "m" / "text_encoder" / "config.json", transformers_version="0", dtype="float16")
    assert run(*again).exit_code == 0


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--component", "unet"], 2, '--component "unet" is not NAME=SOURCE'),
        (["--component", "unet=demo", "--unet", "demo:unet"], 2, "contradicts demo:unet"),
        (["--component", "u=demo"], 3, "has no component 'u' to replace"),
        (["--component", "vae=nowhere"], 3, "nowhere: no such file or folder"),
        (["--text-encoder", "demo:text_encoder_2"], 3, "text encoders give 192"),
    ],
)
def test_a_component_that_makes_no_sense_is_refused(options: list[str], code: int, told: str) -> None:
    result = run("dog", "--dry-run", *options)
    assert result.exit_code == code, result.output
    assert told in result.stderr


def test_a_pipeline_of_another_kind_is_refused_before_any_weight_is_read(demo: Path, elsewhere: Path) -> None:
    shutil.copytree(demo, elsewhere / "other")
    index = elsewhere / "other" / "model_index.json"
    index.write_text(index.read_text().replace("StableDiffusionXLPipeline", "StableDiffusionUpscalePipeline"))
    result = run("dog", "--model", "other", "--dry-run")
    assert result.exit_code == 3
    assert "supported are StableDiffusionXLPipeline" in result.stderr


@pytest.mark.parametrize("rest", [["--dry-run"], ["--skip-existing", "-o", "{dog}"]], ids=" ".join)
def test_where_nothing_is_made_neither_torch_nor_the_hubs_client_is_loaded(dog: Path, rest: list[str]) -> None:
    typed = ["generate", "dog", "--seed", "7", "--steps", "2", "--device", "cpu", "-q", *rest]
    program = (
        "import sys\nfrom cli.app import main\n"
        f"sys.argv = ['shardtool', *{[word.format(dog=dog) for word in typed]!r}]\n"
        "try:\n    main()\nexcept SystemExit as leaving:\n    assert not leaving.code\n"
        "print(sorted({'torch', 'diffusers', 'transformers', 'numpy', 'huggingface_hub'} & set(sys.modules)))\n"
    )
    root = str(Path(__file__).parent.parent.parent)
    environment = {**os.environ, "PYTHONPATH": root}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_a_lora_is_added_and_recorded(elsewhere: Path, dog: Path) -> None:
    import torch
    from safetensors.torch import save_file

    name = "unet.down_blocks.1.attentions.0.transformer_blocks.0.attn2.to_k"
    generator = torch.Generator().manual_seed(0)
    tensors = {
        f"{name}.lora_A.weight": torch.randn(4, 160, generator=generator),
        f"{name}.lora_B.weight": torch.randn(128, 4, generator=generator),
    }
    save_file(tensors, elsewhere / "style.safetensors")
    made("dog", "--seed", 7, "--lora", "style.safetensors:0.5", "-o", "a.png")
    assert pixels(elsewhere / "a.png") != pixels(dog)
    (lora,) = read_settings(elsewhere / "a.png")["record"]["model"]["lora"]
    assert (lora["source"], lora["scale"]) == ("style.safetensors", 0.5)
    result = run("--replay", "a.png", "--expect", "same", "-q")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "the same pixels")


def test_a_batch_size_is_taken_and_changes_no_pixel(elsewhere: Path, dog: Path) -> None:
    made("dog", "--seed", "7-8", "--batch-size", 2, "-o", "o/")
    assert pixels(elsewhere / "o" / "dog-7.png") == pixels(dog)
    assert "one by one" in run("dog", "--batch-size", 2, "--dry-run").stderr


def test_keep_going_makes_the_others_and_exits_5(elsewhere: Path) -> None:
    (elsewhere / "o").mkdir()
    (elsewhere / "o" / "cat").touch()  # no folder, so nothing can be written below it
    arguments = ("dog", "cat", "fox", "--seed", 7, "--steps", 2, "--device", "cpu", "-o", "o/{prompt}/{seed}", "-q")
    assert run(*arguments).exit_code == 5
    (elsewhere / "o" / "dog" / "7.png").unlink(missing_ok=True)
    result = run(*arguments, "--keep-going", "--json")
    assert result.exit_code == 5
    images = json.loads(result.stdout)["data"]["images"]
    assert [image["status"] for image in images] == ["made", "failed", "made"]
    assert images[1]["error"]["code"] == "write_failed"
    assert (elsewhere / "o" / "fox" / "7.png").exists()


# Getting.


def test_nothing_is_overwritten_unless_asked(elsewhere: Path, dog: Path) -> None:
    shutil.copy(dog, "a.png")
    before = (elsewhere / "a.png").read_bytes()
    result = run("cat", "-o", "a.png", "--steps", 2)
    assert result.exit_code == 4
    assert (elsewhere / "a.png").read_bytes() == before
    made("cat", "-o", "a.png", "--overwrite", "--seed", 7)
    assert pixels(elsewhere / "a.png") != pixels(dog)


@pytest.mark.parametrize("kind", ["png", "jpg", "webp"])
def test_format_and_metadata(elsewhere: Path, kind: str) -> None:
    made("dog", "--seed", 7, "--format", kind, "--metadata", "none")
    made("dog", "--seed", 7, "--format", kind, "-o", "pub/", "--metadata", "public")
    path = elsewhere / f"dog-7.{kind}"
    assert read_settings(path)["format"] == {"jpg": "jpeg"}.get(kind, kind)
    assert read_settings(path)["tool"] is None
    public = read_settings(elsewhere / "pub" / f"dog-7.{kind}")
    assert public["settings"]["prompt"] == "dog"
    assert "created" not in public["record"]


def test_sidecar_grid_and_gallery_are_written_and_listed(elsewhere: Path) -> None:
    result = made("dog", "cat", "--seed", 7, "-o", "o/", "--sidecar", "--grid", "--gallery")
    names = {path.name for path in (elsewhere / "o").iterdir()} - {".shardtool-run.jsonl"}
    assert names == {"dog-7.png", "cat-7.png", "dog-7.json", "cat-7.json", "grid.png", "gallery.html"}
    assert result.stdout.splitlines()[-2:] == ["o/grid.png", "o/gallery.html"]
    record = json.loads((elsewhere / "o" / "dog-7.json").read_text())
    assert record == read_settings(elsewhere / "o" / "dog-7.png")["record"]
    with Image.open(elsewhere / "o" / "grid.png") as sheet:
        assert sheet.width > 256
    assert (elsewhere / "o" / "gallery.html").read_text().count("<figure") == 2
    assert run("bear", "-o", "o/", "--grid").exit_code == 4


def test_preview_draws_nothing_where_there_is_no_terminal() -> None:
    result = run("dog", "--seed", 7, "--steps", 2, "--preview", "--device", "cpu")
    assert result.exit_code == 0
    assert "--preview shows nothing here" in result.stderr
    assert "▀" not in result.output


# Again.


def test_replay_makes_the_same_picture_and_says_so(dog: Path, elsewhere: Path) -> None:
    result = run("--replay", dog, "--expect", "same", "-q")
    assert (result.exit_code, result.stdout) == (0, "the same pixels\n")
    assert list(elsewhere.iterdir()) == []
    made("--replay", dog, "-o", "a.png")
    assert pixels(elsewhere / "a.png") == pixels(dog)


def test_a_replay_that_differs_exits_1_and_says_in_what(dog: Path) -> None:
    result = run("--replay", dog, "--guidance", 2, "--expect", "same", "--json", "-q")
    assert result.exit_code == 1
    verdict = json.loads(result.stdout)["data"]["verdict"]
    assert verdict["met"] is False
    assert verdict["differences"] == [{"what": "settings.guidance", "was": 5.0, "is": 2.0}]
    assert verdict["psnr"] > 5
    near = run("--replay", dog, "--guidance", 4.9, "--expect", "close:20", "-q")
    assert near.exit_code == 0
    assert "close enough" in near.stdout


def test_a_sidecar_is_replayed_like_its_image(elsewhere: Path) -> None:
    made("dog", "--seed", 7, "-o", "a.png", "--sidecar")
    assert run("--replay", "a.json", "--expect", "close", "-q").exit_code == 0
    (elsewhere / "a.png").unlink()
    assert run("--replay", "a.json", "--expect", "same", "-q").exit_code == 0
    result = run("--replay", "a.json", "--expect", "close", "--steps", 3, "-q")
    assert result.exit_code == 3


@pytest.mark.parametrize(("name", "value"), [("steps", "many"), ("width", 7), ("scheduler", "nope"), ("seed", "x")])
def test_a_damaged_record_is_the_records_fault(elsewhere: Path, name: str, value: object) -> None:
    """Not that of an option which nobody typed."""
    made("dog", "--seed", 7, "-o", "a.png", "--sidecar")
    record = json.loads((elsewhere / "a.json").read_text())
    record["settings"][name] = value
    (elsewhere / "a.json").write_text(json.dumps(record))
    result = run("--replay", "a.json", "--dry-run", "-q")
    assert result.exit_code == 3
    assert f"error: a.json: {name} " in result.stderr
    assert f"--{name}" not in result.stderr


def test_a_bad_value_in_a_config_file_is_the_files_fault(elsewhere: Path) -> None:
    (elsewhere / "c.toml").write_text("[generate]\nwidth = 7\n")
    result = run("dog", "--config", "c.toml", "--dry-run", "-q")
    assert result.exit_code == 3
    assert "error: c.toml: width 7 " in result.stderr
    assert run("dog", "--config", "c.toml", "--width", 7, "--dry-run", "-q").exit_code == 2


def test_the_environment_does_not_change_a_replay(dog: Path) -> None:
    assert run("--replay", dog, "--expect", "same", "-q", SHARDTOOL_STEPS="5").exit_code == 0


def test_skip_existing_makes_what_is_missing_and_refuses_what_was_made_otherwise(elsewhere: Path) -> None:
    made("dog", "--seed", "1-3", "-o", "o/")
    before = {path: path.stat().st_mtime_ns for path in (elsewhere / "o").glob("*.png")}
    (elsewhere / "o" / "dog-2.png").unlink()
    result = made("dog", "--seed", "1-3", "-o", "o/", "--skip-existing", "--json")
    images = json.loads(result.stdout)["data"]["images"]
    assert [image["status"] for image in images] == ["skipped", "made", "skipped"]
    after = {path: path.stat().st_mtime_ns for path in (elsewhere / "o").glob("*.png")}
    assert [path.name for path in after if after[path] != before[path]] == ["dog-2.png"]
    other = run("dog", "--seed", "1-3", "-o", "o/", "--skip-existing", "--steps", 3, "--device", "cpu")
    assert other.exit_code == 4
    assert "with other settings" in other.stderr


def test_skip_existing_trusts_the_ledger_where_images_say_nothing(elsewhere: Path) -> None:
    made("dog", "--seed", "1-2", "-o", "o/", "--metadata", "none")
    result = made("dog", "--seed", "1-2", "-o", "o/", "--metadata", "none", "--skip-existing", "--json")
    assert json.loads(result.stdout)["data"]["skipped"] == 2
    (elsewhere / "o" / ".shardtool-run.jsonl").unlink()
    arguments = ("dog", "--seed", "1-2", "-o", "o/", "--metadata", "none", "--skip-existing", "--steps", 2)
    assert run(*arguments, "--device", "cpu").exit_code == 4


def strictly(text: str) -> Any:
    """JSON as other programs than Python read it, without infinities."""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("scheduler", ["dpmpp-2m", "deis", "dpmpp-2s", "unipc"])
def test_what_is_written_of_a_scheduler_with_infinities_is_json(elsewhere: Path, scheduler: str) -> None:
    """Several of them are set to minus infinity by default."""
    result = made("dog", "--seed", 7, "--scheduler", scheduler, "-o", "a.png", "--sidecar", "--json")
    assert strictly(result.stdout)["ok"]
    record = strictly(Path("a.json").read_text())
    with Image.open("a.png") as image:
        assert strictly(image.text["shardtool"])["scheduler"] == record["scheduler"]
    seen = CliRunner().invoke(app, ["inspect", "a.png", "--json"])
    assert strictly(seen.stdout)["data"], seen.output
    for made_before in ("a.png", "a.json"):
        assert run("--replay", made_before, "--expect", "same", "-q").exit_code == 0


def test_inspect_shows_a_picture_briefly_and_with_verbose_whole(elsewhere: Path) -> None:
    assert run("dog", "--seed", 7, "--steps", 1, "-o", "a.png", "-q").exit_code == 0
    brief = CliRunner().invoke(app, ["inspect", "a.png"]).stdout
    whole = CliRunner().invoke(app, ["inspect", "a.png", "--verbose"]).stdout
    hidden = int(re.search(r"… and (\d+) more", brief)[1])  # type: ignore[index]
    assert len(whole.splitlines()) == len(brief.splitlines()) - 1 + hidden
    assert len(brief.splitlines()) < 30
    for key in ("settings.prompt", "settings.seed", "record.model.source", "record.environment.torch"):
        assert brief.count(f"\n{key} ") == 1, key
    for key in ("record.pixel_sha256", "record.scheduler.beta_end", "parameters", "record.settings.seed"):
        assert f"\n{key} " not in brief and f"\n{key} " in whole, key


# Long prompts, dry runs, refusals.

LONG = " ".join(["red circle"] * 15) + " dog"


def test_a_long_prompt_is_told_refused_or_encoded_whole(elsewhere: Path) -> None:
    result = run(LONG, "--dry-run")
    assert result.exit_code == 0
    assert 'prompt: 33 tokens, 32 used; lost: "dog"' in result.stderr
    assert run(LONG, "--dry-run", "--on-long-prompt", "error").exit_code == 2
    made(LONG, "--seed", 7, "-o", "cut.png")
    made(LONG, "--seed", 7, "-o", "whole.png", "--on-long-prompt", "chunk")
    assert pixels(elsewhere / "cut.png") != pixels(elsewhere / "whole.png")
    assert run("--replay", "whole.png", "--expect", "same", "-q").exit_code == 0


def test_a_dry_run_shows_the_plan_and_writes_nothing(elsewhere: Path) -> None:
    data = planned("dog", "cat", "--seed", "1-2", "-o", "o/")
    assert [image["path"] for image in data["images"]] == ["o/dog-1.png", "o/dog-2.png", "o/cat-1.png", "o/cat-2.png"]
    assert data["components"]["unet"]["numbers"] == 4_345_860
    assert data["memory_bytes"]["fp16"]["none"] < data["memory_bytes"]["fp32"]["none"]
    assert data["steps"] == 120
    result = run("dog", "--dry-run")
    assert "4,345,860" in result.stdout
    assert "3 of 32" in result.stdout
    assert list(elsewhere.iterdir()) == []


BAD: list[tuple[list[str], int, str]] = [
    ([], 2, "no prompt"),
    (["dog", "--steps", "0"], 2, "--steps 0 is outside"),
    (["dog", "--steps", "x"], 2, "--steps"),
    (["dog", "--guidance", "-1"], 2, "--guidance -1"),
    (["dog", "--strength", "2"], 2, "--strength 2"),
    (["dog", "--width", "65"], 2, "--width 65 is not a multiple of 8"),
    (["dog", "--size", "big"], 2, '--size "big" is no size'),
    (["dog", "--size", "9" * 5000 + "x64"], 2, "is no size"),
    (["dog", "--seed", "9" * 5000], 2, "is not a list of seeds"),
    (["dog", "--seed", "9" * 19], 2, "is no range of seeds"),
    (["dog", "--size", "64x64", "--width", "64"], 2, "--size contradicts"),
    (["dog", "--seed", "x"], 2, '--seed "x"'),
    (["dog", "--count", "0"], 2, "--count 0"),
    (["dog", "--scheduler", "x"], 2, '--scheduler "x"'),
    (["dog", "--mask", "a.png"], 2, "--mask needs --image"),
    (["dog", "--format", "gif"], 2, '--format "gif"'),
    (["dog", "--metadata", "x"], 2, '--metadata "x"'),
    (["dog", "--on-long-prompt", "x"], 2, '--on-long-prompt "x"'),
    (["dog", "--preview-every", "0"], 2, "--preview-every 0"),
    (["dog", "--batch-size", "0"], 2, "--batch-size 0"),
    (["dog", "-o", "{x}"], 2, "no field {x}"),
    (["dog", "-o", "a.gif"], 2, ".gif is no format"),
    (["dog", "--overwrite", "--skip-existing"], 2, "contradict"),
    (["dog", "--expect", "same"], 2, "--expect needs --replay"),
    (["dog", "--model", "nowhere"], 3, "nowhere: no such file"),
    (["dog", "--vae", "nowhere"], 3, "nowhere: no such file"),
    (["dog", "--lora", "nowhere.safetensors"], 3, "no such file"),
    (["dog", "--prompts-file", "nowhere"], 3, "nowhere"),
    (["dog", "--config", "nowhere"], 3, "nowhere"),
    (["--replay", "nowhere.png"], 3, "nowhere.png"),
    (["--resume", "nowhere.safetensors"], 3, "nowhere.safetensors"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "words"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_bad_value_says_so_in_a_line_before_anything_is_loaded(arguments: list[str], code: int, words: str) -> None:
    result = run(*arguments, "--dry-run")
    assert result.exit_code == code, result.output
    (line,) = [line for line in result.stderr.splitlines() if words in line]
    assert line.lower().startswith("error")
    assert "Traceback" not in result.output


@pytest.mark.parametrize("option", ["--replay", "--resume", "--config", "--image", "--lora"])
@pytest.mark.parametrize(("kind", "words"), [("pipe", "is a pipe"), ("device", "is a device"), ("folder", "folder")])
def test_what_is_no_file_is_refused_before_it_is_waited_for(
    elsewhere: Path, option: str, kind: str, words: str
) -> None:
    """A pipe would be waited for, and /dev/zero read until memory is gone. (Prompts may come through a pipe.)"""
    place = elsewhere / ("x.safetensors" if option in ("--lora", "--resume") else "x.png")
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        place.symlink_to("/dev/zero")
    else:
        place.mkdir()
    result = run("dog", option, place, "--dry-run")
    assert result.exit_code == 3, result.output
    assert f"error: {place}" in result.stderr
    assert words in result.stderr or (option, kind) == ("--lora", "folder")


def test_a_plan_of_many_images_shows_the_first_and_counts_the_rest(elsewhere: Path) -> None:
    (elsewhere / "many.txt").write_text("".join(f"dog {number}\n" for number in range(60)))
    result = run("--prompts-file", "many.txt", "--seed", 1, "--dry-run")
    assert result.exit_code == 0
    assert "… and 10 more" in result.stdout
    assert "dog 49" in result.stdout
    assert "dog 50" not in result.stdout
    images = json.loads(run("--prompts-file", "many.txt", "--dry-run", "--json").stdout)["data"]["images"]
    assert len(images) == 60


def test_values_that_only_the_machine_can_judge() -> None:
    for option, value, code in (("--device", "toaster", 2), ("--dtype", "fp8", 2), ("--offload", "some", 2)):
        assert run("dog", option, value, "-q").exit_code == code, option
    assert run("dog", "-i", "nowhere.png", "-q").exit_code == 3


def test_a_missing_input_image_is_found_before_loading() -> None:
    result = run("dog", "-i", "nowhere.png", "--dry-run")
    assert result.exit_code == 3


def test_a_hostile_prompt_is_shown_harmlessly(elsewhere: Path) -> None:
    evil = "dog \x1b[31m [red] \u202e"
    result = run(evil, "--dry-run")
    assert "\x1b" not in result.output
    assert "\u202e" not in result.output
    made(evil, "--seed", 7, "-o", "o/", "--grid", "--gallery")
    assert {path.parent for path in elsewhere.rglob("*.png")} == {elsewhere / "o"}


def test_a_prompt_that_is_no_text_is_what_is_blamed(tmp_path: Path) -> None:
    typed = run("dog\udcff", "--dry-run")
    assert typed.exit_code == 2 and "the prompt is no text: not UTF-8 at character 4" in typed.stderr
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "cat"}\n{"prompt": "\\ud800"}\n')
    read = run("--prompts-file", str(tmp_path / "prompts.jsonl"), "--dry-run")
    assert read.exit_code == 3 and "prompts.jsonl, line 2: the prompt is no text" in read.stderr


def test_what_is_said_of_many_or_long_prompts_stays_short(tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("".join(f"zebra {number}\n" for number in range(3000)) + "x" * 100_000)
    found = run("--prompts-file", str(tmp_path / "many.txt"), "--dry-run")
    assert found.exit_code == 0
    assert len(found.stderr) < 4000


def test_a_strength_without_an_image_to_redraw_is_refused(dog: Path, tmp_path: Path) -> None:
    assert "--strength needs --image" in run("cat", "--strength", "0.4", "--dry-run").stderr
    assert run("cat", "--strength", "0.4", "--dry-run").exit_code == 2
    assert run("cat", "--strength", "0.4", "--image", str(dog), "--dry-run").exit_code == 0
    (tmp_path / "prompts.txt").write_text(f"cat --image {dog}\n")
    assert run("--prompts-file", str(tmp_path / "prompts.txt"), "--strength", "0.4", "--dry-run").exit_code == 0
