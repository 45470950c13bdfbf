"""The commands on sources on the Hub: a small one on loopback, with the real client."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardtool.checkpoint.inventory import read_checkpoint
from shardtool.sizes import format_size
from tests.hubcalls import ROOT, Ask, environment
from tests.hubrepos import INDEX, SHARDS, STEM, add_weights, files_of
from tests.hubserver import TOKEN, HubServer

FIRST_READ = 32 * 1024
"""What is asked for of a file to read its header; most headers are shorter."""

UNET = "sayakpaul/sdxl-unet-sharded"
BASE = "stabilityai/stable-diffusion-xl-base-1.0"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, demo: Path) -> Iterator[HubServer]:
    """The demo pipeline under the name of SDXL's, and a sharded component beside it."""
    folder = tmp_path_factory.mktemp("sharded")
    add_weights(folder, shards=3)
    with HubServer() as server:
        server.add("org/unet", folder)
        server.add("org/gated", folder, gated=True)
        server.add("org/damaged", {**files_of(folder), SHARDS[1]: (folder / SHARDS[1]).read_bytes()[:-8]})
        server.add(BASE, demo)
        yield server


@pytest.fixture(scope="module")
def ask(hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    asked = Ask(hub, tmp_path_factory.mktemp("home"))
    yield asked
    asked.close()


def data_of(ran: dict[str, Any]) -> Any:
    assert ran["exit_code"] == 0, ran["stderr"]
    return json.loads(ran["stdout"])["data"]


@pytest.mark.parametrize("part", ["", "unet"])
def test_inspect_says_the_same_of_a_remote_source_as_of_a_local_one(ask: Ask, demo: Path, part: str) -> None:
    remote = data_of(ask.run("inspect", f"{BASE}:{part}" if part else BASE, "--json", "--tensors"))
    local = data_of(ask.run("inspect", str(demo / part), "--json", "--tensors"))
    text = json.dumps(remote).replace(f"{BASE}:{part}", f"{BASE}/{part}".rstrip("/")).replace(BASE, str(demo))
    assert json.loads(text) == local


def test_inspect_and_verify_leave_nothing_in_the_cache(ask: Ask, hub: HubServer) -> None:
    hub.requests.clear()
    assert ask.run("inspect", "org/unet")["exit_code"] == 0
    assert ask.run("verify", "org/unet", "--structure")["exit_code"] == 0
    assert not (ask.home / "hub" / "models--org--unet").exists()
    assert hub.fetched("org/unet") == {"config.json", INDEX, *SHARDS}


def test_verify_finds_damage_without_a_download(ask: Ask, hub: HubServer) -> None:
    ran = ask.run("verify", "org/damaged", "--structure", "--json")
    assert ran["exit_code"] == 1
    assert "truncated" in ran["stdout"]
    assert f"org/damaged/{SHARDS[1]}" in ran["stdout"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["inspect", "org/nothing"], "repo_not_found"),
        (["verify", "org/unet", "--revision", "v9"], "revision_not_found"),
        (["shard", "org/unet", "--subfolder", "vae", "-o", "out"], "entry_not_found"),
        (["merge", "org/gated", "-o", "out"], "gated"),
        (["diff", "org/other", "demo", "--offline"], "offline_absent"),
    ],
)
def test_what_the_hub_refuses_is_exit_code_6(ask: Ask, arguments: list[str], code: str) -> None:
    ran = ask.run(*arguments, "--json")
    assert ran["exit_code"] == 6
    document = json.loads(ran["stdout"])
    assert (document["ok"], document["error"]["code"]) == (False, code)
    assert ran["stderr"].splitlines()[-2:] == [
        f"error: {document['error']['message']}",
        f"hint: {document['error']['hint']}",
    ]


def test_a_token_is_never_shown(ask: Ask) -> None:
    for arguments in (["inspect", "org/gated", "--debug"], ["inspect", "org/gated", "-v", "--json"]):
        ran = ask.run(*arguments, HF_TOKEN=TOKEN)
        assert ran["exit_code"] == 6
        assert TOKEN not in ran["stdout"] + ran["stderr"]


