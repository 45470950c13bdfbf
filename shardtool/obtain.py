"""The local folder or file of a source: as it lies here, fetched from the Hub, or its structure alone.

``shardtool.hub`` is imported only when a Hub source is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from shardtool.checkpoint.needed import Wanted
from shardtool.events import Listener, Note, ignore
from shardtool.source import HUB_FORM, HubSource, LocalSource, Outline, parse_source

T = TypeVar("T")


def local_path(
    source: str | LocalSource | HubSource,
    *,
    variant: str | None = None,
    components: Collection[str] | None = None,
    without: Collection[str] = (),
    or_default: bool = False,
    pickles: bool = False,
    offline: bool = False,
    on_event: Listener = ignore,
) -> Path:
    """The folder or file that ``source`` means, text as on the command line; what is on the Hub is downloaded first.

    Only the files needed are fetched: of a component the ``variant``'s weights, of a pipeline those of ``components``
    (by default all) ``without`` those that come from elsewhere. ``or_default`` takes the default weights of components
    that have no such variant; ``pickles`` takes pickled weights where there are no others. With ``offline`` the cache
    alone is used. Raises ``HubError`` where the Hub or the network says no, and ``InputError`` where files are missing
    from the cache or the source.
    """
    wanted = Wanted(variant, components, without, pickles, or_default)
    source = parse_source(source) if isinstance(source, str) else source
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

    return fetch(source, wanted, offline=offline, on_event=on_event)


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

    with remote.outline_of(source, wanted, offline=offline, on_event=on_event) as outline:
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

    with remote.structure_of(source, variant=variant, texts=True, offline=offline, on_event=on_event) as path:
        yield path


def _tell_shadowed(source: LocalSource, on_event: Listener) -> None:
    """Say which meaning was taken where the text is also the name of a repo that has been used here."""
    found = HUB_FORM.fullmatch(source.text)
    if found is None or on_event is ignore:
        return
    from shardtool.hub.cache import repo_folder

    if repo_folder(found["repo"]).is_dir():
        text = f"{source.text} is taken to be the local path; hf://{source.text} is the repo on the Hub"
        on_event(Note("path_taken", text))
