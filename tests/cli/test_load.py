"""``shardtool load``: what it prints, as text and as JSON, and the exit code of each failure."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from cli.app import app
from tests.models import SINGLE, copied, edited, split

TWO_GPUS = {
    "accelerators": [{"kind": "cuda", "index": n, "name": f"Test {n}", "total": "24GB"} for n in range(2)],
    "cpu_total": "64GB",
    "cpu_free": "60GB",
}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["load", *(str(argument) for argument in arguments)])


def document(*arguments: object, code: int = 0) -> dict[str, Any]:
    ran = run(*arguments, "--json")
    assert ran.exit_code == code, ran.output
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.fixture
def two_gpus(tmp_path: Path) -> Path:
    path = tmp_path / "two-gpus.json"
    path.write_text(json.dumps(TWO_GPUS))
    return path


@pytest.fixture
def one_gpu(tmp_path: Path) -> Path:
    path = tmp_path / "one-gpu.json"
    path.write_text(json.dumps({**TWO_GPUS, "accelerators": TWO_GPUS["accelerators"][:1]}))  # type: ignore[index]
    return path


def test_a_component_is_loaded_and_described(sd: Path) -> None:
    ran = run(sd / "unet", "--device", "cpu", "--dtype", "bf16")
    assert ran.exit_code == 0, ran.output
    for word in ("UNet2DConditionModel", "bfloat16", "cpu", "dtype bf16", "offload none", "/s"):
        assert word in ran.stdout
    assert "Loading unet" in ran.stderr


def test_the_document_holds_all_of_it(sd: Path) -> None:
    data = document(sd / "unet", "--device", "cpu", "--dtype", "fp16", "--forward", "--repeat", 2)["data"]
    tensors = load_file(sd / "unet" / SINGLE)
    (component,) = data["components"]
    assert component["class_name"] == "UNet2DConditionModel"
    assert component["parameters"] == sum(tensor.numel() for tensor in tensors.values()) == data["parameters"]
    assert component["nbytes"] == data["bytes"] == sum(tensor.numel() for tensor in tensors.values()) * 2
    assert component["dtypes"] == {"float16": data["bytes"]}
    assert component["device"] == "cpu"
    assert data["kind"] == "component"
    assert data["placement"]["dtype"] == "fp16"
    assert data["placement"]["reasons"]
    assert len(data["loads"]) == 2
    assert data["phases"]["load"] > 0
    assert data["memory"].keys() == {"anonymous", "mapped", "peak", "device_peak"}
    assert len(data["forward"]["unet"]["digest"]) == 64
    assert data["inventory"]["cpu_total"] > 0


def test_a_pipeline_is_loaded_with_all_its_components(demo: Path) -> None:
    data = document("demo", "--device", "cpu", "--forward")["data"]
    assert (data["kind"], data["class"]) == ("pipeline", "StableDiffusionXLPipeline")
    assert {part["name"] for part in data["components"]} == {"text_encoder", "text_encoder_2", "unet", "vae"}
    assert data["forward"].keys() == {"text_encoder", "text_encoder_2", "unet", "vae"}


def test_a_pipeline_is_loaded_with_components_from_elsewhere(demo: Path, tmp_path: Path) -> None:
    """The two mixtures say the same, and the base's own VAE is not looked at."""
    base, vae = tmp_path / "base", tmp_path / "vae"
    shutil.copytree(demo, base)
    shutil.move(base / "vae", vae)
    for options in (["--vae", vae], ["--component", f"vae={vae}"]):
        loaded = document(base, *options, "--device", "cpu")["data"]
        assert {one["name"]: one["source"] for one in loaded["components"]}["vae"] == str(vae)
        assert document(base, *options, "--device", "cpu", "--dry-run")["data"]["kind"] == "pipeline"
    assert run(base, "--device", "cpu").exit_code == 3
    refused = run(vae, "--unet", demo / "unet", "--device", "cpu")
    assert refused.exit_code == 2
    assert "is no pipeline in which another unet could take a place" in refused.stderr


def test_the_digest_of_a_forward_pass_is_that_of_the_numbers(sd: Path, tmp_path: Path) -> None:
    """The same for the same weights however they are sharded, and another for other weights."""
    folder = copied(sd / "unet", tmp_path / "unet")
    split(folder, parts=3)
    single, shards = (document(f, "--device", "cpu", "--forward")["data"] for f in (sd / "unet", folder))
    assert single["forward"]["unet"]["digest"] == shards["forward"]["unet"]["digest"]
    other = copied(sd / "unet", tmp_path / "other" / "unet")
    save_file({name: tensor * 1.01 for name, tensor in load_file(other / SINGLE).items()}, other / SINGLE)
    changed = document(other, "--device", "cpu", "--forward")["data"]
    assert changed["forward"]["unet"]["digest"] != single["forward"]["unet"]["digest"]


def test_numbers_that_are_not_finite_fail_the_forward_pass(sd: Path, tmp_path: Path) -> None:
    folder = copied(sd / "unet", tmp_path / "unet")
    tensors = load_file(folder / SINGLE)
    tensors["conv_out.bias"] = torch.full_like(tensors["conv_out.bias"], torch.inf)
    save_file(tensors, folder / SINGLE)
    assert run(folder, "--device", "cpu").exit_code == 0
    error = document(folder, "--device", "cpu", "--forward", code=5)["error"]
    assert error["code"] == "not_finite"


# The plan


