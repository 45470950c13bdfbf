"""Repair: what can be told from headers is put right, everything else is refused and left as it was."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest

from shardtool.checkpoint.inventory import examine, read_checkpoint
from shardtool.checkpoint.repair_plan import plan_repairs, plan_source
from shardtool.checkpoint.repair_run import repair_in_place, repair_into
from shardtool.errors import InputError, RefusedError, RunError, UsageError
from tests.corpus.base import (
    INDEX,
    NAMES,
    SINGLE,
    held,
    index_of,
    read_index,
    shard_name,
    weights_file,
    write_component,
    write_index,
    write_pipeline,
)

ALL = {shard_name(number): held(number) for number in (1, 2, 3)}
SOUND = index_of(ALL)


def state_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def no_index(folder: Path) -> None:
    (folder / INDEX).unlink()


def broken_index(folder: Path) -> None:
    (folder / INDEX).write_text("{")


def empty_map(folder: Path) -> None:
    write_index(folder, {"metadata": {}, "weight_map": {}})


def misplaced(folder: Path) -> None:
    content = read_index(folder)
    content["weight_map"][NAMES[0]] = shard_name(3)
    write_index(folder, content)


def unlisted(folder: Path) -> None:
    content = read_index(folder)
    del content["weight_map"][NAMES[3]]
    write_index(folder, content)


def unsafe_names(folder: Path) -> None:
    content = read_index(folder)
    content["weight_map"][NAMES[3]] = "../x.safetensors"
    write_index(folder, content)


def wrong_size(folder: Path) -> None:
    content = read_index(folder)
    content["metadata"] = {"total_size": 1}
    write_index(folder, content)


def stale_index(folder: Path) -> None:
    """The index of an earlier save in five shards, of which none is left."""
    write_index(folder, {"metadata": {}, "weight_map": dict.fromkeys(NAMES, shard_name(1, 5))})


def stale_shards(folder: Path) -> None:
    (folder / shard_name(2, 7)).write_bytes(weights_file({"old": 4}))


def same_single(folder: Path) -> None:
    """A single file with the same tensors lies beside the shards."""
    (folder / SINGLE).write_bytes(weights_file(dict.fromkeys(NAMES, 4)))


REPAIRABLE: list[Callable[[Path], None]] = [
    no_index,
    broken_index,
    empty_map,
    misplaced,
    unlisted,
    unsafe_names,
    wrong_size,
    stale_index,
    stale_shards,
    same_single,
]


@pytest.mark.parametrize("spoil", REPAIRABLE, ids=lambda spoil: spoil.__name__)
def test_what_is_repaired_is_sound_and_the_source_untouched(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    folder = write_component(tmp_path / "unet")
    (folder / "README.md").write_text("mine")
    spoil(folder)
    before = state_of(folder)
    target = tmp_path / "repaired"
    repair_into(folder, target, plan_source(folder), overwrite=False)

    assert examine(target).problems == ()
    assert set(read_checkpoint(target).tensors) == set(NAMES)
    assert json.loads((target / INDEX).read_text())["weight_map"] == SOUND["weight_map"]
    assert (target / "README.md").read_text() == "mine"
    assert state_of(folder) == before


@pytest.mark.parametrize("spoil", REPAIRABLE, ids=lambda spoil: spoil.__name__)
def test_in_place_keeps_what_was_replaced(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    folder = write_component(tmp_path / "unet")
    spoil(folder)
    before = state_of(folder)
    backup = repair_in_place(folder, plan_repairs(folder))

    after, kept = state_of(folder), {} if backup is None else state_of(backup)
    assert examine(folder).problems == ()
    assert backup == (tmp_path / "unet.before-repair" if kept else None)
    assert all(digest in (after.get(name), kept.get(name)) for name, digest in before.items())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["unet", *(["unet.before-repair"] if kept else [])]


def test_a_sound_checkpoint_needs_nothing(tmp_path: Path) -> None:
    assert not any(repair.is_needed for repair in plan_repairs(write_component(tmp_path / "unet")))


def test_metadata_of_the_index_is_kept(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    misplaced(folder)
    content = read_index(folder)
    content["metadata"]["total_parameters"] = 24
    write_index(folder, content)
    repair_into(folder, tmp_path / "out", plan_source(folder), overwrite=False)
    assert json.loads((tmp_path / "out" / INDEX).read_text())["metadata"] == {"total_parameters": 24, "total_size": 96}


def test_a_single_file_that_the_stale_index_hides_is_kept(tmp_path: Path) -> None:
    """Saved unsharded over shards: diffusers removes the shards and leaves the index, which then hides the file."""
    folder = write_component(tmp_path / "unet")
    same_single(folder)
    for number in (1, 2, 3):
        (folder / shard_name(number)).unlink()
    repair_into(folder, tmp_path / "out", plan_source(folder), overwrite=False)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", SINGLE]


def shard_gone(folder: Path) -> None:
    (folder / shard_name(2)).unlink()


def shard_cut(folder: Path) -> None:
    raw = (folder / shard_name(2)).read_bytes()
    (folder / shard_name(2)).write_bytes(raw[:-1])


def tensor_gone(folder: Path) -> None:
    (folder / shard_name(2)).write_bytes(weights_file({NAMES[2]: 4}))


def tensor_gone_and_no_index_says_so(folder: Path) -> None:
    shard_gone(folder)
    no_index(folder)


def tensor_twice(folder: Path) -> None:
    (folder / shard_name(3)).write_bytes(weights_file({**held(3), NAMES[0]: 4}))


def two_splits(folder: Path) -> None:
    no_index(folder)
    (folder / shard_name(1, 1)).write_bytes(weights_file(dict.fromkeys(NAMES, 4)))


def other_single(folder: Path) -> None:
    (folder / SINGLE).write_bytes(weights_file(dict.fromkeys(NAMES, 5)))


def last_shard_never_listed(folder: Path) -> None:
    (folder / shard_name(3)).unlink()
    write_index(folder, index_of({shard_name(1): held(1), shard_name(2): held(2)}))


@pytest.mark.parametrize(
    ("spoil", "code", "word"),
    [
        (shard_gone, "repair_impossible", "missing"),
        (shard_cut, "repair_impossible", "missing"),
        (tensor_gone, "repair_impossible", "lack 1 of the tensors"),
        (tensor_gone_and_no_index_says_so, "repair_impossible", "missing"),
        (tensor_twice, "repair_impossible", "duplicates"),
        (two_splits, "repair_ambiguous", "2 complete splits"),
        (other_single, "repair_ambiguous", "cannot be told"),
        (last_shard_never_listed, "repair_impossible", "missing"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_what_cannot_be_told_is_refused(tmp_path: Path, spoil: Callable[[Path], None], code: str, word: str) -> None:
    folder = write_component(tmp_path / "unet")
    spoil(folder)
    before = state_of(folder)
    with pytest.raises(InputError) as caught:
        plan_source(folder)
    assert caught.value.code == code
    assert word in caught.value.message
    assert caught.value.hint
    assert state_of(folder) == before


def test_every_component_of_a_pipeline_is_looked_at(tmp_path: Path) -> None:
    pipeline = write_pipeline(tmp_path / "pipeline")
    no_index(pipeline / "unet")
    repair_into(pipeline, tmp_path / "out", plan_source(pipeline), overwrite=False)
    assert examine(tmp_path / "out" / "unet").problems == ()
    assert (tmp_path / "out" / "scheduler" / "scheduler_config.json").exists()
    assert (tmp_path / "out" / "model_index.json").read_bytes() == (pipeline / "model_index.json").read_bytes()


def test_targets_that_exist_or_lie_inside_are_refused(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    no_index(folder)
    plan = plan_source(folder)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    for target in (tmp_path / "out", folder, folder / "inside"):
        with pytest.raises(RefusedError):
            repair_into(folder, target, plan, overwrite=False)
    assert list((tmp_path / "out").iterdir()) == [tmp_path / "out" / "mine"]


def test_a_target_that_holds_the_source_is_refused(tmp_path: Path) -> None:
    """Replacing it would remove the source."""
    folder = write_component(tmp_path / "pipeline" / "unet")
    no_index(folder)
    (tmp_path / "pipeline" / "mine").touch()
    (tmp_path / "link").symlink_to("pipeline")
    before = state_of(tmp_path)
    for target in (tmp_path / "pipeline", tmp_path / "link"):
        with pytest.raises(RefusedError) as caught:
            repair_into(folder, target, plan_source(folder), overwrite=True)
        assert caught.value.code == "target_is_source"
    assert state_of(tmp_path) == before


def test_what_else_lies_in_the_target_survives(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    no_index(folder)
    target = write_component(tmp_path / "out")
    for name in ("mine.txt", "diffusion_pytorch_model.fp16.safetensors", shard_name(1, 5), "deep/er/mine.txt"):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(weights_file({"old": 4}))
    repair_into(folder, target, plan_source(folder), overwrite=True)
    assert examine(target).problems == ()
    assert (target / "mine.txt").exists()
    assert (target / "deep" / "er" / "mine.txt").exists()
    assert (target / "diffusion_pytorch_model.fp16.safetensors").exists()
    assert not (target / shard_name(1, 5)).exists()


def test_a_file_is_no_target(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    no_index(folder)
    (tmp_path / "out").write_text("mine")
    with pytest.raises(RefusedError):
        repair_into(folder, tmp_path / "out", plan_source(folder), overwrite=True)
    assert (tmp_path / "out").read_text() == "mine"
    with pytest.raises(RunError) as caught:
        repair_into(folder, tmp_path / "out" / "below", plan_source(folder), overwrite=True)
    assert caught.value.code == "write_failed"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "unet"]


def test_an_earlier_backup_is_never_overwritten(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    misplaced(folder)
    (tmp_path / "unet.before-repair").mkdir()
    before = state_of(folder)
    with pytest.raises(RefusedError) as caught:
        repair_in_place(folder, plan_repairs(folder))
    assert caught.value.code == "target_exists"
    assert state_of(folder) == before


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("change", [cut_short, Path.unlink])
def test_what_was_damaged_since_it_was_planned_is_not_published(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """The result is looked at once more before anybody else can; the old state stays, and nothing lies about."""
    folder = write_component(tmp_path / "unet")
    no_index(folder)
    repairs = plan_repairs(folder)
    change(folder / shard_name(2))
    before = state_of(tmp_path)
    with pytest.raises(InputError):
        repair_into(folder, tmp_path / "out", {PurePath(): repairs}, overwrite=False)
    with pytest.raises(InputError):
        repair_in_place(folder, repairs)
    assert state_of(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["unet"]


def test_each_file_that_is_left_out_is_told_why(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    same_single(folder)
    (folder / shard_name(1, 2)).write_bytes((folder / shard_name(1)).read_bytes())
    (repair,) = plan_repairs(folder)
    assert repair.is_needed
    (single,) = [line for line in repair.done if SINGLE in line]
    (stray,) = [line for line in repair.done if shard_name(1, 2) in line]
    assert "the same tensors as the shards" in single
    assert "no part of the checkpoint" in stray


def test_a_file_is_no_folder_to_repair(demo: Path) -> None:
    with pytest.raises(UsageError):
        plan_source(demo / "unet" / SINGLE)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_disk_that_fails_at_any_sync_leaves_the_old_state_or_the_new_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_place: bool,  # noqa: FBT001
) -> None:
    """And says so; once the new one is in its place, it says that too. The next run goes through."""
    fsync, left = os.fsync, [0]

    def fail(fd: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(fd)

    def run() -> None:
        if in_place:
            repair_in_place(folder, plan_repairs(folder))
        else:
            repair_into(folder, tmp_path / "out", plan_source(folder), overwrite=False)

    folder = write_component(tmp_path / "unet")
    wrong_size(folder)
    before = state_of(tmp_path)
    for count in range(100):
        left[0] = count
        with monkeypatch.context() as context:
            context.setattr(os, "fsync", fail)
            try:
                run()
                break
            except RunError as error:
                if error.code == "not_durable":
                    break
                assert error.code == "write_failed"
        assert state_of(tmp_path) == before
        assert [path.name for path in tmp_path.iterdir()] == ["unet"]
    assert count > 2
    assert examine(folder if in_place else tmp_path / "out").problems == ()


def test_everything_is_on_the_disk_before_a_repaired_folder_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was copied, the new index, the folder, the backup; what is linked is on the disk already."""
    synced: list[Path] = []
    fsync = os.fsync

    def record(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        fsync(fd)

    folder = write_component(tmp_path / "unet")
    wrong_size(folder)
    monkeypatch.setattr(os, "fsync", record)
    repair_into(folder, tmp_path / "out", plan_source(folder), overwrite=False)
    (stage,) = {path.parent for path in synced if path.name == INDEX}
    assert {path.name for path in synced if path.parent == stage} == {path.name for path in folder.iterdir()}
    assert synced[-2:] == [stage, tmp_path]

    synced.clear()
    backup = repair_in_place(folder, plan_repairs(folder))
    (stage,) = {path.parent for path in synced if path.name == INDEX}
    assert {backup, stage} <= set(synced[:-1])
    assert synced[-1] == tmp_path


def test_no_weights_are_copied_in_place(tmp_path: Path) -> None:
    """Of tens of gigabytes, not a byte moves."""
    folder = write_component(tmp_path / "unet")
    no_index(folder)
    stale_shards(folder)
    before = {path.name: path.stat().st_ino for path in folder.iterdir()}
    backup = repair_in_place(folder, plan_repairs(folder))
    for place in (folder, backup):
        for path in place.iterdir():
            assert path.name == INDEX or path.stat().st_ino == before[path.name]
    assert {path.name for path in backup.iterdir()} == {shard_name(2, 7)}


def test_modes_of_a_repaired_folder_are_those_it_had(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    wrong_size(folder)
    folder.chmod(0o750)
    (folder / INDEX).chmod(0o640)
    repair_in_place(folder, plan_repairs(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    assert stat.S_IMODE((folder / INDEX).stat().st_mode) == 0o640


def test_each_variant_is_repaired_for_itself(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    no_index(folder)
    fp16 = {name.replace("model-", "model.fp16-"): tensors for name, tensors in ALL.items()}
    for name, tensors in fp16.items():
        (folder / name).write_bytes(weights_file(tensors))
    (folder / "mine.safetensors").write_bytes(b"no weights of this component")
    (only,) = plan_repairs(folder, "fp16")
    assert only.keep == tuple(fp16)
    assert {repair.keep for repair in plan_repairs(folder)} == {tuple(ALL), tuple(fp16)}
    repair_in_place(folder, plan_repairs(folder))
    for variant, files in ((None, ALL), ("fp16", fp16)):
        assert {file.path.name for file in read_checkpoint(folder, variant).files} == set(files)
    assert (folder / "mine.safetensors").read_bytes() == b"no weights of this component"
