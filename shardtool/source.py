"""What a user names as a source, and the local folder or file that it means.

::

    demo                                   the embedded demo model (a folder of that name is ./demo)
    PATH                                   a folder or a file; an existing path wins over a repo id spelled alike,
                                           which is told where the Hub's cache knows that repo
    [hf://]ORG/NAME[@REVISION][:SUBFOLDER] a repo on the Hub

Nothing here looks at the network; ``shardtool.hub`` is imported only when a Hub source is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from shardtool.checkpoint.needed import Wanted
from shardtool.errors import HubError, InputError, UsageError
from shardtool.events import Listener, Note, ignore

T = TypeVar("T")

DEMO = "demo"

_HUB = re.compile(
    r"(?P<repo>\w[\w.-]*/[\w.-]+)(?:@(?P<revision>[^:@]+))?(?::(?P<subfolder>[^:@]+))?",
    re.ASCII,
)


@dataclass(frozen=True)
class LocalSource:
    """A folder or a file on this machine. ``text`` is what the user typed."""

    path: Path
    text: str


@dataclass(frozen=True)
class HubSource:
    """A repo on the Hub. ``subfolder`` uses ``/`` and is relative to the repo's root."""

    repo: str
    revision: str | None
    subfolder: str | None
    text: str


def demo_path() -> Path:
    """The folder of the embedded demo model, a complete SDXL pipeline."""
    return Path(__file__).parent / "demo"


def parse_source(text: str, *, revision: str | None = None, subfolder: str | None = None) -> LocalSource | HubSource:
    """What ``text`` names; ``revision`` and ``subfolder`` are the options of the same name.

    Raises ``InputError`` where it is neither an existing path nor the form of a repo id, and ``UsageError`` where an
    option contradicts the text.
    """
    if not text:
        raise UsageError("the source is empty", code="source_empty", hint="an unset variable in a script?")
    if text == DEMO or text.startswith(f"{DEMO}:"):
        folder = _one("subfolder", text.removeprefix(DEMO).removeprefix(":") or None, subfolder)
        return _local(demo_path(), text, folder, revision)
    if not text.startswith("hf://") and (path := _existing(text)):
        return _local(path, text, subfolder, revision)
    if text.startswith(f"{DEMO}/"):
        inside = text.removeprefix(f"{DEMO}/").rstrip("/").replace(":", "/")
        raise InputError(
            f"{text}: no such file or folder",
            code="file_missing",
            path=text,
            hint=f"a part of the embedded model is written {DEMO}:{inside}; a repo on the Hub hf://{text}",
        )
    found = _HUB.fullmatch(text.removeprefix("hf://"))
    if found is None or ".." in found["repo"]:
        raise InputError(
            f"{text}: no such file or folder",
            code="file_missing",
            path=text,
            hint="a repo on the Hub is written ORG/NAME[@REVISION][:SUBFOLDER]; the embedded model is called demo",
        )
    return HubSource(
        found["repo"],
        _one("revision", found["revision"], revision),
        _one("subfolder", found["subfolder"], subfolder),
        text,
    )


def _local(path: Path, text: str, subfolder: str | None, revision: str | None) -> LocalSource:
    if revision is not None:
        raise UsageError(f"--revision {revision} says nothing about {text}, which is local", code="contradiction")
    return LocalSource(_joined(path, subfolder), text)


def _existing(text: str) -> Path | None:
    try:
        path = Path(text).expanduser()
        return path if path.exists() or path.is_symlink() else None
    except PermissionError as error:
        raise InputError(f"{text}: cannot be looked at: {error.strerror}", code="unreadable", path=text) from error
    except (OSError, RuntimeError):  # longer than a name may be; the home of nobody
        return None


def local_path(
    source: LocalSource | HubSource,
    *,
    variant: str | None = None,
    components: Collection[str] | None = None,
    without: Collection[str] = (),
    or_default: bool = False,
    pickles: bool = False,
    offline: bool = False,
    on_event: Listener = ignore,
) -> Path:
    """The folder or file that ``source`` means; a Hub source is downloaded into the Hub's cache first.

    Only the files needed are fetched: of a component the ``variant``'s weights, of a pipeline those of ``components``
    (by default all) ``without`` those that come from elsewhere. ``or_default`` takes the default weights of components
    that have no such variant; ``pickles`` takes pickled weights where there are no others. With ``offline`` the cache
    alone is used. Raises ``HubError`` where the Hub or the network says no, and ``InputError`` where files are missing
    from the cache or the source.
    """
    wanted = Wanted(variant, components, without, pickles, or_default)
    return fetched(source, wanted, offline=offline, on_event=on_event)


