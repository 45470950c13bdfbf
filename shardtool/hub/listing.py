"""Which files a repo has at a revision, as the Hub's record says: one request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from huggingface_hub import HfApi, constants

from shardtool.errors import HubError
from shardtool.hub.trouble import explained, no_hub
from shardtool.source import HubSource

TIMEOUT = 10.0
"""Seconds until a Hub that does not answer counts as unreachable."""

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Stored:
    """A file on the Hub: its ``size`` in bytes, and the name its contents have in the cache's ``blobs`` folder."""

    size: int
    blob: str


@dataclass(frozen=True)
class Listing:
    """``revision`` is what was asked for (``"main"`` by default), ``commit`` what it means; ``files`` is by path."""

    repo: str
    revision: str
    commit: str
    files: Mapping[str, Stored]


@dataclass(frozen=True)
class Place:
    """Where in a repo a source points: a ``folder`` (``""`` is the root), or one ``file`` in it."""

    repo: str
    folder: str
    file: str | None

    @property
    def shown(self) -> Path:
        """The folder as messages name it."""
        return Path(self.repo, self.folder)

    def path(self, name: str) -> str:
        """From a name below the folder to a path from the repo's root."""
        return f"{self.folder}/{name}" if self.folder else name

    def below(self, paths: Iterable[str]) -> list[str]:
        """The other way: the names of those of ``paths`` that lie below the folder."""
        start = f"{self.folder}/" if self.folder else ""
        return sorted(path.removeprefix(start) for path in paths if path.startswith(start))


def look_up(source: HubSource) -> Listing:
    """Ask the Hub. Raises ``HubError`` in as many ways as there are to say no."""
    with explained(source):
        try:
            info = HfApi().model_info(source.repo, revision=source.revision, files_metadata=True, timeout=TIMEOUT)
        except (ValueError, KeyError, TypeError) as error:  # an answer that is no JSON, or other JSON
            if type(error).__module__.startswith("huggingface_hub"):
                raise
            raise no_hub(source) from error
    if info.sha is None or not _COMMIT.fullmatch(info.sha) or info.siblings is None:
        raise no_hub(source)
    files = {
        file.rfilename: Stored(file.size or 0, file.lfs.sha256 if file.lfs else file.blob_id or "")
        for file in info.siblings
        if _is_plain(file.rfilename)
    }
    return Listing(source.repo, source.revision or constants.DEFAULT_REVISION, info.sha, files)


def _is_plain(path: str) -> bool:
    """Whether a path stays inside the repo; others are passed over, as nothing could ask for them."""
    return not path.startswith("/") and "\\" not in path and not {"", ".", ".."} & set(path.split("/"))


def place_of(source: HubSource, paths: Iterable[str]) -> Place | None:
    """Where ``source`` points among the repo's ``paths``; ``None`` where its subfolder is not among them."""
    wanted = "/".join(part for part in (source.subfolder or "").split("/") if part not in ("", "."))
    if not wanted:
        return Place(source.repo, "", None)
    for path in paths:
        if path == wanted:
            parent = str(PurePosixPath(path).parent)
            return Place(source.repo, "" if parent == "." else parent, PurePosixPath(path).name)
        if path.startswith(f"{wanted}/"):
            return Place(source.repo, wanted, None)
    return None


def place_on_hub(source: HubSource, listing: Listing) -> Place:
    """Like ``place_of``. Raises ``HubError`` with the folders there are."""
    if place := place_of(source, listing.files):
        return place
    folders = sorted({path.split("/")[0] for path in listing.files if "/" in path})
    at = "" if source.revision is None else f" at revision {source.revision}"
    raise HubError(
        f"{source.repo}: has no {source.subfolder}{at}",
        code="entry_not_found",
        path=source.text,
        hint=f"its folders: {', '.join(folders[:12])}" if folders else "it has no folders: leave the subfolder out",
    )
