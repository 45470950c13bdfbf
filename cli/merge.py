"""``shardtool merge``."""

from __future__ import annotations

from shardtool.checkpoint.merge import plan_merge
from shardtool.checkpoint.write import write_job
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


def merge(
    out: Output,
    source: SourceArg,
    *,
    output: OutputOpt = None,
    component: ComponentsOpt = None,
    variant: VariantOpt = None,
    revision: RevisionOpt = None,
    subfolder: SubfolderOpt = None,
    offline: OfflineOpt = False,
    no_fsync: NoFsyncOpt = False,
    dry_run: DryRunOpt = False,
    overwrite: OverwriteOpt = False,
) -> None:
    """Write shards back into one file for each checkpoint.

    \b
    Examples:
      shardtool merge sdxl-sharded/unet -o unet.safetensors
      shardtool merge build/demo-sharded -o build/demo-merged
    """
    target = target_for(output, source, "merged")
    with progress(out) as on_event:
        path = local_path(
            parse_source(source, revision=revision, subfolder=subfolder),
            variant=variant,
            components=component,
            offline=offline,
            on_event=on_event,
        )
        job = plan_merge(path, variant=variant, components=component or ())
        written = (
            None if dry_run else write_job(job, target, overwrite=overwrite, durable=not no_fsync, on_event=on_event)
        )
    out.result(job_data(job, target, written), job_table(job))