def component_path(
    source: LocalSource | HubSource,
    component: str,
    *,
    variant: str | None = None,
    offline: bool = False,
    on_event: Listener = ignore,
) -> Path:
    """Like ``local_path``, for a source that one ``component`` of a pipeline is taken from.

    Of another pipeline only that component is fetched; default weights are taken where there is no such ``variant``.
    """
    wanted = Wanted(variant, components=(component,), or_default=True)
    return fetched(source, wanted, offline=offline, on_event=on_event)


def fetched(
    source: LocalSource | HubSource, wanted: Wanted, *, offline: bool = False, on_event: Listener = ignore
) -> Path:
    """``local_path`` for what is ``wanted``."""
    if isinstance(source, LocalSource):
        _tell_shadowed(source, on_event)
        return source.path
    from shardtool.hub.fetch import fetch

    with _or_misspelt(source):
        return fetch(source, wanted, offline=offline, on_event=on_event)


@dataclass(frozen=True)
class Outline:
    """Where a source lies, or its structure; then ``download`` is how many bytes its contents would take to fetch."""

    path: Path
    download: int | None = None


@contextmanager
def outline_of(
    source: LocalSource | HubSource, wanted: Wanted, *, offline: bool = False, on_event: Listener = ignore
) -> Iterator[Outline]:
    """The files that ``fetched`` would give, for as long as the block runs; weights are not downloaded.

    Of a Hub source that is not in the cache, weights have their sizes and headers only, and texts their sizes, so
    tensor data must not be read; pickles, whose structure is not in their first bytes, are downloaded after all. Errors
    raised in the block name the files as on the Hub.
    """
    if isinstance(source, LocalSource):
        _tell_shadowed(source, on_event)
        yield Outline(source.path)
        return
    from shardtool.hub import remote

    with _or_misspelt(source), remote.outline_of(source, wanted, offline=offline, on_event=on_event) as outline:
        yield outline


def look_into(
    source: LocalSource | HubSource,
    look: Callable[[Path], T],
    *,
    variant: str | None = None,
    offline: bool = False,
    on_event: Listener = ignore,
) -> T:
    """What ``look(path)`` finds, for a ``path`` with the structure of ``source``; weights are not downloaded.

    Of a Hub source, ``path`` is a temporary folder in which the ``variant``'s weights have their sizes and headers
    only, so ``look`` must not read tensor data; what it returns or raises names the files as on the Hub.
    """
    if isinstance(source, LocalSource):
        _tell_shadowed(source, on_event)
        return look(source.path)
    from shardtool.hub import remote

    with _or_misspelt(source):
        return remote.look_into(source, look, variant=variant, offline=offline, on_event=on_event)


@contextmanager
def structure_of(
    source: LocalSource | HubSource, *, variant: str | None = None, offline: bool = False, on_event: Listener = ignore
) -> Iterator[Path]:
    """A path with the structure of ``source``, for as long as the block runs; weights are not downloaded.

    Like that of ``look_into``, and with the files that tokenizers consist of; errors name the files as on the Hub.
    """
    if isinstance(source, LocalSource):
        _tell_shadowed(source, on_event)
        yield source.path
        return
    from shardtool.hub import remote

    with (
        _or_misspelt(source),
        remote.structure_of(source, variant=variant, texts=True, offline=offline, on_event=on_event) as path,
    ):
        yield path


@contextmanager
def _or_misspelt(source: HubSource) -> Iterator[None]:
    """Where the Hub says no to what may have been meant as a local path, say so too."""
    try:
        yield
    except HubError as error:
        folder = source.repo.partition("/")[0]
        if source.text.startswith("hf://") or not Path(folder).is_dir():
            raise
        told = f"the folder {folder} here holds no {source.repo.partition('/')[2]}, so this was taken for a repo"
        hint = f"{told}; {error.hint}" if error.hint else told
        raise HubError(error.message, code=error.code, path=error.path, hint=hint) from error


def _tell_shadowed(source: LocalSource, on_event: Listener) -> None:
    """Say which meaning was taken where the text is also the name of a repo that has been used here."""
    found = _HUB.fullmatch(source.text)
    if found is None or on_event is ignore:
        return
    from shardtool.hub.cache import repo_folder

    if repo_folder(found["repo"]).is_dir():
        text = f"{source.text} is taken to be the local path; hf://{source.text} is the repo on the Hub"
        on_event(Note("path_taken", text))


def _one(option: str, written: str | None, given: str | None) -> str | None:
    if written is not None and given is not None and written != given:
        raise UsageError(f"--{option} {given} contradicts {written} in the source", code="contradiction")
    return written or given


def _joined(path: Path, subfolder: str | None) -> Path:
    if subfolder is None:
        return path
    parts = Path(subfolder).parts
    if Path(subfolder).is_absolute() or ".." in parts:
        raise UsageError(f"--subfolder {subfolder} leads out of the source", code="unsafe_path")
    return path.joinpath(*parts)