def test_shard_and_merge_download_once_and_then_work_offline(ask: Ask, hub: HubServer, tmp_path: Path) -> None:
    ran = ask.run("shard", f"{BASE}:vae", "--max-size", "1MB", "-o", str(tmp_path / "vae"), "--progress", "json")
    assert ran["exit_code"] == 0, ran["stderr"]
    events = [json.loads(line) for line in ran["stderr"].splitlines() if line.startswith("{")]
    download = [event for event in events if event.get("task") == "download"]
    assert (download[0]["event"], download[-1]["event"]) == ("started", "finished")
    assert download[-2]["done"] == download[-2]["total"] == download[0]["total"] > 2_000_000
    hub.requests.clear()
    ran = ask.run("merge", f"{BASE}:vae", "-o", str(tmp_path / "vae.safetensors"), "--offline")
    assert ran["exit_code"] == 0, ran["stderr"]
    assert hub.requests == []
    parts, whole = read_checkpoint(tmp_path / "vae"), read_checkpoint(tmp_path / "vae.safetensors")
    assert len(parts.files) == 3
    assert {name: stored.info.shape for name, stored in parts.tensors.items()} == {
        name: stored.info.shape for name, stored in whole.tensors.items()
    }
    assert ask.run("diff", str(tmp_path / "vae"), f"{BASE}:vae", "--offline")["exit_code"] == 0


def sent_of_weights(hub: HubServer, repo: str) -> int:
    return sum(r.sent for r in hub.requests if r.repo == repo and r.served.endswith(".safetensors"))


def plan_of(ran: dict[str, Any]) -> dict[str, Any]:
    """What is written, without where it comes from and what the disk makes of it."""
    data = data_of(ran)
    return {key: data[key] for key in ("checkpoints", "carried_over", "bytes", "notes", "output")}


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of two components of some MB; one has a variant too, and there is what nobody needs."""
    folder = tmp_path_factory.mktemp("variants")
    add_weights(folder / "unet", shards=3, side=360)
    add_weights(folder / "unet", variant="fp16", shards=2)
    add_weights(folder / "vae", side=600)
    (folder / "scheduler").mkdir()
    (folder / "scheduler" / "scheduler_config.json").write_text("{}")
    content = {
        "_class_name": "StableDiffusionXLPipeline",
        "scheduler": ["diffusers", "EulerDiscreteScheduler"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
    (folder / "model_index.json").write_text(json.dumps(content))
    (folder / "README.md").write_text("not needed")
    (folder / "whole.safetensors").write_bytes(bytes(1000))
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ["shard", ":", "--max-size", "2MB"],
        ["shard", ":", "--max-size", "2MB", "--component", "vae"],
        ["shard", ":", "--variant", "fp16", "--shards", "2"],
        ["shard", ":unet", "--dtype", "fp16", "--variant", "fp16"],
        ["merge", ":unet"],
        ["merge", ":unet/diffusion_pytorch_model.safetensors.index.json"],
        ["shard", f":vae/{STEM}.safetensors", "--max-size", "2MB"],
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_a_dry_run_tells_from_headers_what_a_real_run_downloads_and_writes(
    ask: Ask, hub: HubServer, variants: Path, tmp_path: Path, arguments: list[str]
) -> None:
    repo = "org/" + re.sub(r"\W+", "-", " ".join(arguments))
    hub.add(repo, variants)
    line = [argument if argument[0] != ":" else repo + argument.rstrip(":") for argument in arguments]
    line += ["-o", str(tmp_path / "out"), "--json"]
    planned = ask.run(*line, "--dry-run")
    data = data_of(planned)
    assert data["source"].startswith(repo)
    assert f"would download {format_size(data['download'])} first" in planned["stderr"]
    assert sent_of_weights(hub, repo) < 0.05 * data["bytes"] + 6 * FIRST_READ
    assert not (ask.home / "hub" / f"models--{repo.replace('/', '--')}").exists()
    assert not (tmp_path / "out").exists()

    hub.requests.clear()
    written = ask.run(*line)
    assert plan_of(planned) == {**plan_of(written), "checkpoints": data["checkpoints"]}
    assert [c["files"] for c in data["checkpoints"]] == [c["files"] for c in data_of(written)["checkpoints"]]
    assert sum(r.sent for r in hub.requests if r.served and r.method == "GET") == data["download"]


def test_a_dry_run_counts_only_what_the_cache_lacks(ask: Ask, hub: HubServer, variants: Path, tmp_path: Path) -> None:
    hub.add("org/partly", variants)
    vae = ask.run("shard", "org/partly:vae", "-o", str(tmp_path / "vae"))
    assert vae["exit_code"] == 0, vae["stderr"]
    line = ["merge", "org/partly", "-o", str(tmp_path / "out"), "--json"]
    missing = ["model_index.json", "scheduler/scheduler_config.json", f"unet/{INDEX}"]  # one config is like the other
    missing += [f"unet/{name}" for name in SHARDS]
    assert data_of(ask.run(*line, "--dry-run"))["download"] == sum((variants / name).stat().st_size for name in missing)

    ask.run(*line)
    hub.requests.clear()
    cached = data_of(ask.run(*line, "--dry-run", "--overwrite"))
    assert "download" not in cached
    assert cached["source"].startswith(str(ask.home))
    assert sent_of_weights(hub, "org/partly") == 0


def test_what_the_cache_holds_of_another_variant_changes_nothing(
    ask: Ask, hub: HubServer, variants: Path, tmp_path: Path
) -> None:
    """A part of the fp16 weights, as left by a download that was broken off, is nobody's business."""
    hub.add("org/cached", variants)
    data_of(ask.run("shard", "org/cached:unet", "-o", str(tmp_path / "one"), "--json"))
    (snapshot,) = (ask.home / "hub" / "models--org--cached" / "snapshots").iterdir()
    for name in (f"{STEM}.safetensors.index.fp16.json", f"{STEM}.fp16-00001-of-00002.safetensors"):
        shutil.copy(variants / "unet" / name, snapshot / "unet" / name)
    again = data_of(ask.run("shard", "org/cached:unet", "-o", str(tmp_path / "two"), "--json"))
    assert [checkpoint["variant"] for checkpoint in again["checkpoints"]] == [None]


