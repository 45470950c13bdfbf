"""What is downloaded of a source on the Hub, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardtool.checkpoint.inventory import read_checkpoint
from tests.hubcalls import Ask, call
from tests.hubrepos import INDEX, SHARDS, STEM, add_weights, files_of
from tests.hubserver import HubServer


def test_a_component_is_its_config_and_the_shards_that_its_index_names(
    ask: Ask, hub: HubServer, repo: str, sharded: Path
) -> None:
    hub.add(repo, sharded)
    [got] = ask(call(repo))
    assert got["files"] == sorted(["config.json", INDEX, *SHARDS])
    assert hub.fetched(repo) == set(got["files"])
    assert {name: data for name, data in files_of(sharded).items() if name in got["files"]} == files_of(
        Path(got["path"])
    )
    assert len(read_checkpoint(Path(got["path"])).tensors) == 6


def test_only_the_variant_that_is_asked_for_is_downloaded(ask: Ask, hub: HubServer, repo: str, sharded: Path) -> None:
    hub.add(repo, sharded)
    [got] = ask(call(repo, variant="fp16"))
    assert got["files"] == ["config.json", f"{STEM}.fp16.safetensors"]
    assert hub.fetched(repo) == set(got["files"])


def test_of_a_pipeline_only_the_wanted_components_are_downloaded(
    ask: Ask, hub: HubServer, repo: str, pipeline: Path
) -> None:
    """The base of a run with another UNet: its own UNet, twice 5 GB in real life, stays where it is."""
    hub.add(repo, pipeline)
    [got] = ask(call(repo, components=["scheduler", "tokenizer", "vae"]))
    assert got["files"] == [
        "model_index.json",
        "scheduler/scheduler_config.json",
        "tokenizer/merges.txt",
        "tokenizer/tokenizer_config.json",
        "tokenizer/vocab.json",
        "vae/config.json",
        f"vae/{STEM}.safetensors",
    ]
    assert hub.fetched(repo) == set(got["files"])


def test_pickles_are_downloaded_only_where_they_are_allowed_and_there_is_nothing_else(
    ask: Ask, hub: HubServer, repo: str, pipeline: Path
) -> None:
    only = ["config.json", f"{STEM}-00001-of-00001.bin", f"{STEM}.bin.index.json"]
    hub.add(repo, {name: name.encode() for name in only})
    hub.add(f"{repo}-both", pipeline)
    refused, taken, both = ask(call(repo), call(repo, pickles=True), call(f"{repo}-both:vae", pickles=True))
    assert refused["error"]["code"] == "pickle"
    assert taken["files"] == sorted(only)
    assert both["files"] == ["config.json", f"{STEM}.safetensors"]


def test_a_component_without_the_variant_gives_its_default_weights_only_where_that_is_allowed(
    ask: Ask, hub: HubServer, repo: str, pipeline: Path
) -> None:
    hub.add(repo, pipeline)
    strict, lenient = ask(call(repo, variant="fp16"), call(repo, variant="fp16", or_default=True))
    assert (strict["error"]["code"], strict["exit_code"]) == ("variant_absent", 3)
    assert f"{repo}/vae: has no fp16 variant; present: default" in strict["error"]["message"]
    weights = [name for name in lenient["files"] if name.endswith(".safetensors")]
    assert weights == [f"unet/{STEM}.fp16.safetensors", f"vae/{STEM}.safetensors"]
    assert hub.fetched(repo) <= set(lenient["files"])


def test_a_component_that_stands_in_for_another_is_fetched_alone(
    ask: Ask, hub: HubServer, repo: str, pipeline: Path, sharded: Path
) -> None:
    """Of another pipeline only that component; of a component the variant, or else what there is."""
    hub.add(repo, pipeline)
    hub.add(f"{repo}-unet", sharded)
    of_pipeline, alone, default = ask(
        call(repo, component="vae", variant="fp16"),
        call(f"{repo}-unet", component="unet", variant="fp16"),
        call(f"{repo}-unet", component="unet", variant="bf16"),
    )
    assert of_pipeline["files"] == ["model_index.json", "vae/config.json", f"vae/{STEM}.safetensors"]
    assert alone["files"] == ["config.json", f"{STEM}.fp16.safetensors"]
    assert set(SHARDS) <= set(default["files"])


def test_subfolders_and_single_files_can_be_named(ask: Ask, hub: HubServer, repo: str, pipeline: Path) -> None:
    hub.add(repo, pipeline)
    folder, single, index = ask(
        call(f"{repo}:vae"),
        call(f"hf://{repo}:vae/" + f"{STEM}.safetensors"),
        call(repo, subfolder=f"unet/{INDEX}"),
    )
    assert folder["files"] == ["config.json", f"{STEM}.safetensors"]
    assert single["path"] == folder["path"] + f"/{STEM}.safetensors"
    assert len(read_checkpoint(Path(index["path"])).files) == 2


def test_what_is_cached_is_not_downloaded_again_also_under_a_new_commit(
    ask: Ask, hub: HubServer, repo: str, sharded: Path
) -> None:
    hub.add(repo, sharded)
    [first] = ask(call(repo))
    hub.requests.clear()
    [second] = ask(call(repo))
    assert second["path"] == first["path"]
    assert hub.fetched(repo) == set()

    hub.add(repo, {**files_of(sharded), "README.md": b"another commit"})
    [third] = ask(call(repo))
    assert third["path"] != first["path"]
    assert files_of(Path(third["path"])) == files_of(Path(first["path"]))
    assert not any(name.endswith(".safetensors") for name in hub.fetched(repo))


def test_a_revision_is_a_branch_a_tag_or_a_commit(ask: Ask, hub: HubServer, repo: str, sharded: Path) -> None:
    hub.add(repo, sharded)
    added = hub.add(repo, {**files_of(sharded), "config.json": b'{"_class_name": "Other"}'}, revision="v2")
    by_tag, by_commit, by_option = ask(
        call(f"{repo}@v2", variant="fp16"),
        call(f"{repo}@{added.revisions['v2']}", variant="fp16"),
        call(repo, revision="v2", variant="fp16"),
    )
    assert by_tag["path"] == by_commit["path"] == by_option["path"]
    assert b"Other" in files_of(Path(by_tag["path"]))["config.json"]


def test_progress_is_bytes_and_adds_up(ask: Ask, hub: HubServer, repo: str, sharded: Path) -> None:
    hub.add(repo, sharded)
    [got] = ask(call(repo, variant="fp16"))
    kinds = [event["event"] for event in got["events"]]
    assert kinds == ["Started", *["Advanced"] * (len(kinds) - 2), "Finished"]
    sizes = sum(len(data) for name, data in files_of(sharded).items() if name in got["files"])
    assert got["events"][0]["total"] == sizes == sum(event.get("by", 0) for event in got["events"])
    assert repo in got["events"][0]["label"]


def test_a_broken_connection_is_resumed(ask: Ask, hub: HubServer, repo: str, tmp_path: Path) -> None:
    """The connection is cut in the middle of 26 MB: what has been written is not asked for again, the file is whole."""
    add_weights(tmp_path, side=1800)
    hub.add(repo, tmp_path)
    name = f"{STEM}.safetensors"
    hub.cuts[name] = 1
    [got] = ask(call(repo))
    data = (tmp_path / name).read_bytes()
    assert files_of(Path(got["path"]))[name] == data
    first, second = (request.sent for request in hub.requests if request.served == name and request.sent)
    assert first == len(data) // 2
    assert second < len(data) * 2 // 3
    assert sum(event.get("by", 0) for event in got["events"]) == got["events"][0]["total"]


@pytest.mark.slow
def test_a_connection_that_stays_broken_is_said_and_leaves_nothing_half(
    ask: Ask, hub: HubServer, repo: str, sharded: Path
) -> None:
    hub.add(repo, sharded)
    hub.cuts[SHARDS[1]] = 1000
    [got] = ask(call(repo))
    assert (got["error"]["code"], got["exit_code"]) == ("connection_lost", 6)
    assert list(ask.home.rglob("*.incomplete")) == []
    hub.cuts.clear()
    hub.requests.clear()
    [whole] = ask(call(repo))
    assert SHARDS[1] in whole["files"]
    assert SHARDS[0] not in hub.fetched(repo)


def test_a_file_damaged_in_the_cache_is_fetched_again(ask: Ask, hub: HubServer, repo: str, sharded: Path) -> None:
    hub.add(repo, sharded)
    [first] = ask(call(repo))
    blob = (Path(first["path"]) / SHARDS[2]).resolve()
    blob.write_bytes(blob.read_bytes()[:-100])
    hub.requests.clear()
    [second] = ask(call(repo))
    assert [event["code"] for event in second["events"] if event["event"] == "Note"] == ["cache_damaged"]
    assert hub.fetched(repo) == {SHARDS[2]}
    assert files_of(Path(second["path"]))[SHARDS[2]] == (sharded / SHARDS[2]).read_bytes()


def test_a_size_that_is_not_the_record_s_is_refused(ask: Ask, hub: HubServer, repo: str, sharded: Path) -> None:
    hub.add(repo, sharded)
    hub.recorded[SHARDS[0]] = 123_456
    [got] = ask(call(repo))
    assert (got["error"]["code"], got["exit_code"]) == ("download_incomplete", 6)
    assert SHARDS[0] in got["error"]["message"]
    assert "123,456" in got["error"]["message"]
