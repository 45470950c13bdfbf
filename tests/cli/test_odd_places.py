"""Whatever stands in place of a file or a folder of a source, and whatever may not be read: no command has a bug."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app
from shardtool.errors import ShardtoolError
from shardtool.parts import read_parts
from tests.corpus.base import INDEX, shard_name, weights_file, write_pipeline
from tests.nobody import run_as_nobody

Spoil = Callable[[Path], None]

ENTRIES = (
    "model_index.json",
    "README.md",
    "scheduler",
    "scheduler/scheduler_config.json",
    "unet",
    "unet/config.json",
    f"unet/{INDEX}",
    f"unet/{shard_name(2)}",
)


def linked(place: Path, target: str) -> None:
    place.symlink_to(target)


SPOILERS: dict[str, Spoil] = {
    "nothing": lambda place: None,  # noqa: ARG005
    "empty": Path.touch,
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "dangling": partial(linked, target="nowhere"),
    "ring": partial(linked, target="."),
    "above": partial(linked, target=".."),
    "elsewhere": partial(linked, target="/etc"),
}


def in_need_of_repair(folder: Path) -> Path:
    pipeline = write_pipeline(folder)
    (pipeline / "README.md").write_text("mine")
    (pipeline / "unet" / shard_name(1, 9)).write_bytes(weights_file({"stale": 1}))
    return pipeline


def replaced(place: Path, spoil: Spoil) -> None:
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    spoil(place)


def ended(pipeline: Path) -> Iterator[tuple[str, int]]:
    """The commands that look at folders, and their exit codes; a bug's exception comes out of ``invoke``."""
    unet, out = str(pipeline / "unet"), str(pipeline.parent / "out" / "result")
    for command in (
        ["inspect", str(pipeline)],
        ["verify", str(pipeline), "--structure"],
        ["shard", str(pipeline), "--shards", "2", "-o", out, "--overwrite", "--no-fsync"],
        ["merge", unet, "-o", out, "--dry-run"],
        ["repair", str(pipeline), "-o", out, "--overwrite"],
    ):
        result = CliRunner().invoke(app, command, catch_exceptions=False)
        yield command[0], result.exit_code


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_stands_in_place_of_a_file_is_told(tmp_path: Path, entry: str) -> None:
    for name, spoil in SPOILERS.items():
        place = tmp_path / name
        pipeline = in_need_of_repair(place / "pipeline")
        replaced(pipeline / entry, spoil)
        assert {code for _, code in ended(pipeline)} <= {0, 1, 3, 4, 5}, name
        assert [path for path in place.iterdir() if "shardtool" in path.name] == [], name


def close_one_after_the_other(place: Path) -> dict[str, dict[str, int]]:
    """The exit codes while each entry in turn may not be read, or not be entered."""
    pipeline = in_need_of_repair(place / "pipeline")
    found = {}
    for entry in (".", *ENTRIES):
        for mode in (0o000, 0o444, 0o311):
            before = (pipeline / entry).stat().st_mode
            (pipeline / entry).chmod(mode)
            found[f"{entry} {mode:03o}"] = dict(ended(pipeline))
            with suppress(ShardtoolError):
                read_parts(pipeline)
            (pipeline / entry).chmod(before)
    (place / "out").chmod(0)
    found["out 000"] = dict(ended(pipeline))
    (place / "out").chmod(0o755)
    return found


def test_what_may_not_be_read_is_told(tmp_path: Path) -> None:
    first = (
        "import json; from pathlib import Path; from tests.cli import test_odd_places as here\n"
        "list(here.ended(here.in_need_of_repair(Path(sys.argv[1], 'pipeline'))))"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)  # pytest's own folders are closed to others
        then = "print(json.dumps(here.close_one_after_the_other(Path(sys.argv[2]))))"
        done = run_as_nobody(first, then, str(tmp_path), folder)
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout)
    assert {code for found in codes.values() for code in found.values()} <= {0, 1, 3, 4, 5}
    assert codes["README.md 000"] == {"inspect": 0, "verify": 0, "shard": 3, "merge": 0, "repair": 3}
    assert codes["scheduler 000"]["shard"] == 3
    assert codes["out 000"] == {"inspect": 0, "verify": 0, "shard": 5, "merge": 5, "repair": 5}
