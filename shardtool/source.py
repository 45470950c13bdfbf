"""What a user names as a source: the embedded model, a local folder or file, or a repo on the Hub.

::

    demo                                   the embedded demo model (a folder of that name is ./demo)
    PATH                                   a folder or a file; an existing path wins over a repo id spelled alike,
                                           which is told where the Hub's cache knows that repo, and so does a
                                           missing one in a folder that is there
    [hf://]ORG/NAME[@REVISION][:SUBFOLDER] a repo on the Hub

Nothing here looks at the network: ``shardtool.obtain`` does.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from shardtool.errors import InputError, UsageError

DEMO = "demo"

HUB_FORM = re.compile(
    r"(?P<repo>\w[\w.-]*/[\w.-]+)(?:@(?P<revision>[^:@]+))?(?::(?P<subfolder>[^:@]+))?",
    re.ASCII,
)
"""How a repo on the Hub is written, without ``hf://``."""


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


@dataclass(frozen=True)
class Outline:
    """Where a source lies, or its structure; then ``download`` is how many bytes its contents would take to fetch."""

    path: Path
    download: int | None = None


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
    found = HUB_FORM.fullmatch(text.removeprefix("hf://"))
    if not text.startswith("hf://") and found is not None and _existing(text.partition("/")[0]):
        raise _misspelt(text)
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
    joined = _joined(path, subfolder)
    if subfolder is not None and path.is_dir() and not os.path.lexists(joined):
        folders = sorted(one.name for one in path.iterdir() if one.is_dir())
        hint = f"it holds {', '.join(folders)}" if folders else "it holds no folders"
        raise InputError(f"{text}: no {subfolder} in {path}", code="file_missing", path=joined, hint=hint)
    return LocalSource(joined, text)


def _existing(text: str) -> Path | None:
    try:
        path = Path(text).expanduser()
        return path if path.exists() or path.is_symlink() else None
    except PermissionError as error:
        raise InputError(f"{text}: cannot be looked at: {error.strerror}", code="unreadable", path=text) from error
    except (OSError, RuntimeError):  # longer than a name may be; the home of nobody
        return None


def _misspelt(text: str) -> InputError:
    """A path into a folder that is here is not asked of the Hub: it is the likelier meaning."""
    from difflib import get_close_matches  # of use for this alone

    folder, _, name = text.partition("/")
    there = sorted(path.name for path in Path(folder).iterdir()) if Path(folder).is_dir() else []
    near = [f"{folder}/{one}" for one in get_close_matches(name, there)]
    hint = f"a repo on the Hub would be written hf://{text}"
    return InputError(
        f"{text}: no such file or folder",
        code="file_missing",
        path=text,
        hint=f"did you mean {' or '.join(near)}? {hint}" if near else hint,
    )


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
