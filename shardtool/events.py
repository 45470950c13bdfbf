"""Progress as plain data. The core reports, somebody else draws.

A long function takes ``on_event: Listener = ignore`` and calls it on the caller's thread. Nothing is throttled or
formatted here: bytes are raw counts, and ``task`` is a stable identifier that ``--progress json`` shows as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Unit: TypeAlias = Literal["bytes", "components", "tensors", "steps", "images", "files"]


@dataclass(frozen=True)
class Started:
    """A task began. ``total`` is in ``unit``, or ``None`` where it is not known; ``label`` is for people."""

    task: str
    label: str
    total: int | None = None
    unit: Unit = "bytes"


@dataclass(frozen=True)
class Advanced:
    """``by`` more units of the task are done."""

    task: str
    by: int = 1


@dataclass(frozen=True)
class Finished:
    """The task is done. Not sent when it failed: then an error is raised."""

    task: str


@dataclass(frozen=True)
class Note:
    """Something worth knowing that stops nothing. ``code`` is stable; a ``warning`` deserves attention."""

    code: str
    text: str
    warning: bool = False


Event: TypeAlias = Started | Advanced | Finished | Note
Listener: TypeAlias = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The listener that says nothing."""
