"""Memory that is short wherever it shows: one honest line and exit 5, and no bug of ours."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MB = 10**6


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux only")
@pytest.mark.parametrize("arguments", ["load demo --device cpu", "generate dog --steps 1 --output nowhere"])
def test_torch_without_the_memory_to_be_mapped(arguments: str) -> None:
    """Its library alone has more than 300 MB."""
    done = subprocess.run(
        [sys.executable, "-m", "cli", *arguments.split(), "--json"],
        cwd=ROOT,
        env=os.environ,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (300 * MB, 300 * MB)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 5, done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "out_of_memory"
    assert "error: out of memory: " in done.stderr
    assert "Traceback" not in done.stderr
