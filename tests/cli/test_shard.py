"""``shardtool shard`` as people and scripts meet it: options, output, exit codes, refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from cli.app import app
from tests.checkpoint.referee import canonical, read_folder, tree_sums
from tests.checkpoint.test_shard import STEM, component, some_tensors
from tests.corpus.base import INDEX, write_component


def run(*argv: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in argv])


def document(*argv: object) -> dict[str, Any]:
    """The JSON document that a run prints; nothing else may stand on stdout."""
    result = run(*argv, "--json")
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["schema"].startswith("shardtool.")
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return component(tmp_path / "unet", some_tensors())


@pytest.mark.parametrize(
    ("size", "limit"),
    [("100000", 100_000), ("100kb", 100_000), (" 0.1 MB ", 100_000), ("100KiB", 102_400), ("5GB", 5_000_000_000)],
)
def test_sizes_follow_the_field_and_are_echoed_in_bytes(source: Path, size: str, limit: int) -> None:
    result = run("shard", source, "--max-size", size)
    assert result.exit_code == 0
    assert f"limit: {limit:,} bytes" in result.stderr
    assert max(path.stat().st_size for path in source.parent.glob("unet-sharded/*.safetensors")) <= limit


@pytest.mark.parametrize("size", ["5G", "0", "-1GB", "", "GB", "1.5", "nan", "1e9"])
def test_other_sizes_are_usage_errors_naming_the_forms(source: Path, size: str) -> None:
    result = run("shard", source, "--max-size", size)
    assert result.exit_code == 2
    assert "2GiB" in result.stderr
    assert list(source.parent.iterdir()) == [source]


def test_the_default_limit_is_printed(source: Path) -> None:
    assert "limit: 5,000,000,000 bytes (5.00 GB) a file, header included" in run("shard", source).stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--max-size", "1GB", "--shards", "2"),
        ("--shards", "2", "--balance"),
        ("--like", "x", "--max-size", "1GB"),
        ("--like", "x", "--shards", "2"),
        ("--like", "x", "--balance"),
    ],
)
def test_contradicting_options_are_usage_errors(source: Path, options: tuple[str, ...]) -> None:
    result = run("shard", source, *options)
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr


@pytest.mark.parametrize(
    "options", [("--shards", "0"), ("--shards", "999"), ("--component", "unet"), ("--dtype", "int8")]
)
def test_senseless_options_are_usage_errors(source: Path, options: tuple[str, ...]) -> None:
    assert run("shard", source, *options).exit_code == 2
    assert list(source.parent.iterdir()) == [source]


def test_the_result_lies_beside_a_local_source(source: Path) -> None:
    assert run("shard", source, "--shards", 2).exit_code == 0
    assert read_folder(source.parent / "unet-sharded") == some_tensors()
    assert run("shard", source / f"{STEM}.safetensors", "--shards", 2).exit_code == 0
    assert read_folder(source / f"{STEM}-sharded") == some_tensors()


def test_other_sources_need_a_target() -> None:
    result = run("shard", "demo")
    assert result.exit_code == 2
    assert "-o" in result.stderr


def test_an_existing_target_is_refused_with_the_option_to_type(source: Path) -> None:
    run("shard", source)
    before = tree_sums(source.parent)
    result = run("shard", source, "--shards", 3)
    assert result.exit_code == 4
    assert "--overwrite" in result.stderr
    assert tree_sums(source.parent) == before
    assert run("shard", source, "--shards", 3, "--overwrite").exit_code == 0


def test_the_document_says_what_was_written(source: Path) -> None:
    out = source.parent / "out"
    data = document("shard", source, "-o", out, "--max-size", "80KB", "--digests", "--verify")["data"]
    (checkpoint,) = data["checkpoints"]
    assert [file["bytes"] for file in checkpoint["files"]] == [
        (out / file["name"]).stat().st_size for file in checkpoint["files"]
    ]
    assert checkpoint["tensors"] == 40
    assert checkpoint["index"] == f"{STEM}.safetensors.index.json"
    assert len(checkpoint["fingerprint"]) == 64
    assert sum(data["moved"].values()) >= 200_000
    assert data["carried_over"] == ["config.json"]
    assert data["limit"] == 80_000
    assert data["dry_run"] is False


def test_a_dry_run_writes_nothing_and_is_the_plan(source: Path) -> None:
    before = tree_sums(source.parent)
    plan = document("shard", source, "-o", source.parent / "a" / "out", "--max-size", "80KB", "--dry-run")["data"]
    assert tree_sums(source.parent) == before
    assert [path.name for path in source.parent.iterdir()] == ["unet"]
    assert plan["dry_run"] is True
    assert plan["way"] in ("copy", "reflink")
    done = document("shard", source, "-o", source.parent / "a" / "out", "--max-size", "80KB")["data"]
    assert plan["checkpoints"] == done["checkpoints"]


def test_a_dry_run_says_that_the_target_is_taken(source: Path) -> None:
    run("shard", source)
    result = run("shard", source, "--dry-run")
    assert result.exit_code == 0
    assert "--overwrite will be needed" in result.stderr


def test_a_dry_run_refuses_what_a_real_run_refuses_in_any_case(source: Path) -> None:
    target = source.parent / "out"
    target.symlink_to("elsewhere")
    result = run("shard", source, "-o", target, "--dry-run", "--overwrite")
    assert result.exit_code == 4
    assert "links are not followed" in result.stderr


def test_a_tensor_above_the_limit(source: Path) -> None:
    result = run("shard", source, "--max-size", "5000")
    assert result.exit_code == 4
    assert "'block.0.weight' alone needs a file of 5,1" in result.stderr
    assert run("shard", source, "--max-size", "5000", "--allow-oversize").exit_code == 0
    assert len(list((source.parent / "unet-sharded").glob("*.safetensors"))) == 40


def test_damage_is_exit_three_and_one_line(source: Path) -> None:
    path = source / f"{STEM}.safetensors"
    path.write_bytes(path.read_bytes() + b"more")
    found = document("shard", source)
    assert found["ok"] is False
    assert found["error"]["code"] == "trailing_bytes"
    assert run("shard", source).exit_code == 3


def test_names_from_files_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    evil = {"\x1b[2Ja": ("U8", [3], b"abc"), "[red]b": ("U8", [9_000], b"x" * 9_000)}
    (tmp_path / "x.safetensors").write_bytes(canonical(evil, None))
    result = run("shard", tmp_path / "x.safetensors", "--max-size", "1000")
    assert result.exit_code == 4
    assert "[red]b" in result.stderr
    assert run("shard", tmp_path / "x.safetensors", "--shards", "2", "-o", tmp_path / "o\x1b[2Jut").exit_code == 0
    assert "\x1b[2J" not in run("shard", tmp_path / "x.safetensors", "--dry-run", "-o", tmp_path / "o\x1b[2Jut").stderr


def test_pickles_need_leave(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(300)}, tmp_path / "x.bin")
    assert run("shard", tmp_path / "x.bin").exit_code == 3
    assert run("shard", tmp_path / "x.bin", "--allow-pickle", "-o", tmp_path / "out").exit_code == 0
    assert read_folder(tmp_path / "out")["a"][0] == "F32"


def test_a_cast_reports_what_is_lost(tmp_path: Path) -> None:
    big = {"a": ("F32", [2], torch.tensor([1e-9, 70_000.0]).numpy().tobytes())}
    source = component(tmp_path / "unet", big)  # type: ignore[arg-type]
    assert run("shard", source, "--dtype", "fp16").exit_code == 5
    assert not (tmp_path / "unet-sharded").exists()
    found = document("shard", source, "--dtype", "fp16", "--variant", "fp16", "--allow-overflow")
    assert {warning["code"] for warning in found["warnings"]} == {"cast_overflow", "cast_underflow"}
    assert (tmp_path / "unet-sharded" / f"{STEM}.fp16.safetensors").exists()


@pytest.mark.parametrize("command", ["shard", "merge"])
def test_sharding_needs_no_heavy_library(source: Path, command: str) -> None:
    code = (
        "import sys; from cli.app import app\n"
        f"try: app(['{command}', {str(source)!r}, '--digests', '--verify', '-q'])\n"
        "except SystemExit as leaving: assert leaving.code == 0, leaving.code\n"
        "heavy = {'torch', 'diffusers', 'transformers', 'numpy', 'huggingface_hub', 'safetensors'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr


def test_quiet_prints_where_it_wrote_and_no_more(tmp_path: Path) -> None:
    """As `generate` does, so that a script can go on with it."""
    unet = write_component(tmp_path / "unet")
    for command, ending in (("shard", "sharded"), ("merge", "merged")):
        ran = CliRunner().invoke(app, [command, str(unet), "-q"])
        assert (ran.stdout, ran.stderr) == (f"{unet}-{ending}\n", "")
    (unet / INDEX).unlink()
    ran = CliRunner().invoke(app, ["repair", str(unet), "-q"])
    assert (ran.stdout, ran.stderr) == (f"{unet}-repaired\n", "")
