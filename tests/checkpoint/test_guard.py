"""What is refused before a byte is written, and how much room is asked for."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from shardtool.checkpoint.guard import Room, as_file, check_apart, check_kind, check_room, check_separate, room_for
from shardtool.checkpoint.job import Job
from shardtool.checkpoint.plan import WHOLE, Split
from shardtool.checkpoint.selection import Choice
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import Manner, write_job
from shardtool.errors import RefusedError, RunError
from tests.checkpoint.loops import mounted
from tests.checkpoint.referee import Tensor, canonical, tree_sums
from tests.checkpoint.test_shard import STEM, component, some_tensors


def job_of(source: Path, limit: int | None = 80_000) -> Job:
    return plan_job(source, Choice(), Shape(Split(limit)))


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return component(tmp_path / "source", some_tensors())


def test_the_room_that_is_asked_for_is_what_the_result_takes(tmp_path: Path, source: Path) -> None:
    """Weights with their headers, and the files that go along; of an index only the name is known beforehand."""
    (source / "README.md").write_text("x" * 12_345)
    for limit in (None, 80_000):
        job = job_of(source, limit)
        room = room_for(job, tmp_path / "out")
        assert room.folder == tmp_path
        assert not room.shared
        write_job(job, tmp_path / "out", Manner(overwrite=True, durable=False))
        index = tmp_path / "out" / f"{STEM}.safetensors.index.json"
        assert room.needed == bytes_in(tmp_path / "out") - (index.stat().st_size if index.exists() else 0)
    single = tmp_path / "x.safetensors"  # which nothing goes along with
    room = room_for(job_of(source, None), single)
    write_job(job_of(source, None), single, Manner(durable=False))
    assert room.needed == single.stat().st_size


def test_the_room_is_looked_for_where_the_result_will_lie(tmp_path: Path, source: Path) -> None:
    with mounted("tmpfs", tmp_path, 1) as small:
        room = room_for(job_of(source), small / "not" / "yet" / "there")
        assert room.folder == small
        assert room.free == shutil.disk_usage(small).free <= 1 << 20


def test_room_that_is_exactly_enough_is_enough(tmp_path: Path) -> None:
    check_room(Room(1000, 1000, shared=False, folder=tmp_path), tmp_path / "out")
    with pytest.raises(RefusedError) as caught:
        check_room(Room(1001, 1000, shared=False, folder=tmp_path), tmp_path / "out")
    assert caught.value.code == "disk"
    assert "1,001 bytes" in caught.value.message
    assert str(tmp_path) in caught.value.message


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_blocks_that_are_shared_need_no_room(tmp_path: Path, kind: str) -> None:
    """Headers are all that is new; on another disk the same job needs all of its bytes."""
    tensors: dict[str, Tensor] = {f"t{n}": ("U8", [2_000_000], bytes([n]) * 2_000_000) for n in range(8)}
    with mounted(kind, tmp_path, 400) as place:
        component(place / "source", tensors)
        job = job_of(place / "source", 5_000_000)
        room = room_for(job, place / "out")
        assert room.shared
        assert write_job(job, place / "out", Manner()).moved["reflink"] > 15_900_000
        headers = [path.stat().st_size % 2_000_000 for path in (place / "out").glob("*.safetensors")]
        assert room.needed == sum(headers) + (place / "source" / "config.json").stat().st_size
        elsewhere = room_for(job, tmp_path / "out")
        assert not elsewhere.shared
        assert elsewhere.needed == room.needed + 16_000_000


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_what_is_smaller_than_a_block_is_not_shared(tmp_path: Path, kind: str) -> None:
    with mounted(kind, tmp_path, 400) as place:
        (place / "x.safetensors").write_bytes(canonical({"a": ("U8", [4], b"abcd")}, {"format": "pt"}))
        job = job_of(place / "x.safetensors", None)
        room = room_for(job, place / "out")
        assert not room.shared
        assert room.needed == (place / "x.safetensors").stat().st_size


def test_looking_for_room_leaves_nothing_behind(tmp_path: Path, source: Path) -> None:
    before, open_files = tree_sums(tmp_path), len(list(Path("/proc/self/fd").iterdir()))
    room_for(job_of(source), tmp_path / "out")
    assert tree_sums(tmp_path) == before
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files


@pytest.mark.parametrize("kind", ["folder", "file", "nothing"])
@pytest.mark.parametrize("name", ["out", "out.safetensors"])
@pytest.mark.parametrize("limit", [None, 80_000])
def test_a_file_is_written_where_one_is_meant_and_a_folder_else(
    tmp_path: Path, source: Path, kind: str, name: str, limit: int | None
) -> None:
    """One file goes into a file of that name; shards never do, and a folder keeps its kind whatever its name is."""
    target = tmp_path / name
    if kind == "folder":
        target.mkdir()
    elif kind == "file":
        target.write_text("mine")
    job = job_of(source, limit)
    meant = limit is None and name == "out.safetensors" and kind != "folder"
    assert as_file(job, target) == meant
    if meant or kind == "folder" or (kind == "nothing" and name == "out"):
        check_kind(job, target)
        write_job(job, target, Manner(overwrite=True, durable=False))
        assert target.is_file() == meant
        return
    with pytest.raises(RefusedError) as caught:
        check_kind(job, target)
    assert caught.value.code == ("target_exists" if kind == "file" else "target_is_file")
    assert f"{1 if limit is None else 3} weights files" in caught.value.message
    with pytest.raises(RefusedError):
        write_job(job, target, Manner(overwrite=True, durable=False))
    assert target.exists() == (kind == "file")


def test_a_target_apart_from_the_source_is_not_refused(tmp_path: Path, source: Path) -> None:
    """Beside it, with a name that begins alike, with a copy of its files, or reached over a link elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    copy = shutil.copytree(source, tmp_path / "copy")
    for target in (tmp_path / "source2", tmp_path / "out", copy, tmp_path / "link" / "out"):
        check_apart(source, target)
        check_separate(job_of(source), target)


