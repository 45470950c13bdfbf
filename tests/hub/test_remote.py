"""Looking into a source on the Hub without downloading it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from shardtool.checkpoint.inventory import read_checkpoint
from tests.hubcalls import Ask, call
from tests.hubrepos import SHARDS, STEM, add_weights, files_of
from tests.hubserver import HubServer


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 MB in three shards."""
    folder = tmp_path_factory.mktemp("large")
    add_weights(folder, shards=3, side=1024)
    return folder


def test_looking_into_a_sharded_checkpoint_transfers_less_than_a_hundredth(
    ask: Ask, hub: HubServer, repo: str, large: Path
) -> None:
    hub.add(repo, large)
    [got] = ask(call(repo, look=True))
    assert hub.sent(repo) < 0.01 * sum(path.stat().st_size for path in large.iterdir())
    [part] = got["found"]["parts"].values()
    checkpoint = read_checkpoint(large)
    assert part["files"] == {file.path.name: file.size for file in checkpoint.files}
    assert part["tensors"] == json.loads(json.dumps({name: _info(t.info) for name, t in checkpoint.tensors.items()}))
    assert got["found"]["problems"] == []
    assert not (ask.home / "hub" / f"models--{repo.replace('/', '--')}").exists()


def _info(info: Any) -> dict[str, Any]:
    return {key: getattr(info, key) for key in ("name", "dtype", "shape", "start", "stop")}


def test_a_header_longer_than_the_first_read_is_completed(ask: Ask, hub: HubServer, repo: str, tmp_path: Path) -> None:
    save_file({f"layer.{i:04d}.weight": np.zeros(2, np.float16) for i in range(2000)}, tmp_path / f"{STEM}.safetensors")
    hub.add(repo, tmp_path)
    [got] = ask(call(repo, look=True))
    [part] = got["found"]["parts"].values()
    assert len(part["tensors"]) == 2000


def test_damage_is_seen_from_afar_and_named_as_on_the_hub(ask: Ask, hub: HubServer, repo: str, sharded: Path) -> None:
    damaged = files_of(sharded)
    damaged[SHARDS[0]] = damaged[SHARDS[0]][:-10]
    damaged[SHARDS[1]] = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    del damaged[SHARDS[2]]
    hub.add(repo, damaged)
    [got] = ask(call(repo, look=True))
    found = {problem["path"]: problem["code"] for problem in got["found"]["problems"]}
    assert found[f"{repo}/{SHARDS[0]}"] == "truncated"
    assert found[f"{repo}/{SHARDS[1]}"] == "lfs_pointer"
    assert found[f"{repo}/{SHARDS[2]}"] == "shard_missing"
    assert all(path.startswith(repo) for path in found)
    assert "/tmp" not in json.dumps(got)


def test_a_pipeline_is_looked_into_with_all_its_components(ask: Ask, hub: HubServer, repo: str, pipeline: Path) -> None:
    hub.add(repo, pipeline)
    default, half, absent = ask(
        call(repo, look=True),
        call(repo, look=True, variant="fp16"),
        call(repo, look=True, variant="bf16"),
    )
    assert list(default["found"]["parts"]) == ["unet", "vae"]
    assert len(default["found"]["parts"]["unet"]["files"]) == 2
    assert list(half["found"]["parts"]["unet"]["files"]) == [f"{STEM}.fp16.safetensors"]
    assert absent["error"]["code"] == "variant_absent"
    assert absent["error"]["message"].startswith(f"{repo}: ")
