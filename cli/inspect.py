"""``shardtool inspect``: what is in a checkpoint, a component or a pipeline."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from shardtool.checkpoint.contents import Contents, survey
from shardtool.errors import InputError
from shardtool.source import look_into, parse_source

from .completion import complete_source
from .inspect_data import contents_data
from .inspect_view import contents_view
from .options import SOURCE_FORMS, OfflineOpt, RevisionOpt, SubfolderOpt, VariantOpt
from .output import Output
from .progress import progress


def inspect(
    out: Output,
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help=f"What to look into: {SOURCE_FORMS}.", autocompletion=complete_source),
    ],
    *,
    depth: Annotated[int, typer.Option("--depth", min=0, help="Levels of the module tree; 0 leaves it out.")] = 2,
    variant: VariantOpt = None,
    revision: RevisionOpt = None,
    subfolder: SubfolderOpt = None,
    offline: OfflineOpt = False,
) -> None:
    """Show what is in a checkpoint: class, parameters, dtypes, shards, modules, memory.

    Only headers are read, never a weight; those of a source on the Hub by range requests.

    \b
    Examples:
      shardtool inspect demo
      shardtool inspect unet --depth 4
      shardtool inspect model.safetensors
      shardtool inspect ORG/NAME:unet --json
    """
    found = []
    with progress(out) as on_event:
        for text in sources:
            source = parse_source(text, revision=revision, subfolder=subfolder)
            look = partial(survey, variant=variant)
            found.append((text, look_into(source, look, variant=variant, offline=offline, on_event=on_event)))
    error = _damage([contents for _, contents in found])
    data = {"sources": [contents_data(text, contents, depth) for text, contents in found]}
    views = [view for text, contents in found for view in contents_view(text, contents, depth)]
    out.result(data, *views, error=error)
    if error:
        raise typer.Exit(error.exit_code)


def _damage(found: list[Contents]) -> InputError | None:
    errors = [problem for contents in found for problem in contents.all_problems if problem.severity == "error"]
    return InputError.of_all(errors) if errors else None
