"""Two checkpoints bit for bit, however each is sharded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shardtool.checkpoint.compare import compare, paired
from shardtool.checkpoint.contents import survey
from shardtool.checkpoint.inventory import read_checkpoint
from shardtool.checkpoint.reading import BLOCK, TensorReader
from shardtool.errors import InputError, UsageError
from tests.corpus.base import (
    NAMES,
    index_of,
    shard_name,
    weights_file,
    write_component,
    write_index,
    write_pipeline,
)


def kinds(a: Path, b: Path) -> dict[str, str]:
    with TensorReader() as reader:
        return {pair.name: pair.kind for pair in compare(read_checkpoint(a), read_checkpoint(b), reader)}


def test_shards_and_one_file_with_the_same_tensors_are_the_same(tmp_path: Path) -> None:
    shards = write_component(tmp_path / "unet")
    single = tmp_path / "one.safetensors"
    single.write_bytes(weights_file(dict.fromkeys(reversed(NAMES), 4)))
    assert kinds(shards, single) == dict.fromkeys(NAMES, "same")


def test_every_kind_of_difference_is_told(tmp_path: Path) -> None:
    one, other = tmp_path / "one.safetensors", tmp_path / "other.safetensors"
    one.write_bytes(weights_file({"same": 4, "form": 4, "values": 4, "gone": 4}))
    raw = bytearray(weights_file({"same": 4, "form": 5, "new": 4, "values": 4}))
    raw[-1] ^= 1
    other.write_bytes(raw)
    assert kinds(one, other) == {
        "same": "same",
        "form": "form",
        "values": "values",
        "gone": "only_a",
        "new": "only_b",
    }


@pytest.mark.parametrize("place", [0, BLOCK - 1, BLOCK, 2 * BLOCK + 11])
def test_one_bit_makes_the_difference_in_any_block(tmp_path: Path, place: int) -> None:
    one, other = tmp_path / "one.safetensors", tmp_path / "other.safetensors"
    raw = bytearray(weights_file({"a": (2 * BLOCK + 12) // 4}))
    one.write_bytes(raw)
    raw[len(raw) - (2 * BLOCK + 12) + place] ^= 0x10
    other.write_bytes(raw)
    assert kinds(one, other) == {"a": "values"}


def test_a_file_that_changes_between_header_and_data_is_an_error(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    checkpoint = read_checkpoint(folder)
    (folder / shard_name(2)).write_bytes(weights_file({"other": 8}))
    with TensorReader() as reader, pytest.raises(InputError) as caught:
        list(compare(checkpoint, checkpoint, reader))
    assert caught.value.code == "file_changed"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 shards, and one file of the same tensors; those have several blocks at which a limit may be reached."""
    folder = tmp_path_factory.mktemp("many")
    sizes = {f"t{number}": BLOCK if number in (32, 64, 128) else 1 for number in range(1, 201)}
    shards = {shard_name(number, 200): {name: sizes[name]} for number, name in enumerate(sizes, start=1)}
    for name, tensors in shards.items():
        (folder / name).write_bytes(weights_file(tensors))
    write_index(folder, index_of(shards))
    (folder / "one.safetensors").write_bytes(weights_file(sizes))
    return folder


def test_more_files_than_may_be_open_are_compared(many: Path) -> None:
    assert set(kinds(many, many).values()) == {"same"}


def test_one_file_is_compared_with_more_shards_than_may_be_open(many: Path) -> None:
    """It is not closed while it is read, though it was opened first."""
    assert set(kinds(many / "one.safetensors", many).values()) == {"same"}


def test_a_file_that_changes_after_its_turn_is_noticed(many: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(many, tmp_path / "many")
    found = read_checkpoint(folder)
    with pytest.raises(InputError) as caught, TensorReader() as reader:
        pairs = compare(found, found, reader)
        next(pairs)
        (folder / shard_name(1, 200)).touch()
        assert {pair.kind for pair in pairs} == {"same"}
    assert caught.value.code == "file_changed"


def test_components_of_pipelines_are_paired_by_name(tmp_path: Path) -> None:
    one, other = write_pipeline(tmp_path / "one"), write_pipeline(tmp_path / "other")
    assert [(name, a is not None, b is not None) for name, a, b in paired(survey(one), survey(other))] == [
        ("unet", True, True)
    ]


def test_a_pipeline_is_not_compared_with_a_component(tmp_path: Path) -> None:
    pipeline = write_pipeline(tmp_path / "one")
    with pytest.raises(UsageError) as caught:
        list(paired(survey(pipeline), survey(pipeline / "unet")))
    assert caught.value.hint is not None and "unet" in caught.value.hint


def test_what_is_damaged_is_not_compared(tmp_path: Path) -> None:
    sound, damaged = write_component(tmp_path / "a"), write_component(tmp_path / "b")
    (damaged / shard_name(2)).unlink()
    with pytest.raises(InputError) as caught:
        list(paired(survey(sound), survey(damaged)))
    assert caught.value.code == "shard_missing"