def test_of_the_model_that_is_like_it_only_headers_are_read(
    ask: Ask, hub: HubServer, variants: Path, tmp_path: Path
) -> None:
    hub.add("org/model", variants)
    one = tmp_path / "one"
    assert ask.run("merge", str(variants / "unet"), "--variant", "default", "-o", str(one))["exit_code"] == 0
    data = data_of(ask.run("shard", str(one), "--like", "org/model:unet", "-o", str(tmp_path / "out"), "--json"))
    assert [file["name"] for file in data["checkpoints"][0]["files"]] == SHARDS
    assert sent_of_weights(hub, "org/model") <= 3 * FIRST_READ
    ran = ask.run("shard", str(one), "--like", "org/model:vae", "-o", str(tmp_path / "out2"), "--json")
    assert ran["exit_code"] == 3
    assert "org/model/vae" in json.loads(ran["stdout"])["error"]["message"]
    assert "/tmp" not in json.loads(ran["stdout"])["error"]["message"]


def test_a_dry_run_of_a_damaged_repo_names_the_file_as_on_the_hub(ask: Ask, tmp_path: Path) -> None:
    ran = ask.run("shard", "org/damaged", "-o", str(tmp_path / "out"), "--dry-run", "--json")
    assert ran["exit_code"] == 3
    error = json.loads(ran["stdout"])["error"]
    assert (error["code"], error["path"]) == ("truncated", f"org/damaged/{SHARDS[1]}")


def test_pickled_weights_on_the_hub_become_one_file(ask: Ask, hub: HubServer, tmp_path: Path) -> None:
    import torch

    (tmp_path / "repo").mkdir()
    torch.save({"weight": torch.ones(3)}, tmp_path / "repo" / "pytorch_model.bin")
    hub.add("org/pickled", tmp_path / "repo")
    line = ["merge", "org/pickled", "--allow-pickle", "-o", str(tmp_path / "out"), "--json"]
    assert "download" not in data_of(ask.run(*line, "--dry-run"))
    assert [file["name"] for file in data_of(ask.run(*line))["checkpoints"][0]["files"]] == ["model.safetensors"]


def test_commands_on_local_sources_ask_nobody(ask: Ask, hub: HubServer, tmp_path: Path) -> None:
    hub.requests.clear()
    for arguments in (["inspect", "demo"], ["verify", "demo", "--structure"], ["shard", "demo:unet", "-o", "x"]):
        assert ask.run(*arguments, *(["--dry-run"] if "shard" in arguments else []))["exit_code"] == 0
    assert hub.requests == []


