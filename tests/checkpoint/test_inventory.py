"""A checkpoint as one table: the same for one file and for shards, with the offsets that the data really has."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors import safe_open

from shardtool.checkpoint.inventory import examine, read_checkpoint
from shardtool.checkpoint.names import WeightsName
from shardtool.errors import InputError
from tests.checkpoint.referee import Tensor, by_hand
from tests.corpus.base import INDEX, NAMES, shard_name, weights_file, write_component, write_index


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


def put(folder: Path, files: dict[str, dict[str, Tensor]]) -> Path:
    """Files in a folder, with an index where there is more than one."""
    for name, tensors in files.items():
        (folder / name).write_bytes(by_hand(tensors, {"format": "pt"}))
    if len(files) > 1:
        weight_map = {tensor: name for name, tensors in files.items() for tensor in tensors}
        write_index(folder, {"metadata": {}, "weight_map": weight_map})
    return folder


def test_bytes_and_numbers_are_counted_over_all_files_and_the_largest_dtype_comes_first(tmp_path: Path) -> None:
    files: dict[str, dict[str, Tensor]] = {
        shard_name(1, 2): {"a": ("F32", [], bytes(4)), "b": ("I8", [3, 5], bytes(15)), "c": ("F16", [0, 7], b"")},
        shard_name(2, 2): {"d": ("F4", [2, 6], bytes(6)), "e": ("F32", [2], bytes(8)), "f": ("F64", [5], bytes(40))},
    }
    found = read_checkpoint(put(tmp_path, files))
    assert list(found.dtypes.items()) == [("F64", 40), ("I8", 15), ("F32", 12), ("F4", 6), ("F16", 0)]
    assert found.nbytes == 73
    assert found.parameters == 1 + 15 + 0 + 12 + 2 + 5
    assert sum(file.size for file in found.files) == sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))


def test_files_stand_in_the_order_of_their_numbers_not_of_their_digits(tmp_path: Path) -> None:
    """With more than 99,999 shards the numbers have six digits from there on; those without a number come first."""
    count = 100_001
    names = ["any.safetensors", *(shard_name(number, count) for number in (2, 99_999, 100_000))]
    assert sorted(names) != names
    found = examine(put(tmp_path, {name: {name: ("U8", [1], b"x")} for name in names})).checkpoint
    assert found is not None
    assert [file.path.name for file in found.files] == names


@pytest.mark.parametrize(
    ("filename", "name"),
    [
        ("model.fp16.safetensors", WeightsName("model", "fp16")),
        ("any.thing.safetensors", WeightsName("any.thing")),
        ("model-00001-of-00002.safetensors", WeightsName("model-00001-of-00002")),
    ],
)
def test_a_file_by_itself_is_a_checkpoint_of_that_name(tmp_path: Path, filename: str, name: WeightsName) -> None:
    """Also a shard, whose other tensors nobody asked for."""
    path = put(tmp_path, {filename: {"a": ("U8", [1], b"x")}}) / filename
    found = read_checkpoint(path)
    assert (found.name, found.index, found.folder) == (name, None, tmp_path)
    assert found.name.single == filename


def test_shards_without_an_index_say_which_and_how_to_get_one(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    (folder / INDEX).unlink()
    found = examine(folder)
    (problem,) = found.errors
    assert found.checkpoint is None
    assert problem.code == "index_missing"
    assert all(word in problem.message for word in ("3 shards", shard_name(1), INDEX))
    assert f"shardtool repair {folder}" in (problem.hint or "")


def test_a_link_that_the_user_names_is_followed_and_one_in_a_folder_is_not(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    put(tmp_path / "elsewhere", {"x.safetensors": {"a": ("U8", [1], b"x")}})
    folder = tmp_path / "unet"
    folder.mkdir()
    link = folder / "diffusion_pytorch_model.safetensors"
    link.symlink_to("../elsewhere/x.safetensors")
    assert list(read_checkpoint(link).tensors) == ["a"]
    with pytest.raises(InputError) as caught:
        read_checkpoint(folder)
    assert caught.value.code == "link_outside"


def test_what_can_be_read_is_no_checkpoint_until_all_can(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    (folder / shard_name(2)).write_bytes(b"cut")
    assert examine(folder).checkpoint is None
    assert [problem.path for problem in examine(folder).errors] == [str(folder / shard_name(2))]


@pytest.mark.parametrize("text", ["a dog\na cat at night\n", '{"seed": 7, "steps": 4}', "ein Hund, 犬, 犬, 犬"])
def test_a_text_file_is_told_as_such(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text(text, encoding="utf-8")
    (problem,) = examine(path).problems
    assert (problem.code, problem.message) == ("not_safetensors", f"{path}: is a text file, not safetensors")
    assert ".safetensors.index.json" in problem.hint
