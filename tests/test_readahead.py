"""Reading ahead brings files into the kernel's cache, and is silent about everything else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from shardtool.readahead import read_ahead

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the cache is looked into as Linux shows it")


def cached(path: Path, size: int) -> list[bool]:
    """For each 4 MiB of the file, whether its first byte can be read without waiting."""
    fd = os.open(path, os.O_RDONLY)
    found = []
    for start in range(0, size, 2**22):
        try:
            found.append(os.preadv(fd, [bytearray(1)], start, os.RWF_NOWAIT) == 1)
        except BlockingIOError:
            found.append(False)
    os.close(fd)
    return found


def test_a_file_is_in_the_cache_afterwards(tmp_path: Path) -> None:
    path, size = tmp_path / "weights", 50 * 2**20
    path.write_bytes(os.urandom(2**20) * 50)
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    if any(cached(path, size)):
        pytest.skip("this file system does not let go of its cache")
    thread = read_ahead([path])
    assert thread is not None
    thread.join()
    assert all(cached(path, size))


def test_what_cannot_be_read_is_left_to_the_real_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    thread = read_ahead([tmp_path / "missing", tmp_path, tmp_path / "pipe"])
    assert thread is not None
    thread.join(timeout=30)
    assert not thread.is_alive()
