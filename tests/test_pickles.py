"""Pickled weights become safetensors without anything in them being run."""

from __future__ import annotations

import json
import os
import pickle
import random
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import CLIPTextModel

from shardtool.checkpoint.job import Job
from shardtool.checkpoint.names import WeightsName
from shardtool.checkpoint.plan import WHOLE, Split
from shardtool.checkpoint.selection import Choice
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import Manner, write_job
from shardtool.errors import InputError
from shardtool.pickles import PickleReader
from tests.checkpoint.test_shard_peers import same, text_encoder, unet


def convert(source: Path, target: Path, split: Split = WHOLE, reader: PickleReader | None = None) -> Job:
    job = plan_job(source, Choice(read_pickle=reader or PickleReader()), Shape(split))
    write_job(job, target, Manner(durable=False, verify=True))
    return job


@pytest.mark.parametrize("limit", [None, 60_000])
def test_a_component_that_diffusers_pickled(tmp_path: Path, limit: int | None) -> None:
    model = unet(1)
    model.save_pretrained(tmp_path / "theirs", safe_serialization=False)
    convert(tmp_path / "theirs", tmp_path / "ours", Split(limit))
    assert not list((tmp_path / "ours").glob("*.bin*"))
    assert same(model, tmp_path / "ours")


def test_pickled_shards(tmp_path: Path) -> None:
    model = unet(1)
    model.save_pretrained(tmp_path / "theirs", safe_serialization=False, max_shard_size="40KB")
    assert len(list((tmp_path / "theirs").glob("*.bin"))) > 2
    convert(tmp_path / "theirs", tmp_path / "ours", Split(60_000))
    assert same(model, tmp_path / "ours")
    convert(tmp_path / "theirs" / "diffusion_pytorch_model.bin.index.json", tmp_path / "again")
    assert (tmp_path / "again" / "diffusion_pytorch_model.safetensors").exists()


def test_the_names_become_those_of_safetensors(tmp_path: Path) -> None:
    model = text_encoder(1)
    (tmp_path / "theirs").mkdir()
    model.config.save_pretrained(tmp_path / "theirs")
    torch.save(model.state_dict(), tmp_path / "theirs" / "pytorch_model.fp16.bin")
    convert(tmp_path / "theirs", tmp_path / "ours")
    assert (tmp_path / "ours" / "model.fp16.safetensors").exists()
    assert isinstance(model, CLIPTextModel)
    assert same(model, tmp_path / "ours", variant="fp16")


