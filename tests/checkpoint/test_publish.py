"""A target changes in one step or not at all; what is not ours survives; what killed runs left is cleared away."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardtool.checkpoint import swap
from shardtool.checkpoint.plan import WHOLE, Split
from shardtool.checkpoint.publish import staged
from shardtool.checkpoint.selection import Choice
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import Manner, write_job
from shardtool.errors import RefusedError, RunError
from tests.checkpoint.loops import mounted
from tests.checkpoint.referee import read_folder, tree_sums
from tests.checkpoint.test_shard import STEM, component, some_tensors
from tests.nobody import run_as_nobody

QUICK = Manner(overwrite=True, durable=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return component(tmp_path / "source", some_tensors())


def put(source: Path, target: Path, limit: int | None, manner: Manner = QUICK, variant: str | None = None) -> None:
    write_job(plan_job(source, Choice(variant), Shape(Split(limit))), target, manner)


SHAPES = [(80_000, 50_000), (50_000, 80_000), (80_000, None), (None, 80_000), (80_000, 80_000)]


@pytest.mark.parametrize(("before", "after"), SHAPES)
def test_no_file_of_the_earlier_result_survives(
    tmp_path: Path, source: Path, before: int | None, after: int | None
) -> None:
    """Exactly one checkpoint remains, whatever the number of shards was: the folder is that of a clean run."""
    old = component(tmp_path / "old", some_tensors(seed=1))
    put(old, tmp_path / "out", before)
    put(source, tmp_path / "out", after)
    put(source, tmp_path / "clean", after)
    assert tree_sums(tmp_path / "out") == tree_sums(tmp_path / "clean")


def test_pickled_weights_of_the_same_variant_go_too(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in (f"{STEM}.bin", f"{STEM}-00001-of-00002.bin", f"{STEM}.bin.index.json", f"{STEM}.fp16.bin"):
        (out / name).write_bytes(b"old")
    put(source, out, None)
    assert sorted(path.name for path in out.iterdir()) == ["config.json", f"{STEM}.fp16.bin", f"{STEM}.safetensors"]


def test_foreign_files_and_other_variants_survive(tmp_path: Path, source: Path) -> None:
    out = component(tmp_path / "out", some_tensors(seed=3), variant=".fp16")
    component(out, some_tensors(seed=2))
    (out / ".git" / "objects").mkdir(parents=True)
    (out / ".git" / "objects" / "ab").write_text("object")
    (out / "README.md").write_text("mine")
    (out / "link").symlink_to("README.md")
    (out / "empty").mkdir()
    kept = {name: digest for name, digest in tree_sums(out).items() if "fp16" in name or "." not in name[1:]}
    put(source, out, 80_000, variant="default")
    assert {"README.md", ".git/objects/ab", f"{STEM}.fp16.safetensors"} <= tree_sums(out).keys()
    assert kept.items() <= tree_sums(out).items()
    assert (out / "link").readlink() == Path("README.md")
    assert (out / "empty").is_dir()
    assert not (out / f"{STEM}.safetensors").exists()


def test_an_existing_target_is_refused_without_overwrite(tmp_path: Path, source: Path) -> None:
    put(source, tmp_path / "out", 80_000)
    before = tree_sums(tmp_path)
    with pytest.raises(RefusedError, match="is a folder with files in it") as caught:
        put(source, tmp_path / "out", 50_000, Manner())
    assert caught.value.exit_code == 4
    assert tree_sums(tmp_path) == before


def test_an_empty_folder_is_as_good_as_none(tmp_path: Path, source: Path) -> None:
    (tmp_path / "out").mkdir()
    put(source, tmp_path / "out", None, Manner())
    assert read_folder(tmp_path / "out") == some_tensors()


def test_missing_parents_are_made_and_removed_again_if_nothing_comes_of_it(tmp_path: Path, source: Path) -> None:
    job = plan_job(source, Choice(), Shape(WHOLE))
    write_job(job, tmp_path / "a" / "b" / "out", Manner())
    assert read_folder(tmp_path / "a" / "b" / "out") == some_tensors()
    component(source, some_tensors(seed=5))
    with pytest.raises(Exception, match="changed"):
        write_job(job, tmp_path / "c" / "d" / "out", Manner())
    assert not (tmp_path / "c").exists()


def test_a_link_at_the_target_is_refused_not_followed(tmp_path: Path, source: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to("elsewhere")
    with pytest.raises(RefusedError, match="is a link to elsewhere"):
        put(source, tmp_path / "out", None)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_at_the_target_is_refused(tmp_path: Path, source: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(RefusedError, match="is a file, where a folder"):
        put(source, tmp_path / "out", 80_000)
    assert (tmp_path / "out").read_text() == "mine"


def same_folder(source: Path) -> Path:
    return source


def inside(source: Path) -> Path:
    return source / "out"


def around(source: Path) -> Path:
    return source.parent


def through_a_link(source: Path) -> Path:
    (source.parent / "alias").symlink_to("source")
    return source.parent / "alias"


def inside_through_a_link(source: Path) -> Path:
    return through_a_link(source) / "out"


def hard_linked(source: Path) -> Path:
    out = source.parent / "out"
    out.mkdir()
    os.link(source / f"{STEM}.safetensors", out / f"{STEM}.safetensors")
    return out


@pytest.mark.parametrize(
    "place", [same_folder, inside, around, through_a_link, inside_through_a_link, hard_linked], ids=lambda f: f.__name__
)
def test_the_source_is_never_the_target(source: Path, place: object) -> None:
    assert callable(place)
    target = place(source)
    before = tree_sums(source.parent)
    with pytest.raises(RefusedError):
        put(source, target, 80_000)
    assert tree_sums(source.parent) == before


def test_a_merged_file_over_its_own_source_is_refused(tmp_path: Path, source: Path) -> None:
    single = source / f"{STEM}.safetensors"
    with pytest.raises(RefusedError, match="is the source itself"):
        put(single, single, None)
    os.link(single, tmp_path / "again.safetensors")
    with pytest.raises(RefusedError, match="is the source itself"):
        put(single, tmp_path / "again.safetensors", None)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_modes_follow_the_umask(tmp_path: Path, source: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        put(source, tmp_path / "out", 80_000)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()} == {mode}
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == mode | (mode & 0o444) >> 2


def test_a_file_of_another_user_in_the_target_is_left_alone(tmp_path: Path, source: Path) -> None:
    """It is carried over though its mode may not be set."""
    if os.geteuid() != 0:
        pytest.skip("needs two users")
    first = (
        "from tests.checkpoint import test_publish as here; from pathlib import Path\n"
        "source, elsewhere, target = map(Path, sys.argv[1:])\n"
        "here.put(source, elsewhere, 80_000)"
    )
    then = "here.put(source, target, 80_000)"
    with tempfile.TemporaryDirectory() as folder:
        shared = Path(folder, "shared")
        shutil.copytree(source, shared / "source")
        (shared / "out").mkdir()
        (shared / "out" / "notes.txt").write_text("mine")
        for path in (Path(folder), shared, shared / "out", shared / "out" / "notes.txt"):
            path.chmod(0o777)
        done = run_as_nobody(first, then, str(shared / "source"), str(tmp_path / "out"), str(shared / "out"))
        assert done.returncode == 0, done.stderr
        assert (shared / "out" / "notes.txt").read_text() == "mine"
        assert read_folder(shared / "out") == some_tensors()


def test_what_is_overwritten_keeps_its_mode(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out"
    put(source, out, 80_000)
    out.chmod(0o750)
    (out / f"{STEM}-00001-of-00003.safetensors").chmod(0o640)
    put(source, out, 80_000)
    assert stat.S_IMODE(out.stat().st_mode) == 0o750
    assert stat.S_IMODE((out / f"{STEM}-00001-of-00003.safetensors").stat().st_mode) == 0o640


@pytest.mark.parametrize("name", [" a b ", "-dash", "new\nline", "x" * 250, "ünï"])
def test_any_name_of_a_target_will_do(tmp_path: Path, source: Path, name: str) -> None:
    put(source, tmp_path / name, 80_000)
    put(source, tmp_path / name, 50_000)
    assert read_folder(tmp_path / name) == some_tensors()
    assert {path.name for path in tmp_path.iterdir()} == {"source", name}


def test_leftovers_of_killed_runs_are_removed_and_nothing_else(tmp_path: Path, source: Path) -> None:
    ours = tmp_path / ".out.shardtool-0123abcd-4711.new"
    others = [tmp_path / ".out2.shardtool-0123abcd-4711.new", tmp_path / ".out.shardtool-notes"]
    for folder in (ours, *others):
        folder.mkdir()
        (folder / "file").write_text("content")
    (tmp_path / ".out.shardtool-lock").write_text("4711\n")
    put(source, tmp_path / "out", None, Manner())
    assert {path.name for path in tmp_path.iterdir()} == {"source", "out", *(path.name for path in others)}


def test_a_run_killed_between_two_renames_is_taken_back(tmp_path: Path, source: Path) -> None:
    """Only where a filesystem cannot exchange names; the old result then lies beside the place it belongs."""
    put(source, tmp_path / "out", 80_000)
    before = tree_sums(tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / ".out.shardtool-0123abcd-4711.old")
    (tmp_path / ".out.shardtool-0123abcd-4711.new").mkdir()
    with pytest.raises(RefusedError, match="is a folder with files"):
        put(source, tmp_path / "out", None, Manner())
    assert tree_sums(tmp_path / "out") == before
    assert {path.name for path in tmp_path.iterdir()} == {"source", "out"}


class _OldLibrary:
    """A C library without ``renameat2``, or on a filesystem that cannot exchange names."""

    def __init__(self, *_: object, **__: object) -> None:
        pass


class _OldFilesystem(_OldLibrary):
    def renameat2(self, *_: object) -> int:
        ctypes.set_errno(errno.EINVAL)
        return -1


@pytest.mark.parametrize("library", [_OldLibrary, _OldFilesystem])
@pytest.mark.parametrize(("before", "after"), [(None, None), *SHAPES])
def test_where_names_cannot_be_exchanged_the_result_is_the_same(
    tmp_path: Path,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    library: type,
    before: int | None,
    after: int | None,
) -> None:
    put(component(tmp_path / "old", some_tensors(seed=1)), tmp_path / "out", before)
    put(source, tmp_path / "clean", after)
    monkeypatch.setattr(ctypes, "CDLL", library)
    swap._renameat2.cache_clear()
    try:
        put(source, tmp_path / "out", after)
        put(source, tmp_path / "new", after)
    finally:
        swap._renameat2.cache_clear()
    assert tree_sums(tmp_path / "out") == tree_sums(tmp_path / "new") == tree_sums(tmp_path / "clean")
    assert {path.name for path in tmp_path.iterdir()} == {"source", "old", "out", "new", "clean"}


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what was synced")
@pytest.mark.parametrize("durable", [True, False])
def test_everything_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    durable: bool,  # noqa: FBT001
) -> None:
    """Files, the folders that hold their names, and at last the folder that holds the target's own name."""
    synced: list[str] = []
    fsync = os.fsync

    def record(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", record)
    put(source, tmp_path / "deep" / "out", 80_000, Manner(durable=durable))
    if not durable:
        assert synced == []
        return
    staged_at = {path for path in synced if ".shardtool-" in path and path.endswith(".new")}
    assert len(staged_at) == 1
    stage = staged_at.pop()
    written = {path.name for path in (tmp_path / "deep" / "out").iterdir()}
    assert {Path(path).name for path in synced if Path(path).parent == Path(stage)} == written
    assert str(tmp_path) in synced[: synced.index(stage)]  # the name of "deep"
    assert synced.index(stage) > max(n for n, path in enumerate(synced) if Path(path).parent == Path(stage))
    assert synced[-1] == str(tmp_path / "deep")


def test_a_second_run_on_the_same_target_is_refused_naming_the_first(tmp_path: Path, source: Path) -> None:
    with staged(tmp_path / "out", overwrite=True):
        done = subprocess.run(
            [sys.executable, "-m", "cli", "merge", str(source), "-o", str(tmp_path / "out")],
            capture_output=True,
            text=True,
        )
    assert done.returncode == 4
    assert f"process {os.getpid()} is writing to it" in done.stderr
    put(source, tmp_path / "out", None)
    assert {path.name for path in tmp_path.iterdir()} == {"source", "out"}


@pytest.mark.parametrize("name", ["out", "out.safetensors"])
def test_a_pipe_or_a_device_is_never_replaced(tmp_path: Path, source: Path, name: str) -> None:
    """By root, /dev/null could be."""
    os.mkfifo(tmp_path / name)
    with pytest.raises(RefusedError) as caught:
        put(source, tmp_path / name, None)
    assert caught.value.code in ("target_exists", "target_is_file")
    assert (tmp_path / name).is_fifo()


def test_what_appears_at_the_target_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """The lock keeps other runs of ours away, not other programs."""
    out, file = tmp_path / "out", tmp_path / "x.safetensors"
    with pytest.raises(RefusedError) as caught, staged(out, overwrite=False) as stage:
        (stage.path / "file").write_text("new")
        out.mkdir()
        (out / "mine").write_text("mine")
        stage.publish_folder()
    assert caught.value.code == "target_exists"
    with pytest.raises(RefusedError) as caught, staged(file, overwrite=False) as stage:
        (stage.path / "file").write_text("new")
        file.write_text("mine")
        stage.publish_file(stage.path / "file")
    assert caught.value.code == "target_exists"
    assert file.read_text() == (out / "mine").read_text() == "mine"
    assert {path.name for path in tmp_path.rglob("*")} == {"out", "mine", "x.safetensors"}


def test_a_result_that_is_gone_when_it_should_be_published_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    monkeypatch.setattr(ctypes, "CDLL", _OldFilesystem)
    swap._renameat2.cache_clear()
    try:
        with pytest.raises(FileNotFoundError), staged(tmp_path / "out", overwrite=True, durable=False) as stage:
            stage.path.rmdir()
            stage.publish_folder()
    finally:
        swap._renameat2.cache_clear()
    assert (tmp_path / "out" / "mine").read_text() == "mine"


def test_what_is_in_the_way_inside_a_mount_point_leaves_it_as_it_was(small_disk: Path) -> None:
    with pytest.raises(FileExistsError), staged(small_disk, overwrite=True) as stage:
        for name in ("a", "b", "model_index.json"):
            (stage.path / name).write_text("new")
        (small_disk / "b").write_text("mine")
        stage.publish_folder()
    assert [path.name for path in small_disk.iterdir()] == ["b"]
    assert (small_disk / "b").read_text() == "mine"


@pytest.mark.parametrize("name", [".", "below/..", "../here", "{}"])
def test_the_current_folder_is_written_into_if_it_is_empty(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Replaced by another, it would vanish under the shell that the command was typed in."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    inode = here.stat().st_ino
    target = Path(name.format(here))
    put(source, target, 80_000)
    assert read_folder(here) == some_tensors()
    with pytest.raises(RefusedError) as caught:
        put(source, target, None)
    assert caught.value.code == "target_mounted"
    assert here.stat().st_ino == inode


def test_a_target_may_be_spelled_with_dots(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out"
    (out / "below").mkdir(parents=True)
    put(source, out / "below" / "..", None)
    assert read_folder(out) == some_tensors()
    assert (out / "below").is_dir()
    assert {path.name for path in tmp_path.iterdir()} == {"source", "out"}


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(KeyError), staged(tmp_path / "out", overwrite=False) as stage:
        (stage.path / "file").write_text("half")
        raise KeyError
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted("tmpfs", tmp_path, 2) as place:
        yield place


def test_a_mount_point_is_written_into_if_it_is_empty(small_disk: Path, source: Path) -> None:
    """It cannot change places with a folder beside it, as a container's volume cannot."""
    put(source, small_disk, 80_000, Manner())
    assert read_folder(small_disk) == some_tensors()
    assert len(list(small_disk.iterdir())) == 5
    with pytest.raises(RefusedError, match="is a mount point"):
        put(source, small_disk, 50_000)


def test_a_folder_on_another_filesystem_inside_the_target_is_refused(tmp_path: Path, source: Path) -> None:
    (tmp_path / "target").mkdir()
    with mounted("tmpfs", tmp_path / "target", 1):
        with pytest.raises(RefusedError, match="another filesystem is mounted inside"):
            put(source, tmp_path / "target", None)
        assert [path.name for path in (tmp_path / "target").iterdir()] == ["mounted"]


def test_a_disk_that_fills_up_meanwhile_is_a_clean_error(small_disk: Path, source: Path) -> None:
    component(source, some_tensors(size=20_000))
    put(source, small_disk / "out", 300_000, Manner())
    before = tree_sums(small_disk)
    job = plan_job(source, Choice(), Shape(Split(200_000)))

    def fill(event: object) -> None:
        if not (small_disk / "ballast").exists():
            (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free - 500_000))

    with pytest.raises(RunError, match=r"No space left on device: needs \d+ kB, \d+ kB are free") as caught:
        write_job(job, small_disk / "out", Manner(overwrite=True), on_event=fill)
    assert caught.value.code == "disk"
    (small_disk / "ballast").unlink()
    assert tree_sums(small_disk) == before


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="giving up rights needs root")
def test_a_parent_that_may_not_be_written_is_a_clean_error(tmp_path: Path, source: Path) -> None:
    (tmp_path / "parent").mkdir(mode=0o755)
    for folder in [tmp_path, *tmp_path.parents[:3]]:
        folder.chmod(folder.stat().st_mode | 0o055)
    merge = [sys.executable, "-m", "cli", "merge", str(source), "-o", str(tmp_path / "parent" / "out")]
    command = ["setpriv", "--reuid=65534", "--clear-groups", *merge]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 5
    assert "cannot be written: Permission denied" in done.stderr
    assert "Traceback" not in done.stderr
