"""What cannot be used, or is not given: each case has its own words, before anything large is downloaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.hubcalls import Ask, call
from tests.hubrepos import INDEX, SHARDS, STEM, files_of
from tests.hubserver import TOKEN, HubServer


def test_a_shard_that_the_repo_lacks_is_named_before_any_is_downloaded(
    ask: Ask, hub: HubServer, repo: str, sharded: Path
) -> None:
    hub.add(repo, {name: data for name, data in files_of(sharded).items() if name != SHARDS[1]})
    [got] = ask(call(repo))
    assert (got["error"]["code"], got["exit_code"]) == ("shard_missing", 3)
    assert f"{repo}/{SHARDS[1]}" in got["error"]["message"]
    assert not any(name.endswith(".safetensors") for name in hub.fetched(repo))


@pytest.mark.parametrize(
    ("names", "variant", "code", "words"),
    [
        (["config.json", f"{STEM}.safetensors"], "fp16", "variant_absent", "has no fp16 variant"),
        (["config.json", f"{STEM}.bin"], None, "pickle", f"{STEM}.bin"),
        (["config.json"], None, "weights_missing", "holds no weights"),
        (["a.safetensors", "b.safetensors"], None, "ambiguous", "a.safetensors, b.safetensors"),
        (["README.md", f"unet/{STEM}.safetensors"], None, "not_a_checkpoint", "holds no model_index.json"),
    ],
)
def test_a_repo_that_cannot_be_used_is_refused_before_a_download(
    ask: Ask, hub: HubServer, repo: str, names: list[str], variant: str | None, code: str, words: str
) -> None:
    hub.add(repo, dict.fromkeys(names, b"{}"))
    [got] = ask(call(repo, variant=variant))
    assert (got["error"]["code"], got["exit_code"]) == (code, 3)
    assert words in got["error"]["message"]
    assert repo in got["error"]["message"]
    assert hub.fetched(repo) == set()


def test_an_index_that_names_a_file_elsewhere_is_refused(ask: Ask, hub: HubServer, repo: str) -> None:
    index = json.dumps({"metadata": {}, "weight_map": {"a": "../../secret.safetensors"}}).encode()
    hub.add(repo, {"config.json": b"{}", INDEX: index, "secret.safetensors": b"x"})
    [got] = ask(call(repo))
    assert (got["error"]["code"], got["exit_code"]) == ("unsafe_path", 3)
    assert hub.fetched(repo) == {INDEX}


NO: Mapping[str, tuple[str, dict[str, str], str, str]] = {
    "no such repo": ("REPO-nothing", {}, "repo_not_found", "no token was sent"),
    "no such repo for this account": ("REPO-nothing", {"HF_TOKEN": TOKEN}, "repo_not_found", "may not see it"),
    "private": ("REPO-private", {}, "repo_not_found", "it is private and no token was sent"),
    "gated without a token": ("REPO-gated", {}, "gated", "no token was sent"),
    "gated for this account": ("REPO-gated", {"HF_TOKEN": TOKEN}, "gated", "this account has no access"),
    "wrong token": ("REPO", {"HF_TOKEN": "hf_wrong"}, "token_refused", "refused the token"),
    "no such revision": ("REPO@v9", {}, "revision_not_found", "'v9'"),
    "no such subfolder": ("REPO:vae", {}, "entry_not_found", "has no vae"),
    "no protocol": ("REPO", {"HF_ENDPOINT": "hub.example"}, "no_network", "cannot reach hub.example"),
    "no network": ("REPO", {"HF_ENDPOINT": "http://127.0.0.1:9"}, "no_network", "cannot reach http://127.0.0.1:9"),
}


@pytest.mark.parametrize("case", NO)
def test_each_refusal_has_its_own_sentence_and_hint(
    ask: Ask, hub: HubServer, repo: str, sharded: Path, case: str
) -> None:
    hub.add(repo, sharded)
    hub.add(f"{repo}-gated", sharded, gated=True)
    hub.add(f"{repo}-private", sharded, private=True)
    text, settings, code, words = NO[case]
    text = text.replace("REPO", repo)
    for got in ask(call(text), call(text, look=True), **settings):
        assert (got["error"]["code"], got["exit_code"]) == (code, 6)
        assert words in got["error"]["message"]
        assert got["error"]["hint"]
        assert got["error"]["path"] == text


@pytest.mark.parametrize(
    ("ailment", "code"), [("down", "hub_refused"), ("busy", "rate_limited"), ("page", "not_a_hub")]
)
def test_a_hub_that_is_not_well_is_said(
    ask: Ask, hub: HubServer, repo: str, sharded: Path, ailment: str, code: str
) -> None:
    hub.add(repo, sharded)
    hub.ailment = ailment
    [got] = ask(call(repo))
    assert (got["error"]["code"], got["exit_code"]) == (code, 6)


def test_an_endpoint_that_is_no_address_is_said(ask: Ask) -> None:
    [got] = ask(call("org/name"), HF_ENDPOINT="http://127.0.0.1:port")
    assert (got["error"]["code"], got["exit_code"]) == ("not_a_hub", 6)
    assert "HF_ENDPOINT=http://127.0.0.1:port" in got["error"]["message"]


ALTERED: list[dict[str, object]] = [
    {"rfilename": 5},
    {"rfilename": "config.json/x.safetensors"},
    {"size": "many"},
    {"size": -5},
    {"size": 1.5},
    {"size": 2**70},
    {"lfs": None, "blobId": 7},
]


@pytest.mark.parametrize("entries", ALTERED)
def test_a_record_that_is_none_is_not_the_hub_s(
    ask: Ask, hub: HubServer, repo: str, sharded: Path, entries: dict[str, object]
) -> None:
    hub.add(repo, sharded)
    hub.altered[SHARDS[1]] = entries
    for got in ask(call(repo), call(repo, look=True)):
        assert (got["error"]["code"], got["exit_code"]) == ("not_a_hub", 6)


@pytest.mark.parametrize("name", ["a\0.safetensors", f"{'a' * 300}.safetensors", "a\ud800.safetensors"])
def test_a_name_that_no_file_can_have_is_passed_over(
    ask: Ask, hub: HubServer, repo: str, sharded: Path, name: str
) -> None:
    hub.add(repo, {**files_of(sharded), "other.safetensors": b"x"})
    hub.altered["other.safetensors"] = {"rfilename": name}
    looked, got = ask(call(repo, look=True), call(repo))
    assert len(looked["found"]["parts"]) == 1
    assert INDEX in got["files"]


def test_a_file_that_is_shorter_than_its_record_is_not_judged_by_what_came(
    ask: Ask, hub: HubServer, repo: str, sharded: Path
) -> None:
    hub.add(repo, sharded)
    hub.recorded["config.json"] = 1000
    [got] = ask(call(repo, look=True))
    assert (got["error"]["code"], got["exit_code"]) == ("download_incomplete", 6)
    assert f"{repo}/config.json" in got["error"]["message"]


@pytest.mark.parametrize("text", ["org/a--b", "org/-name", f"org/{'x' * 100}"])
def test_what_cannot_be_a_repo_s_name_is_said_without_asking(ask: Ask, hub: HubServer, text: str) -> None:
    [got] = ask(call(text))
    assert (got["error"]["code"], got["exit_code"]) == ("repo_invalid", 3)
    assert text in got["error"]["message"]
    assert hub.requests == []


def test_the_token_of_a_login_opens_a_private_repo_and_goes_to_the_hub_alone(
    ask: Ask, hub: HubServer, repo: str, sharded: Path, tmp_path: Path
) -> None:
    hub.add(repo, sharded, private=True)
    (tmp_path / "token").write_text(TOKEN)
    looked, got = ask(call(repo, look=True), call(repo), HF_TOKEN_PATH=str(tmp_path / "token"))
    assert len(looked["found"]["parts"]) == 1
    assert INDEX in got["files"]
    to_cdn = [request for request in hub.requests if request.served in SHARDS and request.status in (200, 206)]
    assert to_cdn
    assert not any(request.authorized for request in to_cdn)
