"""A finished file or folder takes its place in one step, with or without the system's own help."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardtool.checkpoint import swap
from shardtool.checkpoint.swap import exchange, move_into_place, sync_folder
from tests.checkpoint.loops import mounted


class _OldLibrary:
    """A C library without ``renameat2``."""

    def __init__(self, *_: object, **__: object) -> None:
        pass


class _OldFilesystem(_OldLibrary):
    """One whose filesystem answers with an error."""

    code = errno.EINVAL

    def renameat2(self, *_: object) -> int:
        ctypes.set_errno(self.code)
        return -1


class _FullFilesystem(_OldFilesystem):
    code = errno.ENOSPC


@pytest.fixture
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param is not None:
        monkeypatch.setattr(ctypes, "CDLL", request.param)
    swap._renameat2.cache_clear()
    yield
    swap._renameat2.cache_clear()


@pytest.mark.parametrize("library", [None, _OldLibrary, _OldFilesystem], indirect=True)
@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
@pytest.mark.usefixtures("library")
def test_what_is_moved_into_place_replaces_nothing(tmp_path: Path, kind: str) -> None:
    made, place = tmp_path / "made", tmp_path / "place"
    made.mkdir()
    (made / "new").touch()
    if kind == "file":
        place.write_text("mine")
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to("nowhere")
    before = place.lstat()
    with pytest.raises(FileExistsError) as caught:
        move_into_place(made, place)
    assert str(place) in (caught.value.filename, caught.value.filename2)
    assert (made / "new").exists()
    assert os.path.samestat(before, place.lstat())

    move_into_place(made, tmp_path / "free")
    assert (tmp_path / "free" / "new").exists()
    assert not made.exists()


def test_two_names_change_places(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    (one / "new").touch()
    other.mkdir()
    (other / "old").touch()
    if not exchange(one, other):
        pytest.skip("this filesystem cannot exchange names")
    assert ((one / "old").exists(), (other / "new").exists()) == (True, True)
    with pytest.raises(FileNotFoundError):
        exchange(one, tmp_path / "nothing")
    assert (one / "old").exists()


@pytest.mark.parametrize("kind", ["xfs", "btrfs", "tmpfs"])
def test_they_do_on_other_filesystems_too(tmp_path: Path, kind: str) -> None:
    with mounted(kind, tmp_path, 400 if kind != "tmpfs" else 1) as place:
        for name in ("one", "other"):
            (place / name).mkdir()
            (place / name / name).touch()
        assert exchange(place / "one", place / "other")
        assert (place / "one" / "other").exists()
        assert (place / "other" / "one").exists()


@pytest.mark.parametrize("library", [_OldLibrary, _OldFilesystem], indirect=True)
@pytest.mark.usefixtures("library")
def test_where_names_cannot_change_places_nothing_happens(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").touch()
    assert not exchange(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one").is_dir()
    assert (tmp_path / "other").is_file()


@pytest.mark.parametrize("library", [_FullFilesystem], indirect=True)
@pytest.mark.usefixtures("library")
def test_any_other_error_is_told_with_both_names(tmp_path: Path) -> None:
    for change in (exchange, move_into_place):
        with pytest.raises(OSError, match="No space left") as caught:
            change(tmp_path / "one", tmp_path / "other")
        assert (caught.value.filename, caught.value.filename2) == (str(tmp_path / "one"), str(tmp_path / "other"))


@pytest.mark.parametrize(("code", "told"), [(errno.EINVAL, False), (errno.EIO, True), (errno.ENOSPC, True)])
def test_a_folder_that_cannot_be_synced_is_told_unless_its_filesystem_never_can(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    told: bool,  # noqa: FBT001
) -> None:
    def fail(fd: int) -> None:
        raise OSError(code, os.strerror(code))

    open_files = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(os, "fsync", fail)
    if told:
        with pytest.raises(OSError, match=os.strerror(code)):
            sync_folder(tmp_path)
    else:
        sync_folder(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        sync_folder(tmp_path / "file")
