"""``shardtool inspect``: what is in a checkpoint, a component, a pipeline or an image."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from shardtool.checkpoint.contents import Contents, survey
from shardtool.checkpoint.foreign import is_image
from shardtool.errors import InputError, Problem
from shardtool.events import Listener, Note
from shardtool.obtain import look_into
from shardtool.source import HubSource, LocalSource, parse_source

from .completion import complete_source
from .inspect_data import Shown, SortKey, contents_data
from .inspect_image import Image, read_image
from .inspect_side import side_by_side
from .inspect_view import contents_view
from .options import SOURCE_FORMS, OfflineOpt, RevisionOpt, SubfolderOpt, VariantOpt
from .output import Output
from .progress import progress

if TYPE_CHECKING:
    from rich.console import RenderableType


def inspect(
    out: Output,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help=f"What to look into: {SOURCE_FORMS}; or an image.",
            autocompletion=complete_source,
        ),
    ],
    *,
    depth: Annotated[int, typer.Option("--depth", min=0, help="Levels of the module tree; 0 leaves it out.")] = 2,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    name_filter: Annotated[
        list[str] | None,
        typer.Option(
            "--filter", metavar="GLOB", help="List the tensors of such a name, as in '*.attn1.*'; repeatable."
        ),
    ] = None,
    sort: Annotated[SortKey, typer.Option("--sort", help="How the tensors are listed.")] = SortKey.NAME,
    metadata: Annotated[bool, typer.Option("--metadata", help="Show the metadata of the files and the index.")] = False,
    variant: VariantOpt = None,
    revision: RevisionOpt = None,
    subfolder: SubfolderOpt = None,
    offline: OfflineOpt = False,
) -> None:
    """Show what is in a checkpoint, a pipeline or an image.

    Only headers are read, never a weight; those of a source on the Hub by range requests. Several sources stand side
    by side. Of an image, the settings that it was generated with are shown, with --verbose every detail.

    \b
    Examples:
      shardtool inspect demo
      shardtool inspect unet --depth 4
      shardtool inspect unet --filter '*.attn1.to_q.*' --sort size
      shardtool inspect sdxl --variant fp16
      shardtool inspect a.safetensors b.safetensors
      shardtool inspect ORG/NAME:unet --json
      shardtool inspect dog.png
    """
    shown = Shown(depth, tensors or bool(name_filter), tuple(name_filter or ()), sort, metadata, out.verbose)
    found: list[tuple[str, Contents | Image]] = []
    with progress(out) as on_event:
        for text in sources:
            named = parse_source(text, revision=revision, subfolder=subfolder)
            found.append((text, _look(named, variant, offline=offline, on_event=on_event)))
    for problem in _problems(found, "warning"):
        out.note(Note(problem.code, problem.message, warning=True))
    errors = _problems(found, "error")
    error = InputError.of_all(errors) if errors else None
    data = [item.data(text) if isinstance(item, Image) else contents_data(text, item, shown) for text, item in found]
    out.result({"sources": data}, *(() if out.json else _views(found, shown)), error=error)
    if error:
        raise typer.Exit(error.exit_code)


def _look(
    named: LocalSource | HubSource, variant: str | None, *, offline: bool, on_event: Listener
) -> Contents | Image:
    if isinstance(named, LocalSource) and is_image(named.path):
        return read_image(named.path)
    return look_into(named, partial(survey, variant=variant), variant=variant, offline=offline, on_event=on_event)


def _views(found: list[tuple[str, Contents | Image]], shown: Shown) -> Iterator[RenderableType]:
    """Images one after the other; one source in full, several side by side."""
    contents = [(text, item) for text, item in found if isinstance(item, Contents)]
    for text, item in found:
        if isinstance(item, Image):
            yield from item.view(text, details=shown.details)
    if len(contents) > 1:
        yield side_by_side(contents)
    if len(contents) == 1 or shown.lists:
        for text, item in contents:
            yield from contents_view(text, item, shown)


def _problems(found: list[tuple[str, Contents | Image]], severity: str) -> list[Problem]:
    contents = [item for _, item in found if isinstance(item, Contents)]
    return [problem for item in contents for problem in item.problems if problem.severity == severity]
