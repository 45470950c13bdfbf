"""What the shell offers after Tab: sources (local paths, repos in the Hub's cache, demo) and names of components.

Nothing here asks the network or reads more than a folder's names and ``model_index.json``. Whatever goes wrong, nothing
is offered: an error has no place on a command line that is being typed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import typer

from shardtool.checkpoint.folder import read_pipeline
from shardtool.errors import ShardtoolError
from shardtool.source import DEMO, HubSource, LocalSource, demo_path, parse_source

_FILES = (".safetensors", ".index.json")
_SOURCES = ("source", "model")
"""Parameters of commands that name the pipeline whose components are meant."""


def complete_source(incomplete: str) -> list[str]:
    """Local folders and weights, repos of which the Hub's cache holds something with their folders, and ``demo``."""
    if incomplete.startswith("hf://"):
        return [f"hf://{text}" for text in _on_hub(incomplete.removeprefix("hf://"))]
    if incomplete.startswith(f"{DEMO}:"):
        parts = (f"{DEMO}:{name}" for name in _components(demo_path()))
        return [text for text in parts if text.startswith(incomplete)]
    demo = [DEMO] if DEMO.startswith(incomplete) else []
    return [*demo, *_local(incomplete), *_on_hub(incomplete)]


def complete_component(ctx: typer.Context, incomplete: str) -> list[str]:
    """The components of the pipeline that is named before on the line; those of the demo where none is."""
    named = next((value for name in _SOURCES if (value := ctx.params.get(name))), None)
    # Where the option that is being completed still lacks its value, the arguments are left unparsed.
    text = named if isinstance(named, str) else next((word for word in ctx.args if not word.startswith("-")), None)
    folder = _folder_of(text) if text else demo_path()
    return [name for name in _components(folder) if name.startswith(incomplete)]


def complete_replacement(ctx: typer.Context, incomplete: str) -> list[str]:
    """``NAME=SOURCE``: first a component of the pipeline that is named before, then a source."""
    name, equals, source = incomplete.partition("=")
    if equals:
        return [f"{name}={text}" for text in complete_source(source)]
    return [f"{one}=" for one in complete_component(ctx, incomplete)]


def _local(incomplete: str) -> Iterable[str]:
    """Folders, with a slash, and weights that begin so, spelled as they were begun."""
    head, slash, start = incomplete.rpartition("/")
    try:
        folder = Path(head + slash).expanduser()
        entries = sorted(folder.iterdir())
    except (OSError, RuntimeError):
        return
    for entry in entries:
        if not entry.name.startswith(start) or (entry.name.startswith(".") and not start):
            continue
        if entry.is_dir():
            yield f"{head}{slash}{entry.name}/"
        elif entry.name.endswith(_FILES):
            yield f"{head}{slash}{entry.name}"


def _on_hub(incomplete: str) -> list[str]:
    from shardtool.hub.cache import cached_repos

    repo, colon, start = incomplete.partition(":")
    if not colon:
        return [name for name in cached_repos() if name.startswith(incomplete)]
    return [f"{repo}:{name}" for name in _components(_folder_of(repo)) if name.startswith(start)]


def _folder_of(text: str) -> Path | None:
    """Where a source lies on this machine, if it does."""
    from shardtool.hub.cache import cached_commit, snapshot

    try:
        source = parse_source(text)
    except ShardtoolError:
        return None
    match source:
        case LocalSource(path):
            return path
        case HubSource(repo, revision):
            commit = cached_commit(repo, revision or "main")
            return snapshot(repo, commit) if commit else None


def _components(folder: Path | None) -> list[str]:
    """The components of a pipeline folder, or the folders in any other one."""
    if folder is None:
        return []
    try:
        return list(read_pipeline(folder).components)
    except ShardtoolError:
        return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
