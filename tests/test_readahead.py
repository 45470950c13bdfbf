"""Reading ahead brings files into the kernel's cache, and is silent about everything else."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from cli.app import app
from shardtool.readahead import read_ahead
from tests.models import SINGLE, copied

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the cache is looked into as Linux shows it")


def cached(path: Path, size: int, first: int = 0) -> list[bool]:
    """For each 4 MiB from ``first`` on, whether a byte can be read without waiting. Asking has the kernel read some."""
    fd = os.open(path, os.O_RDONLY)
    found = []
    for start in range(first, size, 2**22):
        try:
            found.append(os.preadv(fd, [bytearray(1)], start, os.RWF_NOWAIT) == 1)
        except BlockingIOError:
            found.append(False)
    os.close(fd)
    return found


def let_go(path: Path) -> None:
    """Have the kernel forget the file's data; skips the test where it does not."""
    for _ in range(20):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        if not any(cached(path, path.stat().st_size, 2**20)):
            return
        time.sleep(0.05)
    pytest.skip("this file system does not let go of its cache")


def test_a_file_is_in_the_cache_afterwards(tmp_path: Path) -> None:
    path, size = tmp_path / "weights", 50 * 2**20
    path.write_bytes(os.urandom(2**20) * 50)
    let_go(path)
    thread = read_ahead([path])
    assert thread is not None
    thread.join()
    assert all(cached(path, size))


def bytes_read() -> int:
    """By this process so far, from files and into nowhere too."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_a_dry_run_reads_no_weights_ahead(demo: Path, tmp_path: Path, device: str) -> None:
    unet, size = copied(demo / "unet", tmp_path / "unet"), 50 * 2**20
    save_file({"weight": torch.ones(size // 2, dtype=torch.float16)}, unet / SINGLE)
    let_go(unet / SINGLE)
    before = bytes_read()
    ran = CliRunner().invoke(app, ["load", str(unet), "--dry-run", "--device", device])
    assert ran.exit_code == 0, ran.output
    for thread in threading.enumerate():
        if thread.name == "shardtool-readahead":
            thread.join()
    assert bytes_read() - before < size // 2


def test_what_cannot_be_read_is_left_to_the_real_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    thread = read_ahead([tmp_path / "missing", tmp_path, tmp_path / "pipe"])
    assert thread is not None
    thread.join(timeout=30)
    assert not thread.is_alive()
