"""Which files a repo has at a revision, as the Hub's record says: one request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from huggingface_hub import HfApi, constants
from huggingface_hub.hf_api import RepoSibling

from shardtool.errors import HubError
from shardtool.hub.cache import COMMIT
from shardtool.hub.trouble import explained, no_hub
from shardtool.source import HubSource

TIMEOUT = 10.0
"""Seconds until a Hub that does not answer counts as unreachable."""

_LARGEST = 2**43
"""No file on the Hub has as many bytes, and a file system need not take a name for more."""

_LONGEST = 255
"""Bytes that a file system takes for one name."""


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
    if not isinstance(info.sha, str) or not COMMIT.fullmatch(info.sha) or info.siblings is None:
        raise no_hub(source)
    try:
        files = {file.rfilename: _stored(file) for file in info.siblings if _is_plain(file.rfilename)}
    except (ValueError, AttributeError) as error:
        raise no_hub(source) from error
    if any(str(folder) in files for path in files for folder in PurePosixPath(path).parents):
        raise no_hub(source)  # a file that is a folder too
    return Listing(source.repo, source.revision or constants.DEFAULT_REVISION, info.sha, files)


def _is_plain(path: str) -> bool:
    """Whether a path stays inside the repo and can be one; others are passed over, as nothing could ask for them."""
    names = path.encode("utf-8", "surrogatepass").split(b"/")
    is_path = b"" not in names and not {".", ".."} & set(path.split("/")) and max(map(len, names)) <= _LONGEST
    return is_path and not any(char in "\\\0" or "\ud800" <= char <= "\udfff" for char in path)


def _stored(file: RepoSibling) -> Stored:
    """The record of a file. Raises ``ValueError`` where it is none; the client passes on whatever it is told."""
    size, blob = file.size or 0, file.lfs.sha256 if file.lfs else file.blob_id or ""
    if type(size) is not int or type(blob) is not str or not 0 <= size < _LARGEST:
        raise ValueError(f"{file.rfilename}: {size!r} bytes as {blob!r}")
    return Stored(size, blob)


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
