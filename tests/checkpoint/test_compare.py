"""Two checkpoints bit for bit, however each is sharded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from shardtool.checkpoint.compare import compare, form, paired
from shardtool.checkpoint.contents import survey
from shardtool.checkpoint.inventory import read_checkpoint
from shardtool.checkpoint.reading import BLOCK, TensorReader
from shardtool.errors import InputError, UsageError
from shardtool.events import Advanced, Event, Finished, Started
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


def test_progress_counts_the_bytes_that_both_have(tmp_path: Path) -> None:
    one, other = tmp_path / "one.safetensors", tmp_path / "other.safetensors"
    one.write_bytes(weights_file({"same": 4, "form": 4, "gone": 400}))
    other.write_bytes(weights_file({"same": 4, "form": 5, "new": 400}))
    events: list[Event] = []
    with TensorReader() as reader:
        list(compare(read_checkpoint(one), read_checkpoint(other), reader, events.append))
    started, *advanced, finished = events
    assert isinstance(started, Started) and isinstance(finished, Finished)
    assert started.total == 32
    assert [event.by for event in advanced if isinstance(event, Advanced)] == [16, 16]
    assert {event.task for event in (started, finished)} == {started.task}


def test_a_pair_gives_the_side_that_there_is(tmp_path: Path) -> None:
    one, other = tmp_path / "one.safetensors", tmp_path / "other.safetensors"
    one.write_bytes(weights_file({"gone": 1, "both": 2}))
    other.write_bytes(weights_file({"both": 3, "new": 4}))
    with TensorReader() as reader:
        pairs = list(compare(read_checkpoint(one), read_checkpoint(other), reader))
    assert [(pair.name, form(pair.one)) for pair in pairs] == [
        ("gone", "F32[1]"),
        ("both", "F32[2]"),
        ("new", "F32[4]"),
    ]


def test_a_component_that_only_one_pipeline_has_is_paired_with_nothing(tmp_path: Path) -> None:
    one, other = write_pipeline(tmp_path / "one"), write_pipeline(tmp_path / "other")
    for name, pipeline in (("vae", one), ("unet_2", other)):
        write_component(pipeline / name)
        content = json.loads((pipeline / "model_index.json").read_text())
        content[name] = ["diffusers", "UNet2DConditionModel"]
        (pipeline / "model_index.json").write_text(json.dumps(content))
    found = {name: (a is not None, b is not None) for name, a, b in paired(survey(one), survey(other))}
    assert found == {"unet": (True, True), "vae": (True, False), "unet_2": (False, True)}


@pytest.mark.parametrize("first", [True, False])
def test_damage_on_either_side_is_told_and_a_warning_is_none(tmp_path: Path, first: bool) -> None:  # noqa: FBT001
    sound, other = write_component(tmp_path / "a"), write_component(tmp_path / "b")
    (other / shard_name(1, 7)).write_bytes(weights_file({"old": 4}))
    pair = (survey(other), survey(sound)) if first else (survey(sound), survey(other))
    assert len(list(paired(*pair))) == 1
    (other / shard_name(2)).unlink()
    pair = (survey(other), survey(sound)) if first else (survey(sound), survey(other))
    with pytest.raises(InputError):
        list(paired(*pair))
