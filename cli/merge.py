"""``shardtool merge``: shards back into one file."""

from __future__ import annotations

from shardtool.checkpoint.plan import WHOLE
from shardtool.checkpoint.selection import DEFAULT_VARIANT, Choice
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import Manner
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
from .writing import (
    AllowPickleOpt,
    ComponentsOpt,
    DigestsOpt,
    NoFsyncOpt,
    VerifyOpt,
    carry_out,
    job_table,
    pickle_reader,
    target_for,
)


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
    allow_pickle: AllowPickleOpt = False,
    digests: DigestsOpt = False,
    verify: VerifyOpt = False,
    no_fsync: NoFsyncOpt = False,
    dry_run: DryRunOpt = False,
    overwrite: OverwriteOpt = False,
) -> None:
    """Write shards back into one file for each checkpoint.

    What shardtool sharded comes back byte for byte. The tensors keep their diffusers or transformers names. If the
    output ends in .safetensors, it is the one file; otherwise a folder.

    \b
    Examples:
      shardtool merge sdxl-sharded/unet -o unet.safetensors
      shardtool merge build/demo-sharded -o build/demo-merged
    """
    target = target_for(output, source, "merged")
    pickles = pickle_reader() if allow_pickle else None
    with progress(out) as on_event:
        path = local_path(
            parse_source(source, revision=revision, subfolder=subfolder),
            variant=None if variant == DEFAULT_VARIANT else variant,
            components=component,
            or_default=True,
            offline=offline,
            on_event=on_event,
        )
        job = plan_job(path, Choice(variant, components=component or (), read_pickle=pickles), Shape(WHOLE))
        manner = Manner(overwrite, not no_fsync, digests, verify)
        data = carry_out(out, job, target, manner, dry_run=dry_run, on_event=on_event)
    for note in pickles.notes if pickles else ():
        out.note(note)
    out.result(data, job_table(job))
