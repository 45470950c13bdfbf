"""The index: what is written is read again, and every bad name in one is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardtool.checkpoint.index import read_index, render_index
from shardtool.errors import InputError


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors.index.json"
    path.write_bytes(render_index({"b": "y.safetensors", "ä": "x.safetensors"}, total_size=12, metadata={"more": [1]}))
    found = read_index(path)
    assert found.weight_map == {"b": "y.safetensors", "ä": "x.safetensors"}
    assert found.metadata == {"more": [1], "total_size": 12}
    assert found.files == ("x.safetensors", "y.safetensors")
    assert not found.bare


def test_metadata_that_is_not_there_is_told_from_empty_metadata(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors.index.json"
    for content, bare in (({}, True), ({"metadata": {}}, False)):
        path.write_text(json.dumps({**content, "weight_map": {"a": "x.safetensors"}}))
        assert read_index(path).bare == bare


def test_each_bad_shard_name_is_told_once_with_a_tensor(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": {"a": "../x", "b": "../x", "c": 7}}))
    with pytest.raises(InputError) as caught:
        read_index(path)
    assert [(problem.code, problem.tensor) for problem in caught.value.problems] == [
        ("unsafe_path", "a"),
        ("unsafe_path", "c"),
    ]
