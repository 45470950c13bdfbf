"""What torch sees here agrees with what torch says itself."""

from __future__ import annotations

import pytest
import torch

from shardtool.host import read_memory
from shardtool.machine import read_inventory


def test_the_inventory_counts_what_torch_counts() -> None:
    found = read_inventory()
    kinds = [accelerator.kind for accelerator in found.accelerators]
    assert kinds.count("cuda") == (torch.cuda.device_count() if torch.cuda.is_available() else 0)
    assert kinds.count("mps") == int(torch.backends.mps.is_available())
    assert found.cpu_total == read_memory().total
    assert 0 < found.cpu_free <= found.cpu_total


def test_a_launch_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert read_inventory().local_rank == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_gpu_is_named_with_its_memory() -> None:
    first = read_inventory().accelerators[0]
    assert first.device == "cuda:0"
    assert first.name == torch.cuda.get_device_name(0)
    assert 0 < first.free <= first.total
