"""The layout of the Hub's cache, read without the network::

    models--ORG--NAME/refs/REVISION            the commit that a branch or tag meant last
    models--ORG--NAME/snapshots/COMMIT/PATH    a file, usually a link to …
    models--ORG--NAME/blobs/HASH               … its contents

A cache that was copied may have files in place of the links, or links without what they point to. Source: "Understand
caching" in the documentation of huggingface_hub.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from pathlib import Path

from huggingface_hub import constants

COMMIT = re.compile(r"[0-9a-f]{40}")

_MODELS = "models--"


def cache_folder() -> Path:
    return Path(constants.HF_HUB_CACHE).expanduser()


def repo_folder(repo: str) -> Path:
    return cache_folder() / (_MODELS + repo.replace("/", "--"))


def snapshot(repo: str, commit: str) -> Path:
    return repo_folder(repo) / "snapshots" / commit


def cached_commit(repo: str, revision: str) -> str | None:
    """The commit that ``revision`` (a branch, a tag or a commit) means in the cache."""
    if _leads_out(revision):
        return None
    try:
        commit = (repo_folder(repo) / "refs" / revision).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        commit = revision
    return commit if COMMIT.fullmatch(commit) and snapshot(repo, commit).is_dir() else None


def _leads_out(revision: str) -> bool:
    return ".." in Path(revision).parts or Path(revision).is_absolute()


def cached_paths(folder: Path) -> list[str]:
    """The files of a snapshot, relative and with ``/``; links that lead nowhere are among them."""
    found: list[str] = []
    for parent, _, names in os.walk(folder):
        found.extend((Path(parent) / name).relative_to(folder).as_posix() for name in names)
    return sorted(found)


def record_revision(repo: str, revision: str, commit: str) -> None:
    """Remember what ``revision`` means, so that it is found without the network. Replaces the file in one step."""
    if revision == commit or _leads_out(revision) or cached_commit(repo, revision) == commit:
        return
    path = repo_folder(repo) / "refs" / revision
    staged = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    with contextlib.suppress(OSError):  # a cache that is shared, and only read
        path.parent.mkdir(parents=True, exist_ok=True)
        staged.write_text(commit, encoding="ascii")
        staged.replace(path)


def cached_repos() -> list[str]:
    """The ids of all model repos of which the cache holds something."""
    try:
        names = [entry.name for entry in cache_folder().iterdir()]
    except OSError:
        return []
    return sorted(name.removeprefix(_MODELS).replace("--", "/", 1) for name in names if name.startswith(_MODELS))
