"""Files of other people: opened without waiting, read without maps, watched for changes."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from shardtool.checkpoint.files import OpenFile
from shardtool.errors import InputError


def code_of(path: Path) -> str:
    with pytest.raises(InputError) as caught, OpenFile(path):
        pass
    assert str(path) in caught.value.message
    return caught.value.code


def test_what_is_no_file_is_told_by_its_kind_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    assert code_of(tmp_path / "socket") == "not_a_file"
    assert code_of(tmp_path / "pipe") == "not_a_file"
    assert code_of(tmp_path) == "not_a_file"
    assert code_of(Path("/dev/zero")) == "not_a_file"
    assert code_of(tmp_path / "dangling") == "dangling_link"
    assert code_of(tmp_path / "loop") == "unreadable"
    assert code_of(tmp_path / "nothing") == "file_missing"
    assert code_of(tmp_path / "nul\0") == "unreadable"


def test_a_pipe_is_not_even_opened(tmp_path: Path) -> None:
    """Whoever waits to write into it goes on waiting, and meets the reader that it was meant for."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"for somebody else",), daemon=True)
    writer.start()
    for _ in range(20):
        assert code_of(pipe) == "not_a_file"
        time.sleep(0.005)
    assert pipe.read_bytes() == b"for somebody else"
    writer.join(timeout=10)
    assert not writer.is_alive()


def test_no_permission_is_not_called_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("the mode does not bite here: run by root")
    assert code_of(path) == "unreadable"


def test_reading_gives_the_range_or_says_that_the_file_ends(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(range(100)))
    with OpenFile(path) as file:
        assert file.read_at(10, 5) == bytes(range(10, 15))
        buffer = bytearray(4)
        file.read_into(96, memoryview(buffer))
        assert bytes(buffer) == bytes(range(96, 100))
        for read in (lambda: file.read_at(98, 5), lambda: file.read_into(98, memoryview(bytearray(5)))):
            with pytest.raises(InputError, match="ends at byte 100"):
                read()


def test_a_file_that_shrinks_while_it_is_open_is_an_error_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(1 << 20))
    with OpenFile(path) as file:
        os.truncate(path, 10)
        with pytest.raises(InputError) as caught:
            file.read_at(1 << 19, 8)
        assert caught.value.code == "file_changed"


@pytest.mark.parametrize("change", ["append", "touch", "truncate"])
def test_a_file_that_changes_while_it_is_open_is_noticed(tmp_path: Path, change: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    with OpenFile(path) as file:
        file.check_unchanged()
        if change == "append":
            path.write_bytes(b"0123456789a")
        elif change == "truncate":
            os.truncate(path, 5)
        else:
            os.utime(path, ns=(0, 0))
        with pytest.raises(InputError, match="changed while it was read"):
            file.check_unchanged()


def test_a_file_that_is_replaced_stays_the_one_that_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with OpenFile(path) as file:
        (tmp_path / "new").write_bytes(b"new")
        (tmp_path / "new").replace(path)
        assert file.read_at(0, 3) == b"old"
        with OpenFile(path) as again, pytest.raises(InputError):
            again.check_unchanged(file.state)