def test_a_dry_run_reads_headers_and_downloads_no_weights(ask: Ask, hub: HubServer, demo: Path) -> None:
    hub.add("org/plan", demo)
    hub.requests.clear()
    plan = data_of(
        ask.run("generate", "--unet", "org/plan:unet", "--model", "org/plan", "a red fox", "--dry-run", "--json")
    )
    assert plan["components"]["unet"]["folder"] == "org/plan/unet"
    assert plan["images"][0]["tokens"][0]["tokens"] > 3
    assert data_of(ask.run("load", "org/plan", "--dry-run", "--device", "cpu", "--json"))["kind"] == "pipeline"
    weights = sum(request.sent for request in hub.requests if request.served.endswith(".safetensors"))
    assert weights < 0.1 * sum(path.stat().st_size for path in demo.rglob("*.safetensors"))
    assert not (ask.home / "hub" / "models--org--plan").exists()


def test_of_a_replaced_component_its_own_files_are_fetched_and_no_others(ask: Ask, hub: HubServer, demo: Path) -> None:
    hub.add("org/parts", demo)
    hub.requests.clear()
    replaced = ["--component", "tokenizer=org/parts", "--component", "scheduler=org/parts:scheduler"]
    for command in (["load", "demo"], ["generate", "dog"]):
        dry = ask.run(*command, *replaced, "--vae", "org/parts:vae", "--device", "cpu", "--dry-run", "--json")
        assert data_of(dry)
        assert "shardtool-hub-" not in dry["stdout"] + dry["stderr"]
    assert not (ask.home / "hub" / "models--org--parts" / "blobs").exists()
    hub.requests.clear()
    data_of(ask.run("load", "demo", *replaced, "--device", "cpu", "--json"))
    assert {name.partition("/")[0] for name in hub.fetched("org/parts")} <= {
        "tokenizer",
        "scheduler",
        "model_index.json",
    }
    assert any(name.startswith("tokenizer/") for name in hub.fetched("org/parts"))


def test_ctrl_c_ends_a_download_at_once_and_the_next_run_completes_it(hub: HubServer, tmp_path: Path) -> None:
    add_weights(tmp_path / "large", side=1800)
    hub.add("org/large", tmp_path / "large")
    hub.delay = 0.5  # half a minute in all: the download cannot be over before the signal comes
    environ = environment(hub, tmp_path / "home")
    command = [sys.executable, "-m", "cli", "shard", "org/large", "-o", str(tmp_path / "out")]
    try:
        with subprocess.Popen(command, cwd=ROOT, env=environ, stderr=subprocess.PIPE, text=True) as process:
            while not list((tmp_path / "home").rglob("*.incomplete")):
                assert process.poll() is None
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, printed = process.communicate(timeout=20)
    finally:
        hub.delay = 0
    assert process.returncode == 130
    assert "Traceback" not in printed
    assert not (tmp_path / "out").exists()
    ran = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert [path.name for path in (tmp_path / "out").glob("*.safetensors")] == [f"{STEM}.safetensors"]


@pytest.mark.slow
def test_the_seed_s_own_case_downloads_once_and_then_runs_offline(hub: HubServer, tmp_path: Path, demo: Path) -> None:
    """A sharded UNet and its base pipeline by their names on the Hub; the base's own UNet is never downloaded."""
    from PIL import Image, ImageChops

    program = [sys.executable, "-m", "cli"]
    sharded = tmp_path / "sharded"
    subprocess.run(
        [*program, "shard", "demo:unet", "--max-size", "3MB", "-o", str(sharded), "-q"], cwd=ROOT, check=True
    )
    hub.add(UNET, sharded)
    command = [*program, "generate", "--unet", UNET, "--steps", "20", "dog", "--model", BASE, "--seed", "7", "-o"]
    pictures = []
    for name, more in (("first", []), ("again", ["--offline"])):
        hub.requests.clear()
        path = tmp_path / f"{name}.png"
        ran = subprocess.run(
            [*command, str(path), *more],
            cwd=ROOT,
            env=environment(hub, tmp_path / "home", OMP_NUM_THREADS=os.environ["OMP_NUM_THREADS"]),
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        pictures.append(Image.open(path).convert("RGB"))
        if name == "first":
            assert hub.fetched(UNET) == set(files_of(sharded))
            assert not any(file.startswith("unet/") for file in hub.fetched(BASE))
            assert f"vae/{STEM}.safetensors" in hub.fetched(BASE)
        else:
            assert hub.requests == []
    assert ImageChops.difference(*pictures).getbbox() is None
