"""``shardtool verify``: is a checkpoint whole? Exit code 1 where it is not."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from shardtool.checkpoint.contents import survey
from shardtool.obtain import local_path, look_into
from shardtool.source import parse_source
from shardtool.verification import verify_against, verify_headers, verify_values

from .completion import complete_source
from .options import OfflineOpt, RevisionOpt, SourceArg, SubfolderOpt, VariantOpt
from .output import Output
from .progress import progress
from .verify_view import Against, verification_data, verification_view


def verify(
    out: Output,
    source: SourceArg,
    *,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="SOURCE",
            help="Another source with the same tensors, bit for bit.",
            autocompletion=complete_source,
        ),
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read the data too: NaN, infinities, recorded digests.")] = False,
    structure: Annotated[
        bool, typer.Option("--structure", help="Files, headers and indexes only, not the fit to the model's class.")
    ] = False,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Threads that read, for --deep.")] = None,
    variant: VariantOpt = None,
    revision: RevisionOpt = None,
    subfolder: SubfolderOpt = None,
    offline: OfflineOpt = False,
) -> None:
    """Check that a checkpoint is whole and fits its config.json.

    Everything that is wrong is listed, not only the first fault; then the exit code is 1. Without --variant,
    the weights of every variant are checked. Headers of a source on the Hub come by range requests; --deep and
    --against download it.

    \b
    Examples:
      shardtool verify sdxl/unet
      shardtool verify demo --deep
      shardtool verify build/unet-sharded --against sdxl/unet
      shardtool verify ORG/NAME:unet --structure --json
    """
    named = parse_source(source, revision=revision, subfolder=subfolder)
    compared = None
    with progress(out) as on_event:
        look = partial(verify_headers, variant=variant, fit=not structure)
        if deep or against is not None:
            path = local_path(named, variant=variant, or_default=True, offline=offline, on_event=on_event)
            found = look(path)
        else:
            found = look_into(named, look, variant=variant, offline=offline, on_event=on_event)
        if deep:
            found = verify_values(found, workers=workers, on_event=on_event)
        if against is not None and not found.errors:
            named = parse_source(against)
            other = local_path(named, variant=variant, or_default=True, offline=offline, on_event=on_event)
            same, problems = verify_against(survey(path, variant), survey(other, variant), on_event)
            compared = Against(against, same, problems)
    views = () if out.json else verification_view(source, found, compared, all=out.verbose)
    out.result(verification_data(source, found, compared), *views)
    if found.errors or (compared and compared.problems):
        raise typer.Exit(1)
