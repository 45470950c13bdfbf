"""Reading all the data: nothing is missed at the edges of blocks and pieces, on any number of threads."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from shardtool import scan as scanning
from shardtool.checkpoint.inventory import read_checkpoint
from shardtool.errors import InputError
from shardtool.events import Advanced, Event, Finished, Started
from shardtool.scan import BLOCK, scan


def one_tensor(path: Path, elements: int) -> np.memmap:
    """A file with one F16 tensor of ones, whose data can be written to."""
    save_file({"weight": torch.ones(elements, dtype=torch.float16)}, path)
    offset = path.stat().st_size - 2 * elements
    return np.memmap(path, dtype=np.float16, mode="r+", offset=offset)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("place", [0, BLOCK // 2 - 1, BLOCK // 2, BLOCK - 1, BLOCK, -1])
def test_one_bad_value_is_found_at_every_edge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, workers: int
) -> None:
    monkeypatch.setattr(scanning, "PIECE", 2 * BLOCK)
    data = one_tensor(tmp_path / "x.safetensors", 2 * BLOCK + 7)
    data[place] = np.inf
    data.flush()
    (problem,) = scan(read_checkpoint(tmp_path / "x.safetensors"), workers=workers)
    assert (problem.code, problem.tensor) == ("not_finite", "weight")
    assert "1 infinite" in problem.message


def test_every_flipped_bit_breaks_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.arange(16, dtype=torch.float32), "b": torch.ones(3)}, path)
    checkpoint = read_checkpoint(path)
    raw = path.read_bytes()
    digests = {
        name: hashlib.sha256(raw[stored.offset : stored.offset + stored.info.nbytes]).hexdigest()
        for name, stored in checkpoint.tensors.items()
    }
    assert scan(checkpoint, digests=digests) == ()
    start = checkpoint.tensors["a"].offset
    for bit in range(0, 512, 37):
        spoilt = bytearray(raw)
        spoilt[start + bit // 8] ^= 1 << bit % 8
        path.write_bytes(spoilt)
        found = scan(read_checkpoint(path), digests=digests)
        assert ("digest_mismatch", "a") in [(problem.code, problem.tensor) for problem in found]


def test_a_hole_in_the_data_is_worth_a_warning(tmp_path: Path) -> None:
    data = one_tensor(tmp_path / "x.safetensors", 4 * BLOCK)
    data[: 2 * BLOCK] = 0
    data.flush()
    (problem,) = scan(read_checkpoint(tmp_path / "x.safetensors"))
    assert (problem.code, problem.severity) == ("zeros", "warning")


def test_a_file_that_changes_between_header_and_data_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    one_tensor(path, 100)
    checkpoint = read_checkpoint(path)
    os.utime(path, ns=(0, 0))
    with pytest.raises(InputError) as caught:
        scan(checkpoint)
    assert caught.value.code == "file_changed"


def test_progress_adds_up_and_comes_on_the_caller_s_thread(demo: Path) -> None:
    checkpoint = read_checkpoint(demo / "unet")
    seen: list[Event] = []
    threads = set()

    def listen(event: Event) -> None:
        seen.append(event)
        threads.add(threading.get_ident())

    assert scan(checkpoint, workers=2, on_event=listen) == ()
    assert isinstance(seen[0], Started) and seen[0].total == checkpoint.nbytes
    assert isinstance(seen[-1], Finished)
    assert sum(event.by for event in seen if isinstance(event, Advanced)) == checkpoint.nbytes
    assert threads == {threading.get_ident()}