def test_a_source_reached_over_a_link_is_the_source_too(tmp_path: Path, source: Path) -> None:
    (tmp_path / "link").symlink_to("source")
    for target in (source, source / "out", tmp_path):
        with pytest.raises(RefusedError) as caught:
            check_apart(tmp_path / "link", target)
        assert caught.value.code == "target_is_source"


def test_a_hard_link_anywhere_in_the_target_is_found_with_its_name(tmp_path: Path) -> None:
    """In the component's own folder of a pipeline, and as the target itself."""
    single = tmp_path / "x.safetensors"
    single.write_bytes(canonical(some_tensors(), {"format": "pt"}))
    out = tmp_path / "out"
    out.mkdir()
    os.link(single, out / "y.safetensors")
    with pytest.raises(RefusedError, match=r"shares the file y\.safetensors with the source"):
        check_separate(job_of(single), out)
    os.link(single, tmp_path / "y.safetensors")
    with pytest.raises(RefusedError) as caught:
        check_separate(job_of(single, None), tmp_path / "y.safetensors")
    assert caught.value.code == "target_is_source"


@pytest.mark.parametrize(
    ("code", "expected"),
    [(errno.ENOSPC, "disk"), (errno.EDQUOT, "disk"), (errno.EIO, "write_failed"), (errno.EROFS, "write_failed")],
)
def test_an_error_of_the_disk_says_where_and_leaves_nothing(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: str
) -> None:
    def fail(fd: int, data: bytes, offset: int) -> int:
        raise OSError(code, os.strerror(code))

    job = plan_job(source, Choice(), Shape(WHOLE))
    with monkeypatch.context() as context, pytest.raises(RunError) as caught:
        context.setattr(os, "pwrite", fail)
        write_job(job, tmp_path / "out", Manner())
    assert caught.value.code == expected
    assert os.strerror(code) in caught.value.message
    assert (caught.value.hint is not None) == (expected == "disk")
    assert ("are free" in caught.value.message) == (expected == "disk")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
