"""``shardtool merge``: shards back into one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shardtool.checkpoint.plan import WHOLE
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import Manner
from shardtool.source import parse_source

from .options import (
    DryRunOpt,
    OfflineOpt,
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
    brought_here,
    carry_out,
    pickle_reader,
    show_outcome,
    target_for,
    what_of,
)


def merge(
    out: Output,
    source: SourceArg,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="A folder, or X.safetensors.  [SOURCE-merged]"),
    ] = None,
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

    Every tensor comes back byte for byte, and so does a whole file that diffusers wrote. The tensors keep the names
    that diffusers and transformers use; ComfyUI and A1111 expect others.

    \b
    Examples:
      shardtool merge sdxl-sharded/unet -o unet.safetensors
      shardtool merge build/demo-sharded -o build/demo-merged
    """
    target = target_for(output, source, "merged")
    pickles = pickle_reader() if allow_pickle else None
    found = parse_source(source, revision=revision, subfolder=subfolder)
    choice, wanted = what_of(found, variant, component, pickles)
    with (
        progress(out) as on_event,
        brought_here(found, wanted, dry_run=dry_run, offline=offline, on_event=on_event) as here,
    ):
        job = plan_job(here.path, choice, Shape(WHOLE))
        manner = Manner(overwrite, not no_fsync, digests, verify)
        outcome = carry_out(out, job, target, manner, dry_run=dry_run, download=here.download, on_event=on_event)
    for note in pickles.notes if pickles else ():
        out.note(note)
    show_outcome(out, outcome)
