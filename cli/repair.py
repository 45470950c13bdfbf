"""``shardtool repair``: rebuild an index from the shards' headers, leave stale files out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from shardtool.checkpoint.repair_plan import Repair, plan_source
from shardtool.checkpoint.repair_run import repair_in_place, repair_into
from shardtool.errors import UsageError
from shardtool.obtain import local_path
from shardtool.source import HubSource, parse_source

from .options import (
    DryRunOpt,
    OfflineOpt,
    OverwriteOpt,
    RevisionOpt,
    SourceArg,
    SubfolderOpt,
    VariantOpt,
)
from .output import Output, show
from .progress import progress
from .writing import target_for

if TYPE_CHECKING:
    from rich.console import RenderableType

Repairs: TypeAlias = Mapping[PurePath, Sequence[Repair]]


def repair(
    out: Output,
    source: SourceArg,
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PATH", help="A folder.  [SOURCE-repaired]")
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Repair SOURCE itself; what is replaced goes to SOURCE.before-repair.")
    ] = False,
    variant: VariantOpt = None,
    revision: RevisionOpt = None,
    subfolder: SubfolderOpt = None,
    offline: OfflineOpt = False,
    dry_run: DryRunOpt = False,
    overwrite: OverwriteOpt = False,
) -> None:
    """Make a checkpoint whole from its own shards.

    The index is rebuilt from their headers; stale shards and indexes are left out. Nothing is guessed:
    where a tensor is missing, or two files contradict each other, it is refused with the reason.

    \b
    Examples:
      shardtool repair unet
      shardtool repair unet --in-place
      shardtool repair sdxl --dry-run
    """
    if in_place and output is not None:
        raise UsageError("--in-place and -o contradict each other", code="contradiction", hint="leave one of them out")
    named = parse_source(source, revision=revision, subfolder=subfolder)
    if in_place and isinstance(named, HubSource):
        hint = "with -o OUT; the Hub's cache is shared and stays as it was downloaded"
        raise UsageError(f"{source}: is on the Hub, so say where to write", code="output_missing", hint=hint)
    target = None if in_place or dry_run else target_for(output, source, "repaired")
    with progress(out) as on_event:
        path = local_path(named, variant=variant, offline=offline, on_event=on_event)
    repairs = plan_source(path, variant)
    needed = any(repair.is_needed for found in repairs.values() for repair in found)
    backups: list[Path] = []
    if target is not None and (needed or output is not None):
        repair_into(path, target, repairs, overwrite=overwrite)
    elif in_place and needed and not dry_run:
        made = [repair_in_place(path / place, found) for place, found in repairs.items() if _any(found)]
        backups, target = [backup for backup in made if backup is not None], path
    else:
        target = None
    view = [show(target)] if out.quiet and target is not None else _view(repairs, target, backups)
    out.result(_data(source, repairs, target, backups), *view)


def _any(found: Sequence[Repair]) -> bool:
    return any(repair.is_needed for repair in found)


def _data(source: str, repairs: Repairs, target: Path | None, backups: Sequence[Path]) -> dict[str, Any]:
    return {
        "source": source,
        "output": None if target is None else str(target),
        "backups": [str(backup) for backup in backups],
        "repairs": [
            {
                "folder": place.as_posix(),
                "variant": repair.name.variant,
                "kept": list(repair.keep),
                "left_out": list(repair.drop),
                "index": repair.index_name,
                "done": list(repair.done),
            }
            for place, found in repairs.items()
            for repair in found
        ],
    }


def _view(repairs: Repairs, target: Path | None, backups: Sequence[Path]) -> Iterator[RenderableType]:
    done = [(place, line) for place, found in repairs.items() for repair in found for line in repair.done]
    if not done:
        yield "nothing to repair: headers, index and files agree"
        if target is not None:
            yield f"copied: {show(target)}"
        return
    for place, line in done:
        yield show(f"{place.as_posix()}: {line}" if place.parts else line)
    yield "nothing written (--dry-run)" if target is None else f"repaired: {show(target)}"
    for backup in backups:
        yield f"what was replaced is in {show(backup)}"
