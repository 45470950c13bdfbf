"""The Hub's cache as it may be found: copied, half written, or asked for what it does not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardtool.hub.cache import cached_commit, record_revision

COMMIT = "a" * 40


@pytest.fixture
def repo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of org/name in a cache that holds one commit of it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    folder = tmp_path / "home" / "hub" / "models--org--name"
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    (folder / "refs").mkdir()
    return folder


def test_a_revision_is_remembered(repo: Path) -> None:
    record_revision("org/name", "refs/pr/1", COMMIT)
    assert cached_commit("org/name", "refs/pr/1") == COMMIT
    assert cached_commit("org/name", COMMIT) == COMMIT


@pytest.mark.parametrize("text", ["", ".", "..", "b" * 40])
def test_a_record_that_names_no_commit_here_is_none(repo: Path, text: str) -> None:
    (repo / "refs" / "main").write_text(text)
    assert cached_commit("org/name", "main") is None


@pytest.mark.parametrize("revision", ["../../../../outside", "/{}/outside"])
def test_nothing_is_remembered_outside_the_cache(repo: Path, tmp_path: Path, revision: str) -> None:
    record_revision("org/name", revision.format(tmp_path), COMMIT)
    assert [entry.name for entry in tmp_path.iterdir()] == ["home"]
