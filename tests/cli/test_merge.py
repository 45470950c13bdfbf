"""``shardtool merge``: one file again, byte for byte what was sharded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoint.referee import read, read_folder, tree_sums
from tests.checkpoint.test_shard import STEM, component, some_tensors
from tests.cli.test_shard import document, run


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A sharded component; what it was sharded from lies in ``unet``."""
    source = component(tmp_path / "unet", some_tensors())
    assert run("shard", source, "--shards", 4).exit_code == 0
    return tmp_path / "unet-sharded"


def test_a_folder_beside_the_source_by_default(shards: Path) -> None:
    assert run("merge", shards).exit_code == 0
    assert tree_sums(shards.parent / "unet-sharded-merged") == tree_sums(shards.parent / "unet")


def test_a_file_where_the_name_is_one(shards: Path) -> None:
    target = shards.parent / "mine.safetensors"
    data = document("merge", shards, "-o", target)["data"]
    assert target.read_bytes() == (shards.parent / "unet" / f"{STEM}.safetensors").read_bytes()
    assert data["checkpoints"][0]["files"] == [
        {"name": "mine.safetensors", "tensors": 40, "bytes": target.stat().st_size}
    ]


def test_an_existing_file_needs_overwrite_and_is_replaced_whole(shards: Path) -> None:
    target = shards.parent / "mine.safetensors"
    target.write_bytes(b"something else")
    assert run("merge", shards, "-o", target).exit_code == 4
    assert target.read_bytes() == b"something else"
    assert run("merge", shards, "-o", target, "--overwrite").exit_code == 0
    assert read(target) == some_tensors()
    assert not [path for path in shards.parent.iterdir() if path.name.startswith(".")]


def test_the_index_may_be_named(shards: Path) -> None:
    assert run("merge", shards / f"{STEM}.safetensors.index.json", "-o", shards.parent / "out").exit_code == 0
    assert read_folder(shards.parent / "out") == some_tensors()


def test_a_pipeline_into_a_folder(tmp_path: Path, demo: Path) -> None:
    assert run("shard", "demo", "--max-size", "1MB", "-o", tmp_path / "sharded").exit_code == 0
    assert run("merge", tmp_path / "sharded").exit_code == 0
    assert tree_sums(tmp_path / "sharded-merged") == tree_sums(demo)


def test_over_its_own_shards_is_refused(shards: Path) -> None:
    before = tree_sums(shards)
    assert run("merge", shards, "-o", shards, "--overwrite").exit_code == 4
    assert run("merge", shards, "-o", shards / "x.safetensors").exit_code == 4
    assert tree_sums(shards) == before


def test_missing_shards_are_exit_three_naming_them(shards: Path) -> None:
    (shards / f"{STEM}-00002-of-00004.safetensors").unlink()
    result = run("merge", shards, "-o", shards.parent / "out")
    assert result.exit_code == 3
    assert f"{STEM}-00002-of-00004.safetensors" in result.stderr
    assert not (shards.parent / "out").exists()


def test_several_checkpoints_do_not_fit_in_one_file(tmp_path: Path, demo: Path) -> None:
    result = run("merge", demo, "-o", tmp_path / "x.safetensors")
    assert result.exit_code == 4
    assert "a folder of 4 weights files" in result.stderr
    assert list(tmp_path.iterdir()) == []
