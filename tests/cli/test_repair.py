"""``shardtool repair`` from outside; what it repairs and refuses is in tests/checkpoint/test_repair.py."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from diffusers import UNet2DConditionModel
from typer.testing import CliRunner, Result

from cli.app import app
from tests.corpus.base import INDEX, NAMES, shard_name, write_component


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def without_index(tmp_path: Path) -> Path:
    folder = write_component(tmp_path / "unet")
    (folder / INDEX).unlink()
    return folder


def test_it_says_what_it_did_and_verify_agrees(without_index: Path, tmp_path: Path) -> None:
    found = run("repair", without_index, "-o", tmp_path / "out")
    assert found.exit_code == 0
    assert f"wrote {INDEX} from the headers of 3 shards" in found.stdout
    assert run("verify", tmp_path / "out", "--structure").exit_code == 0
    assert not (without_index / INDEX).exists()


def test_the_index_of_a_real_model_comes_out_as_diffusers_wrote_it(tmp_path: Path, demo: Path) -> None:
    folder = tmp_path / "unet"
    UNet2DConditionModel.from_pretrained(demo / "unet").save_pretrained(folder, max_shard_size="4MB")
    written = (folder / INDEX).read_bytes()
    (folder / INDEX).unlink()
    assert run("repair", folder, "--in-place").exit_code == 0
    assert (folder / INDEX).read_bytes() == written


def test_a_dry_run_writes_nothing(without_index: Path, tmp_path: Path) -> None:
    found = run("repair", without_index, "--dry-run")
    assert found.exit_code == 0 and "nothing written" in found.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["unet"]
    assert not (without_index / INDEX).exists()


def test_in_place_names_the_backup(without_index: Path) -> None:
    (without_index / shard_name(1, 9)).write_bytes((without_index / shard_name(1)).read_bytes())
    found = run("repair", without_index, "--in-place", "--json")
    data = json.loads(found.stdout)["data"]
    assert data["backups"] == [f"{without_index}.before-repair"]
    assert data["repairs"][0]["left_out"] == [shard_name(1, 9)]
    assert (without_index.parent / "unet.before-repair" / shard_name(1, 9)).exists()


@pytest.mark.parametrize("more", [[], ["--in-place"], ["--dry-run"]])
def test_nothing_to_repair_writes_nothing(tmp_path: Path, more: list[str]) -> None:
    found = run("repair", write_component(tmp_path / "unet"), *more)
    assert found.exit_code == 0 and "nothing to repair" in found.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["unet"]


def test_a_named_target_is_there_afterwards_though_nothing_was_wrong(tmp_path: Path) -> None:
    """So that a script can go on with it."""
    unet = write_component(tmp_path / "unet")
    found = run("repair", unet, "-o", tmp_path / "out")
    assert found.exit_code == 0 and "nothing to repair" in found.stdout
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
        path.name: path.read_bytes() for path in unet.iterdir()
    }


def test_where_to_write_can_be_left_out_and_not_be_said_twice(without_index: Path, tmp_path: Path) -> None:
    assert run("repair", without_index, "--in-place", "-o", tmp_path / "out").exit_code == 2
    assert run("repair", without_index).exit_code == 0
    assert (tmp_path / "unet-repaired" / INDEX).exists() and not (without_index / INDEX).exists()
    assert run("repair", without_index).exit_code == 4, "it is there already"


def test_a_source_that_is_not_there_is_told_before_anything_else() -> None:
    found = run("repair", "nowhere")
    assert found.exit_code == 3 and "nowhere: no such file or folder" in found.stderr


def test_a_backup_without_anything_in_it_is_not_made(without_index: Path, tmp_path: Path) -> None:
    found = run("repair", without_index, "--in-place")
    assert found.exit_code == 0 and "what was replaced" not in found.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["unet"]


@pytest.mark.parametrize("spoil", ["index away", "index empty", "total wrong", "entry wrong"])
def test_what_a_hint_says_to_type_repairs(tmp_path: Path, spoil: str) -> None:
    """Whatever `verify` says of an index that the shards contradict, its command makes it whole."""
    unet = write_component(tmp_path / "my unet")
    index = json.loads((unet / INDEX).read_text())
    match spoil:
        case "index away":
            (unet / INDEX).unlink()
        case "index empty":
            (unet / INDEX).write_text("{")
        case "total wrong":
            index["metadata"]["total_size"] = 7
        case "entry wrong":
            index["weight_map"][NAMES[0]] = shard_name(3)
    if spoil in ("total wrong", "entry wrong"):
        (unet / INDEX).write_text(json.dumps(index))
    told = json.loads(run("verify", unet, "--structure", "--json").stdout)["data"]["problems"]
    (command,) = {typed for problem in told for typed in re.findall(r"`shardtool (repair [^`]+)`", problem["hint"])}
    repaired = run(*shlex.split(command))
    assert repaired.exit_code == 0, repaired.stderr
    assert run("verify", tmp_path / "my unet-repaired", "--structure").exit_code == 0


def test_missing_data_is_exit_3_with_the_reason(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    (folder / shard_name(2)).unlink()
    found = run("repair", folder, "-o", tmp_path / "out")
    assert found.exit_code == 3
    assert "data is missing" in found.stderr and "hint: " in found.stderr
    assert not (tmp_path / "out").exists()


def test_the_cache_of_the_hub_is_not_repaired_in_place() -> None:
    """It is shared with other programs, and its files are what was downloaded."""
    found = run("repair", "org/name", "--in-place")
    assert found.exit_code == 2
    assert "org/name: is on the Hub" in found.stderr
