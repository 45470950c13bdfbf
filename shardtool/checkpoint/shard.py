"""``shard``: the same tensors in files no larger than asked."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from shardtool.checkpoint.job import Job, Output, index_metadata_of, items_of, metadata_of
from shardtool.checkpoint.plan import Split, plan_files
from shardtool.checkpoint.selection import Part, select


def plan_shards(
    source: Path,
    split: Split,
    *,
    variant: str | None = None,
    components: Collection[str] = (),
) -> Job:
    """Decide what sharding ``source`` writes; only headers and indexes are read.

    ``source`` is a file, a component or a pipeline. Raises ``InputError`` where it is damaged, and ``RefusedError``
    where ``split`` cannot be kept.
    """
    selection = select(source, variant=variant, components=components)
    return Job(source, tuple(_output(part, split) for part in selection.parts), selection.others)


def _output(part: Part, split: Split) -> Output:
    checkpoint = part.checkpoint
    files = plan_files(items_of(checkpoint), metadata_of(checkpoint), split)
    return Output(part, checkpoint.name, files, index_metadata_of(checkpoint))
