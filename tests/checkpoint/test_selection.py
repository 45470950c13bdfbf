"""What goes along with the weights: everything below the source, and nothing of anybody else's."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

import pytest

from shardtool.checkpoint.selection import Choice, select, walk
from shardtool.errors import InputError
from tests.corpus.base import write_component, write_pipeline


def code_of(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        select(folder, Choice())
    return caught.value.code


def test_a_link_that_leads_nowhere_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    (folder / "README.md").symlink_to("nothing")
    assert code_of(folder) == "dangling_link"


def test_a_link_to_a_folder_of_the_source_is_followed_once(tmp_path: Path) -> None:
    pipeline = write_pipeline(tmp_path / "pipeline")
    (pipeline / "scheduler_2").symlink_to("scheduler")
    assert PurePath("scheduler_2/scheduler_config.json") in select(pipeline, Choice()).others


@pytest.mark.parametrize("target", [".", "..", "../unet", "../scheduler"])
def test_links_in_a_ring_are_refused(tmp_path: Path, target: str) -> None:
    pipeline = write_pipeline(tmp_path / "pipeline")
    (pipeline / "scheduler" / "ring").symlink_to("../unet")
    (pipeline / "unet" / "ring").symlink_to(target)
    assert code_of(pipeline) == "link_nested"


def test_a_few_links_cannot_stand_for_thousands_of_files(tmp_path: Path) -> None:
    """Twenty folders, each with two links to the next: 2²⁰ paths to one file."""
    for number in range(20):
        (tmp_path / f"d{number:02d}").mkdir()
        for name in ("a", "b"):
            (tmp_path / f"d{number:02d}" / name).symlink_to(f"../d{number + 1:02d}")
    (tmp_path / "d20").mkdir()
    (tmp_path / "d20" / "x").touch()
    with pytest.raises(InputError) as caught:
        list(walk(tmp_path))
    assert caught.value.code == "link_nested"


def test_names_that_are_no_utf8_go_along(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    name = os.fsdecode(b"notes\xff.txt")
    (folder / name).write_text("x")
    assert PurePath(name) in select(folder, Choice()).others