def test_a_dry_run_says_where_everything_would_go(demo: Path, one_gpu: Path) -> None:
    data = document("demo", "--dry-run", "--inventory", one_gpu)["data"]
    assert data["placement"]["device"] == "cuda:0"
    assert data["placement"]["dtype"] == "fp16"
    assert data["placement"]["offload"] == "none"
    unet = next(need for need in data["needs"] if need["name"] == "unet")
    assert unet["weight_bytes"] == 4_345_860 * 2
    ran = run("demo", "--dry-run", "--inventory", one_gpu)
    assert "nothing was loaded" in ran.stdout
    assert "the only accelerator" in ran.stdout


def test_a_dry_run_for_another_machine_imports_nothing_heavy(demo: Path, one_gpu: Path) -> None:
    program = (
        "import sys\nfrom typer.testing import CliRunner\nfrom cli.app import app\n"
        f"ran = CliRunner().invoke(app, ['load', 'demo', '--dry-run', '--inventory', {str(one_gpu)!r}])\n"
        "assert ran.exit_code == 0, ran.output\n"
        "assert not {'torch', 'diffusers', 'transformers', 'numpy'} & set(sys.modules)\n"
    )
    root = Path(__file__).parent.parent.parent
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=root)
    assert ran.returncode == 0, ran.stderr


def test_the_printed_inventory_can_be_given_back(demo: Path, tmp_path: Path) -> None:
    data = document("demo", "--dry-run", "--device", "cpu")["data"]
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(data["inventory"]))
    again = document("demo", "--dry-run", "--device", "cpu", "--inventory", path)["data"]
    assert again["placement"] == data["placement"]


def test_two_gpus_and_auto_are_refused_with_what_to_type(demo: Path, two_gpus: Path) -> None:
    error = document("demo", "--dry-run", "--inventory", two_gpus, code=4)["error"]
    assert error["code"] == "multi_gpu"
    assert "cuda:1 (Test 1" in error["message"]
    assert "--device cuda:0" in error["hint"]
    assert document("demo", "--dry-run", "--device", "cuda:1", "--inventory", two_gpus)["ok"]


def test_what_does_not_fit_is_refused_and_can_be_forced(demo: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps({"cpu_total": "20MB", "cpu_free": "10MB"}))
    error = document("demo", "--dry-run", "--inventory", path, code=4)["error"]
    assert error["code"] == "memory"
    assert "10.0 MB are free" in error["message"]
    assert document("demo", "--dry-run", "--inventory", path, "--force")["ok"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--device", "gpu"], 2),
        (["--dtype", "half"], 2),
        (["--offload", "disk"], 2),
        (["--inventory", "x.json"], 2),
        (["--repeat", "0"], 2),
        (["--device", "cpu", "--offload", "model"], 4),
        (["--device", "cuda:99"], 4),
        (["--dry-run", "--inventory", "no-such-file.json"], 3),
    ],
)
def test_what_cannot_be_is_refused_by_its_own_code(demo: Path, options: list[str], code: int) -> None:
    assert run("demo", *options).exit_code == code


def test_what_is_not_there_or_damaged_is_an_input_error(sd: Path, tmp_path: Path) -> None:
    folder = copied(sd / "unet", tmp_path / "unet")
    data = (folder / SINGLE).read_bytes()
    (folder / SINGLE).write_bytes(data[:-1])
    error = document(folder, code=3)["error"]
    assert error["code"] == "truncated"
    assert document(tmp_path / "nothing", code=3)["error"]["code"] == "file_missing"
    (folder / SINGLE).write_bytes(data)
    edited(folder / "config.json", in_channels=9)
    error = document(folder, "--device", "cpu", code=3)["error"]
    assert (error["code"], error["tensor"]) == ("shape_mismatch", "conv_in.weight")


def test_globs_let_tensors_through(sd: Path, tmp_path: Path) -> None:
    folder = copied(sd / "unet", tmp_path / "unet")
    tensors = load_file(folder / SINGLE)
    tensors.pop("conv_out.bias")
    save_file({**tensors, "extra.x": torch.zeros(1), "other": torch.zeros(1)}, folder / SINGLE)
    assert document(folder, "--device", "cpu", code=3)["error"]["problems"].__len__() == 3
    allowed = ["--allow-missing", "conv_out.*", "--allow-unexpected", "extra.*", "--allow-unexpected", "other"]
    found = document(folder, "--device", "cpu", *allowed)
    assert [warning["code"] for warning in found["warnings"]] == ["tensor_missing_allowed"]


def test_verify_checks_recorded_digests(sd: Path, tmp_path: Path) -> None:
    made = CliRunner().invoke(app, ["shard", str(sd / "unet"), "-o", str(tmp_path / "unet"), "--digests"])
    assert made.exit_code == 0, made.output
    folder = tmp_path / "unet"
    assert document(folder, "--device", "cpu", "--verify")["data"]["verified"].endswith("digests of 1 of 1 checkpoints")
    file = next(folder.glob("*.safetensors"))
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    assert document(folder, "--device", "cpu")["ok"]
    error = document(folder, "--device", "cpu", "--verify", code=3)["error"]
    assert "sha-256" in error["message"].lower()


def test_verify_without_digests_says_so(sd: Path) -> None:
    found = document(sd / "unet", "--device", "cpu", "--verify")
    assert "digests_missing" in {warning["code"] for warning in found["warnings"]}


def test_the_help_says_what_the_words_are() -> None:
    text = run("--help").stdout
    for words in ("auto, cpu, cuda, cuda:N, mps or xpu", "auto, fp32, fp16 or bf16", "auto, none, model, group"):
        assert words in text.replace("\n", " ").replace("  ", " ") or words in " ".join(text.split())
