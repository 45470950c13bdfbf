"""Links: inside the folder and in the Hub cache's layout they are followed, elsewhere only if the user says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardtool.checkpoint.inventory import examine, read_checkpoint
from shardtool.checkpoint.links import FOLLOW_LINKS, link_problem
from shardtool.errors import InputError
from shardtool.part import read_component
from tests.corpus.base import NAMES, shard_name, write_component, write_pipeline


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A component whose second shard lies on "another disk"."""
    folder = write_component(tmp_path / "unet")
    disk = tmp_path / "disk"
    disk.mkdir()
    (folder / shard_name(2)).rename(disk / "two")
    (folder / shard_name(2)).symlink_to(disk / "two")
    return folder


def test_a_link_out_of_the_folder_is_refused_and_the_message_says_what_to_type(linked: Path) -> None:
    (problem,) = examine(linked).errors
    assert problem.code == "link_outside"
    assert str(linked.parent / "disk" / "two") in problem.message
    assert problem.hint is not None and f"{FOLLOW_LINKS}=1" in problem.hint


def test_it_is_followed_when_the_user_trusts_it(linked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLLOW_LINKS, "1")
    assert set(read_checkpoint(linked).tensors) == set(NAMES)
    monkeypatch.setenv(FOLLOW_LINKS, "0")
    with pytest.raises(InputError):
        read_checkpoint(linked)


def test_a_link_that_the_user_names_is_followed(linked: Path) -> None:
    (linked.parent / "mine").symlink_to(linked / shard_name(1))
    assert len(read_checkpoint(linked.parent / "mine").tensors) == 2


def test_a_link_to_another_component_of_the_pipeline_stays_inside(tmp_path: Path) -> None:
    pipeline = write_pipeline(tmp_path / "pipeline")
    write_component(pipeline / "unet_2")
    (pipeline / "unet_2" / shard_name(1)).unlink()
    (pipeline / "unet_2" / shard_name(1)).symlink_to(f"../unet/{shard_name(1)}")
    assert not examine(pipeline / "unet_2").errors


def test_a_config_elsewhere_is_not_read_when_a_model_is_to_be_loaded(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    (folder / "config.json").rename(tmp_path / "config.json")
    (folder / "config.json").symlink_to("../config.json")
    with pytest.raises(InputError) as caught:
        read_component(folder)
    assert caught.value.code == "link_outside"


def test_only_a_folder_of_the_cache_s_own_form_may_use_its_blobs(tmp_path: Path) -> None:
    for name, allowed in (("models--a--b", True), ("my-models", False)):
        folder = tmp_path / name / "snapshots" / "0123" / "unet"
        folder.mkdir(parents=True)
        (tmp_path / name / "blobs").mkdir()
        (tmp_path / name / "blobs" / "x").touch()
        (folder / "x.safetensors").symlink_to("../../../blobs/x")
        assert (link_problem(folder, folder / "x.safetensors") is None) == allowed
