"""A source on the Hub as a folder or file on this machine: downloaded into the Hub's cache, or found there.

Offline, the cache is read by ourselves: diffusers asks the network for a sharded component even where all of it is
cached. What comes out is a plain local path, so no loader ever sees a repo's name.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from huggingface_hub import constants

from shardtool.checkpoint.needed import Needed, Source, Wanted, needed_files, needed_for_file
from shardtool.errors import HubError, InputError
from shardtool.events import Listener, Note
from shardtool.hub.cache import cached_commit, cached_paths, record_revision, repo_folder, snapshot
from shardtool.hub.download import download, download_one
from shardtool.hub.listing import Listing, Place, look_up, place_of, place_on_hub
from shardtool.hub.trouble import explained
from shardtool.source import HubSource


def fetch(source: HubSource, wanted: Wanted, *, offline: bool, on_event: Listener) -> Path:
    """Where ``source`` lies on this machine, with all that is needed of it (see ``shardtool.obtain.local_path``)."""
    if offline or constants.HF_HUB_OFFLINE:
        return _from_cache(source, wanted)
    listing = look_up(source)
    place = place_on_hub(source, listing)
    folder = snapshot(source.repo, listing.commit)

    def read(name: str) -> Path:
        with explained(source):
            download_one(listing, place.path(name))
        return folder / place.path(name)

    needed = needed_at(place, Source(place.below(listing.files), read, place.shown), wanted)
    if needed.problems:
        raise InputError.of_all(needed.problems)
    _complete(source, listing, [place.path(name) for name in needed.names], on_event)
    return _result(folder, place)


def needed_at(place: Place, source: Source, wanted: Wanted) -> Needed:
    """What of ``source``, which lies at ``place``, is needed."""
    return needed_files(source, wanted) if place.file is None else needed_for_file(source, place.file)


def _result(folder: Path, place: Place) -> Path:
    return folder / place.folder / (place.file or "")


def _complete(source: HubSource, listing: Listing, paths: list[str], on_event: Listener) -> None:
    """Have the files in the cache, with the sizes of the Hub's record: an interrupted copy may have left less."""
    folder = snapshot(source.repo, listing.commit)
    with explained(source):
        if missing := not_here(listing, paths):
            download(listing, missing, on_event)
        if damaged := _of_other_size(folder, listing, paths):
            on_event(Note("cache_damaged", f"{damaged[0]}: is damaged in the cache: fetched again", warning=True))
            download(listing, damaged, on_event, force=True)
        record_revision(listing.repo, listing.revision, listing.commit)
    if still := _of_other_size(folder, listing, paths):
        size, expected = (folder / still[0]).stat().st_size, listing.files[still[0]].size
        raise HubError(
            f"{folder / still[0]}: {size:,} bytes arrived, the Hub's record says {expected:,}",
            code="download_incomplete",
            path=folder / still[0],
            hint="run it again; if it stays so, the repo itself is damaged",
        )


def not_here(listing: Listing, paths: Iterable[str]) -> list[str]:
    """Those of the repo's ``paths`` that the cache lacks."""
    folder = snapshot(listing.repo, listing.commit)
    return [path for path in paths if not (folder / path).exists()]


def _of_other_size(folder: Path, listing: Listing, paths: list[str]) -> list[str]:
    return [path for path in paths if (folder / path).stat().st_size != listing.files[path].size]


def _from_cache(source: HubSource, wanted: Wanted) -> Path:
    revision = source.revision or constants.DEFAULT_REVISION
    commit = cached_commit(source.repo, revision)
    if commit is None:
        raise not_cached(source, revision)
    folder = snapshot(source.repo, commit)
    paths = cached_paths(folder)
    place = place_of(source, paths)
    if place is None:
        raise not_in_cache(source, commit)
    local = Source(place.below(paths), lambda name: folder / place.path(name), place.shown)
    try:
        needed = needed_at(place, local, wanted)
    except InputError as error:
        raise _incomplete(source, commit, _not_all(source, error.message)) from error
    _check_cached(source, commit, place, needed)
    return _result(folder, place)


def _check_cached(source: HubSource, commit: str, place: Place, needed: Needed) -> None:
    """Raises ``InputError`` naming the first file that the cache lacks, and how many of its kind are there."""
    folder = snapshot(source.repo, commit)
    for names in (needed.small + needed.texts, *needed.weights):
        paths = [folder / place.path(name) for name in names]
        missing = [path for path in paths if not path.exists()]
        if not missing:
            continue
        if missing[0].is_symlink():
            raise InputError(
                f"{missing[0]}: is a link to {missing[0].readlink()}, which does not exist",
                code="dangling_link",
                path=missing[0],
                hint=f"a copied cache loses its blobs: copy all of {repo_folder(source.repo)}, or {_go_online()}",
            )
        kind = "shards" if len(paths) > 1 else "weights file" if names in needed.weights else "files"
        amount = f"{len(missing)} of {len(paths)} {kind}" if len(paths) > 1 else f"the {kind}"
        verb = "is" if len(missing) == 1 else "are"
        raise _incomplete(source, commit, f"{amount} {verb} not in the cache: {missing[0].relative_to(folder)}")
    others = [problem for problem in needed.problems if problem.code != "shard_missing"]
    if others:
        raise _incomplete(source, commit, _not_all(source, others[0].message))


def _not_all(source: HubSource, fault: str) -> str:
    return f"not all of {source.repo} is in the cache: {fault}"


def not_cached(source: HubSource, revision: str) -> HubError:
    """The error for a repo or revision of which the cache knows nothing."""
    what = f"{source.repo} is not in the cache"
    if repo_folder(source.repo).is_dir():
        what = f"{source.repo} is in the cache, but not its revision {revision}"
    return HubError(what, code="offline_absent", path=source.text, hint=f"{_go_online()}; the cache is {_cache()}")


def not_in_cache(source: HubSource, commit: str) -> InputError:
    """The error for a subfolder of which the cache has nothing, in a repo of which it has something."""
    return _incomplete(source, commit, f"{source.subfolder} of {source.repo} is not in the cache")


def _incomplete(source: HubSource, commit: str, what: str) -> InputError:
    message = f"{what} (revision {commit[:12]})"
    return InputError(message, code="offline_incomplete", path=source.text, hint=_go_online())


def _go_online() -> str:
    way = "without HF_HUB_OFFLINE" if constants.HF_HUB_OFFLINE else "without --offline"
    return f"run it once {way} to download what is missing"


def _cache() -> str:
    return str(constants.HF_HUB_CACHE)
