"""What comes of a run: images, failures, and the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardtool.errors import ShardtoolError
from shardtool.images.replay import Verdict
from shardtool.images.settings import Job
from shardtool.placement import Placement


@dataclass(frozen=True)
class MadeImage:
    """An image that was written; ``data`` holds the file where there is no path to write it to."""

    job: Job
    key: str
    record: Mapping[str, Any]
    seconds: float
    retried: bool
    data: bytes | None = None


@dataclass(frozen=True)
class Failure:
    """A picture that could not be made, and why."""

    job: Job
    error: ShardtoolError


@dataclass(frozen=True)
class Outcome:
    """What came of a run; ``placement`` is ``None`` where there was nothing to make.

    On the first process ``made`` and ``failures`` are those of all processes.
    """

    placement: Placement | None
    made: tuple[MadeImage, ...]
    failures: tuple[Failure, ...] = ()
    skipped: tuple[Job, ...] = ()
    verdict: Verdict | None = None
    companions: tuple[str, ...] = ()
