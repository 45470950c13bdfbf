"""``shardtool shard``."""

from __future__ import annotations

from typing import Annotated

import typer

from shardtool.checkpoint.plan import DEFAULT_LIMIT, Split
from shardtool.checkpoint.shard import plan_shards
from shardtool.checkpoint.write import write_job
from shardtool.sizes import parse_size
from shardtool.source import local_path, parse_source

from .options import (
    DryRunOpt,
    OfflineOpt,
    OutputOpt,
    OverwriteOpt,
    RevisionOpt,
    SourceArg,
    SubfolderOpt,
    VariantOpt,
)
from .output import Output
from .progress import progress
from .writing import ComponentsOpt, NoFsyncOpt, job_data, job_table, target_for


def shard(
    out: Output,
    source: SourceArg,
    *,
    output: OutputOpt = None,
    max_size: Annotated[
        str | None,
        typer.Option("--max-size", metavar="SIZE", help="Bytes a file may have, header included: 2GB, 2GiB.  [5GB]"),
    ] = None,
    component: ComponentsOpt = None,
    variant: VariantOpt = None,
    revision: RevisionOpt = None,
    subfolder: SubfolderOpt = None,
    offline: OfflineOpt = False,
    no_fsync: NoFsyncOpt = False,
    dry_run: DryRunOpt = False,
    overwrite: OverwriteOpt = False,
) -> None:
    """Write the same tensors in files no larger than asked, with an index.

    \b
    Examples:
      shardtool shard sdxl/unet --max-size 2GB
      shardtool shard demo --max-size 1MB -o build/demo-sharded
    """
    limit = DEFAULT_LIMIT if max_size is None else parse_size(max_size, what="--max-size")
    target = target_for(output, source, "sharded")
    with progress(out) as on_event:
        path = local_path(
            parse_source(source, revision=revision, subfolder=subfolder),
            variant=variant,
            components=component,
            offline=offline,
            on_event=on_event,
        )
        job = plan_shards(path, Split(limit), variant=variant, components=component or ())
        out.say(f"limit: {limit:,} bytes a file, header included")
        written = (
            None if dry_run else write_job(job, target, overwrite=overwrite, durable=not no_fsync, on_event=on_event)
        )
    out.result({**job_data(job, target, written), "limit": limit}, job_table(job))
