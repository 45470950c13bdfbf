"""Loop-mounted filesystems for tests that need another one than the machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(kind: str, folder: Path, megabytes: int) -> Iterator[Path]:
    """An empty filesystem of that kind; skips the test, saying why, where it cannot be had."""
    if kind != "tmpfs" and shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"mkfs.{kind} is not installed")
    if os.geteuid() != 0:
        pytest.skip(f"mounting {kind} needs root")
    place = folder / "mounted"
    place.mkdir()
    if kind == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    else:
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True, capture_output=True)
        command = ["mount", "-o", "loop", str(image), str(place)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{kind} cannot be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
