"""A checkpoint as one table: the same for one file and for shards, with the offsets that the data really has."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors import safe_open

from shardtool.checkpoint.inventory import examine, read_checkpoint
from shardtool.errors import InputError
from tests.corpus.base import INDEX, NAMES, shard_name, weights_file, write_component


def test_shards_are_one_table_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    found = read_checkpoint(write_component(tmp_path / "unet"))
    assert list(found.tensors) == NAMES
    assert [file.path.name for file in found.files] == [shard_name(number) for number in (1, 2, 3)]
    assert (found.parameters, found.nbytes, found.dtypes) == (24, 96, {"F32": 96})
    assert found.metadata == {"format": "pt"}


def test_offsets_lead_to_the_bytes_that_the_reference_reads(demo: Path) -> None:
    found = read_checkpoint(demo / "unet")
    (file,) = found.files
    raw = file.path.read_bytes()
    with safe_open(file.path, framework="np") as reference:
        assert set(reference.keys()) == set(found.tensors)
        for name, stored in found.tensors.items():
            assert raw[stored.offset : stored.offset + stored.info.nbytes] == reference.get_tensor(name).tobytes()


def test_an_index_file_names_the_same_checkpoint_as_its_folder(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    assert read_checkpoint(folder / INDEX).tensors == read_checkpoint(folder).tensors


def test_metadata_of_several_files_is_joined_and_the_first_one_wins(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    (folder / shard_name(2)).write_bytes(weights_file(dict.fromkeys(NAMES[2:4], 4), {"format": "np", "more": "x"}))
    assert read_checkpoint(folder).metadata == {"format": "pt", "more": "x"}


def test_all_faults_are_reported_and_the_first_one_speaks(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    (folder / shard_name(1)).write_bytes(b"")
    (folder / shard_name(3)).unlink()
    with pytest.raises(InputError) as caught:
        read_checkpoint(folder)
    assert {problem.code for problem in caught.value.problems} == {"truncated", "shard_missing"}
    assert caught.value.message == caught.value.problems[0].message


def test_warnings_alone_do_not_refuse(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    (folder / shard_name(1, 7)).write_bytes(weights_file({"old": 4}))
    found = examine(folder)
    assert [problem.code for problem in found.problems] == ["shard_unindexed"]
    assert "old" not in read_checkpoint(folder).tensors
