"""Without the network: the cache alone, read by ourselves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from shardtool.checkpoint.inventory import read_checkpoint
from tests.hubcalls import Ask, call, environment
from tests.hubrepos import SHARDS, STEM
from tests.hubserver import HubServer


def test_offline_a_cached_sharded_component_is_found_by_its_name(
    ask: Ask, hub: HubServer, repo: str, sharded: Path
) -> None:
    """diffusers asks the network for exactly this, and fails."""
    hub.add(repo, sharded)
    [online] = ask(call(repo))
    hub.requests.clear()
    [by_option] = ask(call(repo, offline=True))
    by_env, looked = ask(call(repo), call(repo, look=True), HF_HUB_OFFLINE="1")
    assert by_option["path"] == by_env["path"] == online["path"]
    assert len(looked["found"]["parts"].popitem()[1]["files"]) == 3
    assert hub.requests == []


def test_offline_a_cache_that_the_client_filled_itself_is_enough(
    ask: Ask, hub: HubServer, repo: str, pipeline: Path, tmp_path: Path
) -> None:
    """``snapshot_download`` with symlinks, and a copy of its cache with files in their place."""
    hub.add(repo, pipeline)
    linked, copied = tmp_path / "linked", tmp_path / "copied"
    program = f"import huggingface_hub; huggingface_hub.snapshot_download({repo!r})"
    subprocess.run([sys.executable, "-c", program], env=environment(hub, linked), check=True, capture_output=True)
    shutil.copytree(linked, copied)  # follows the links
    shutil.rmtree(copied / "hub" / f"models--{repo.replace('/', '--')}" / "blobs")
    for home in (linked, copied):
        whole, part = ask(call(repo, offline=True), call(f"{repo}:unet", offline=True), HF_HOME=str(home))
        assert len(read_checkpoint(Path(part["path"])).files) == 2
        assert whole["path"] + "/unet" == part["path"]
        assert part["path"].startswith(str(home))


def test_offline_the_first_missing_file_is_named(ask: Ask, hub: HubServer, repo: str, sharded: Path) -> None:
    hub.add(repo, sharded)
    [online] = ask(call(repo))
    (Path(online["path"]) / SHARDS[1]).unlink()
    [got] = ask(call(repo, offline=True))
    assert (got["error"]["code"], got["exit_code"]) == ("offline_incomplete", 3)
    commit = Path(online["path"]).name[:12]
    assert got["error"]["message"] == f"1 of 3 shards is not in the cache: {SHARDS[1]} (revision {commit})"
    assert "--offline" in got["error"]["hint"]


def test_offline_a_link_without_its_contents_is_called_so(ask: Ask, hub: HubServer, repo: str, sharded: Path) -> None:
    """A cache copied without its blobs; online the contents are fetched again."""
    hub.add(repo, sharded)
    [online] = ask(call(repo))
    (Path(online["path"]) / SHARDS[1]).resolve().unlink()
    [got] = ask(call(repo, offline=True))
    assert (got["error"]["code"], got["exit_code"]) == ("dangling_link", 3)
    assert SHARDS[1] in got["error"]["message"]
    [again] = ask(call(repo))
    assert len(read_checkpoint(Path(again["path"])).files) == 3


def test_offline_what_was_never_downloaded_is_said(ask: Ask, hub: HubServer, repo: str, pipeline: Path) -> None:
    hub.add(repo, pipeline)
    ask(call(f"{repo}:vae"))
    asked = ["org/other", f"{repo}@v2", f"{repo}:unet", repo, f"{repo}:vae"]
    found = ask(*(call(text, offline=True) for text in asked), call(f"{repo}:vae", variant="fp16"))
    other, revision, subfolder, whole, cached, _ = found
    assert (other["error"]["code"], other["exit_code"]) == ("offline_absent", 6)
    assert (revision["error"]["code"], revision["exit_code"]) == ("offline_absent", 6)
    assert "revision v2" in revision["error"]["message"]
    assert (subfolder["error"]["code"], subfolder["exit_code"]) == ("offline_incomplete", 3)
    assert f"unet of {repo} is not in the cache" in subfolder["error"]["message"]
    assert (whole["error"]["code"], whole["exit_code"]) == ("offline_incomplete", 3)
    assert cached["files"] == ["config.json", f"{STEM}.safetensors"]


def test_blobs_that_the_cache_shares_between_repos_are_followed(
    ask: Ask, hub: HubServer, repo: str, sharded: Path
) -> None:
    """Since release 2 the client keeps large files once for all repos, two links away from the snapshot."""
    hub.add(repo, sharded)
    [online] = ask(call(repo))
    shared = ask.home / "hub" / "blobs" / "ab"
    shared.mkdir(parents=True)
    for name in SHARDS:
        blob = (Path(online["path"]) / name).resolve()
        blob.rename(shared / blob.name)
        blob.symlink_to(Path("../../blobs/ab") / blob.name)
    [got] = ask(call(repo, offline=True))
    assert len(read_checkpoint(Path(got["path"])).files) == 3


def test_a_cache_without_links_works_and_nobody_complains(
    ask: Ask, hub: HubServer, repo: str, sharded: Path, tmp_path: Path
) -> None:
    """As on file systems that have no links; the client's warnings about it do not reach the user."""
    hub.add(repo, sharded)
    settings = {"HF_HUB_DISABLE_SYMLINKS": "1", "HF_HOME": str(tmp_path)}
    online, again = ask(call(repo), call(repo), **settings)
    assert not any(path.is_symlink() for path in Path(online["path"]).iterdir())
    assert again["events"] == []
    [offline] = ask(call(repo, offline=True), **settings)
    assert len(read_checkpoint(Path(offline["path"])).files) == 3