def test_a_folder_of_nothing_but_pickles_will_do(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    torch.save({"weight": torch.ones(3)}, tmp_path / "theirs" / "pytorch_model.bin")
    convert(tmp_path / "theirs", tmp_path / "ours")
    assert load_file(tmp_path / "ours" / "model.safetensors")["weight"].tolist() == [1, 1, 1]


def test_ties_are_stored_once_and_noted_as_huggingface_hub_does(tmp_path: Path) -> None:
    weight = torch.randn(40, 30)
    torch.save({"b": weight, "a": weight, "c": torch.zeros(3)}, tmp_path / "x.bin")
    convert(tmp_path / "x.bin", tmp_path / "one")
    with safe_open(tmp_path / "one" / "x.safetensors", "pt") as file:
        assert sorted(file.keys()) == ["a", "c"]
        assert file.metadata() == {"format": "pt", "b": "a"}
    convert(tmp_path / "x.bin", tmp_path / "many", Split(4_960, allow_oversize=True))
    index = json.loads((tmp_path / "many" / "x.safetensors.index.json").read_text())
    assert index["metadata"]["b"] == "a"


def test_views_and_odd_strides_are_copied(tmp_path: Path) -> None:
    base = torch.randn(6, 8, 4, 4)
    content = {
        "channels_last": base.to(memory_format=torch.channels_last),
        "transposed": base[0, 0].t(),
        "row": base[2],
        "first_half": base[:3],
        "empty": base[:0],
        "bool": base[0, 0] > 0,
    }
    torch.save(content, tmp_path / "x.pt")
    convert(tmp_path / "x.pt", tmp_path / "out")
    found = load_file(tmp_path / "out" / "x.safetensors")
    assert found.keys() == content.keys()
    assert all(torch.equal(found[name], content[name]) for name in content)


def test_a_state_dict_inside_is_found_and_what_is_no_tensor_is_named(tmp_path: Path) -> None:
    torch.save({"state_dict": {"a": torch.ones(3)}, "global_step": 7}, tmp_path / "x.ckpt")
    reader = PickleReader()
    convert(tmp_path / "x.ckpt", tmp_path / "out", reader=reader)
    assert load_file(tmp_path / "out" / "x.safetensors").keys() == {"a"}
    assert [note.text for note in reader.notes] == ["x.ckpt: 1 entries are no tensors: global_step"]


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_in_it_is_run(tmp_path: Path, protocol: int, zipped: bool) -> None:  # noqa: FBT001
    content = {"a": torch.ones(3), "evil": Evil(tmp_path / "ran")}
    torch.save(content, tmp_path / "x.bin", pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    with pytest.raises(InputError, match="is refused by the weights-only unpickler") as error:
        convert(tmp_path / "x.bin", tmp_path / "out")
    # What it wanted is named, and torch's advice on how to run it all the same is not passed on.
    assert f"{os.name}.system" in error.value.message or protocol == 4
    assert "weights_only" not in error.value.message
    assert "nothing in it was run" in error.value.message
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "out").exists()


def test_a_plain_pickle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(pickle.dumps({"a": [1, 2]}))
    with pytest.raises(InputError):
        convert(tmp_path / "x.bin", tmp_path / "out")


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1_000_000)}, tmp_path / "real.bin")
    with zipfile.ZipFile(tmp_path / "real.bin") as real, zipfile.ZipFile(tmp_path / "x.bin", "w") as bomb:
        for entry in real.infolist():
            bomb.writestr(entry.filename, real.read(entry), compress_type=zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match="compressed"):
        convert(tmp_path / "x.bin", tmp_path / "out")


@pytest.mark.parametrize("name", ["__metadata__", "a\ud800"])
def test_a_name_that_safetensors_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    torch.save({name: torch.zeros(4), "b": torch.zeros(4)}, tmp_path / "x.bin")
    with pytest.raises(InputError, match="can hold none of that name"):
        convert(tmp_path / "x.bin", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_whatever_is_damaged_is_an_error_that_names_the_file(tmp_path: Path, *, zipped: bool) -> None:
    """Single bytes: in the archive's directory, its names, and the pickle itself."""
    torch.save({"a": torch.zeros(4), "b": torch.ones(2)}, tmp_path / "x.bin", _use_new_zipfile_serialization=zipped)
    raw, drawn = (tmp_path / "x.bin").read_bytes(), random.Random(1)
    read = PickleReader()
    for _ in range(400):
        damaged = bytearray(raw)
        damaged[drawn.randrange(len(raw))] = drawn.randrange(256)
        (tmp_path / "x.bin").write_bytes(damaged)
        with suppress(InputError):
            read(tmp_path / "x.bin", WeightsName("x"))


@pytest.mark.parametrize("keep", [0.2, 0.9])
def test_a_truncated_file_is_refused(tmp_path: Path, keep: float) -> None:
    torch.save({"a": torch.zeros(10_000)}, tmp_path / "x.bin")
    raw = (tmp_path / "x.bin").read_bytes()
    (tmp_path / "x.bin").write_bytes(raw[: int(len(raw) * keep)])
    with pytest.raises(InputError):
        convert(tmp_path / "x.bin", tmp_path / "out")


def test_without_leave_a_pickle_is_refused_with_the_option_to_type(tmp_path: Path) -> None:
    unet(1).save_pretrained(tmp_path / "theirs", safe_serialization=False)
    with pytest.raises(InputError, match="holds only pickled weights") as caught:
        plan_job(tmp_path / "theirs", Choice(), Shape(WHOLE))
    assert caught.value.hint is not None
    assert "--allow-pickle" in caught.value.hint


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(4, device="meta"), torch.ones(4).to_sparse()],
    ids=["meta", "sparse"],
)
def test_tensors_without_plain_numbers_are_refused_by_name(tensor: torch.Tensor, tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    torch.save({"odd": tensor}, path)
    with pytest.raises(InputError, match=r"pytorch_model\.bin: tensor 'odd' is"):
        PickleReader()(path, WeightsName("model"))
