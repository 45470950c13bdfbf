"""``merge``: the way back, one file for each checkpoint."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from shardtool.checkpoint.job import Job
from shardtool.checkpoint.plan import WHOLE
from shardtool.checkpoint.shard import plan_shards


def plan_merge(source: Path, *, variant: str | None = None, components: Collection[str] = ()) -> Job:
    """Decide what merging ``source`` writes; only headers and indexes are read. Raises as ``plan_shards`` does.

    Merging what was sharded from a file of the format's own writer gives that file again, byte for byte.
    """
    return plan_shards(source, WHOLE, variant=variant, components=components)
