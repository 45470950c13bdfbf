"""One run at a time on one target, whatever becomes of the runs before."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardtool.checkpoint.lock import locked
from shardtool.errors import RefusedError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".out.shardtool-lock"


def is_held(path: Path) -> bool:
    """Whether another run on the same target would be refused."""
    try:
        with locked(path, target=path.with_name("out")):
            return False
    except RefusedError as error:
        assert error.code == "target_busy"
        assert str(path.with_name("out")) in error.message
        return True


def test_the_lock_is_held_inside_the_block_and_nothing_is_left_of_it(path: Path) -> None:
    with locked(path, target=path.with_name("out")):
        assert path.read_text() == f"{os.getpid()}\n"
        assert is_held(path)
        assert path.exists()  # the one who was refused took nothing away
    assert list(path.parent.iterdir()) == []
    with pytest.raises(KeyError), locked(path, target=path.with_name("out")):
        raise KeyError
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("content", ["", "4711\n", "9" * 1000])
def test_the_file_of_a_run_that_was_killed_holds_nobody_up(path: Path, content: str) -> None:
    path.write_text(content)
    with locked(path, target=path.with_name("out")):
        assert path.read_text() == f"{os.getpid()}\n"
    assert not path.exists()


@pytest.mark.parametrize("content", ["", "no number", "12a", "\xb2"])
def test_a_holder_that_left_no_number_is_another_process(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")
    fd = os.open(path, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(RefusedError, match="another process is writing to it"), locked(path, target=Path("out")):
        pass
    os.close(fd)
    assert path.read_text(encoding="utf-8") == content


def test_a_link_in_the_lock_s_place_is_not_followed(path: Path) -> None:
    precious = path.with_name("precious")
    precious.write_text("mine")
    path.symlink_to(precious)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)), locked(path, target=path.with_name("out")):
        pass
    assert precious.read_text() == "mine"
    assert path.is_symlink()


def test_programs_that_are_started_meanwhile_do_not_hold_it(path: Path) -> None:
    """They may outlive the run, and the lock would with them."""
    program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with locked(path, target=path.with_name("out")):
        started = subprocess.Popen(program, stdin=subprocess.PIPE, close_fds=False)
    try:
        path.touch()
        assert not is_held(path)
    finally:
        started.communicate(b"")


@pytest.mark.parametrize("again", [True, False])
def test_a_lock_that_its_holder_removes_at_the_last_moment_is_taken_anew(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    again: bool,  # noqa: FBT001
) -> None:
    """Between our open and our lock the file may have been removed, and another made: that one must be held."""
    flock, removed = fcntl.flock, []

    def late(fd: int, how: int) -> None:
        flock(fd, how)
        if not removed:
            removed.append(path.stat().st_ino)
            path.rename(path.with_name("gone"))  # keeps the number from being used again
            if again:
                path.touch()

    monkeypatch.setattr(fcntl, "flock", late)
    with locked(path, target=path.with_name("out")):
        assert removed and path.stat().st_ino not in removed
        assert path.read_text() == f"{os.getpid()}\n"
        assert is_held(path)
    assert [entry.name for entry in path.parent.iterdir()] == ["gone"]


@pytest.mark.parametrize(("code", "goes_on"), [(errno.ENOLCK, True), (errno.EOPNOTSUPP, True), (errno.EIO, False)])
def test_a_filesystem_without_locks_is_written_to_and_a_failing_one_is_not(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    goes_on: bool,  # noqa: FBT001
) -> None:
    def refuse(fd: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    if goes_on:
        with locked(path, target=path.with_name("out")):
            pass
        assert not path.exists()
    else:
        with pytest.raises(OSError, match=os.strerror(code)), locked(path, target=path.with_name("out")):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files


def test_a_lock_that_cannot_be_signed_is_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk: the error is told, and nothing stands in the way of the next run."""

    def full(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as context:
        context.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"), locked(path, target=path.with_name("out")):
            pass
    assert not path.exists()
    assert not is_held(path)
