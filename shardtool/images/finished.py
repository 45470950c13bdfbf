"""Which pictures of a plan are there already, made with the same settings and the same model."""

from __future__ import annotations

from pathlib import Path

from shardtool.errors import RefusedError, ShardtoolError
from shardtool.images.ledger import Ledger
from shardtool.images.plan import Plan
from shardtool.images.reading import read_settings
from shardtool.images.record import Model
from shardtool.images.settings import Job


def split_finished(plan: Plan, model: Model) -> tuple[tuple[Job, ...], tuple[Job, ...]]:
    """(to do, finished). A picture is finished where the ledger or its own metadata says that it was made so.

    Raises ``RefusedError`` where a file is in the place of a picture and was made otherwise, or nobody knows how.
    """
    entries = Ledger(plan.request.target.folder).read()
    folder = plan.request.target.folder
    todo: list[Job] = []
    finished: list[Job] = []
    for job in plan.jobs:
        if job.path is None or not job.path.exists():
            todo.append(job)
            continue
        key = job.key(model.identity)
        entry = entries.get(key)
        in_ledger = entry is not None and folder / entry.path == job.path
        if not in_ledger and _recorded_key(job.path) != key:
            raise RefusedError(
                f"{job.path} exists and was made with other settings or another model",
                code="target_exists",
                path=job.path,
                hint="--overwrite replaces it; -o names another place",
            )
        finished.append(job)
    return tuple(todo), tuple(finished)


def _recorded_key(path: Path) -> str | None:
    try:
        record = read_settings(path)["record"]
    except ShardtoolError:
        return None
    key = None if record is None else record.get("key")
    return key if isinstance(key, str) else None
