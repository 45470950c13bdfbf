"""``shardtool diff``: which tensors of two sources differ, and by how much. Exit code 1 where any does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardtool.checkpoint.compare import form
from shardtool.checkpoint.contents import survey
from shardtool.obtain import local_path
from shardtool.source import parse_source

from .completion import complete_source
from .options import OfflineOpt, VariantOpt
from .output import Output, show, table
from .progress import progress

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shardtool.difference import Change, Difference

SHOWN = 20
"""Tensors of a kind that are printed; --verbose and --json give all."""


def diff(
    out: Output,
    a: Annotated[
        str,
        typer.Argument(
            metavar="A", help="A checkpoint or pipeline; sources as everywhere.", autocompletion=complete_source
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="What to compare it with.", autocompletion=complete_source)],
    *,
    variant: VariantOpt = None,
    offline: OfflineOpt = False,
) -> None:
    """Compare two checkpoints tensor by tensor, in whatever files.

    Exit code 1 means that they differ: in names, shapes, dtypes or values.

    \b
    Examples:
      shardtool diff unet unet-finetuned
      shardtool diff sdxl build/sdxl-sharded
      shardtool diff a.safetensors b.safetensors --json
    """
    from shardtool.difference import difference

    with progress(out) as on_event:
        one, other = (
            survey(local_path(named, variant=variant, or_default=True, offline=offline, on_event=on_event), variant)
            for named in (parse_source(a), parse_source(b))
        )
        found = difference(one, other, on_event)
    out.result(_data(a, b, found), *_view(a, b, found, None if out.verbose else SHOWN))
    if not found.is_empty:
        raise typer.Exit(1)


def _data(a: str, b: str, found: Difference) -> dict[str, Any]:
    return {
        "a": a,
        "b": b,
        "equal": found.is_empty,
        "same": found.same,
        "only_a": [_named(change) for change in found.of_kind("only_a")],
        "only_b": [_named(change) for change in found.of_kind("only_b")],
        "form": [
            {**_named(change), "a": _form(change, "a"), "b": _form(change, "b")} for change in found.of_kind("form")
        ],
        "values": [{**_named(change), **_distance(change)} for change in found.of_kind("values")],
        "components_only_a": list(found.only_a),
        "components_only_b": list(found.only_b),
    }


def _named(change: Change) -> dict[str, Any]:
    return {"component": change.component or None, "tensor": change.pair.name}


def _form(change: Change, side: str) -> dict[str, Any] | None:
    stored = change.pair.a if side == "a" else change.pair.b
    return {"dtype": stored.info.dtype, "shape": list(stored.info.shape)} if stored else None


def _distance(change: Change) -> dict[str, Any]:
    apart = change.distance
    if apart is None:
        return {}
    return {
        "max_abs": apart.largest,
        "mean_abs": apart.mean,
        "changed": apart.changed,
        "elements": change.pair.one.info.elements,
        "not_finite": apart.not_finite,
    }


def _view(a: str, b: str, found: Difference, limit: int | None) -> Iterator[RenderableType]:
    for text, names in ((a, found.only_a), (b, found.only_b)):
        for name in names:
            yield f"component {show(name)} is only in {show(text)}"
    for kind, heading in (("only_a", f"only in {a}"), ("only_b", f"only in {b}")):
        if chosen := found.of_kind(kind):
            yield from _table(show(heading), chosen, limit)
    if chosen := found.of_kind("form"):
        yield from _table("other shape or dtype", chosen, limit)
    if chosen := found.of_kind("values"):
        largest = sorted(chosen, key=lambda change: -((change.distance and change.distance.largest) or 0))
        yield from _table("other values", tuple(largest), limit)
    yield _counts(found)


def _table(heading: str, changes: tuple[Change, ...], limit: int | None) -> Iterator[RenderableType]:
    kind = changes[0].pair.kind
    columns = {"form": ("a", "b"), "values": ("largest", "mean", "changed")}.get(kind, ("form",))
    made = table(heading, *columns, right=("largest", "mean", "changed"))
    for change in changes[:limit]:
        label = f"{change.component}: {change.pair.name}" if change.component else change.pair.name
        made.add_row(show(label), *_cells(change))
    yield made
    if limit is not None and len(changes) > limit:
        yield f"… and {len(changes) - limit:,} more (all of them with --verbose or --json)"
    yield ""


def _cells(change: Change) -> tuple[str, ...]:
    pair, apart = change.pair, change.distance
    if pair.kind == "form" and pair.a and pair.b:
        return form(pair.a), form(pair.b)
    if apart is None:
        return (form(pair.one),)
    changed = f"{apart.changed:,} of {pair.one.info.elements:,}"
    if apart.not_finite:
        changed += f", {apart.not_finite:,} not finite"
    return _number(apart.largest), _number(apart.mean), changed


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _counts(found: Difference) -> str:
    counts = [f"{found.same:,} the same"]
    for kind, what in (
        ("values", "other values"),
        ("form", "other form"),
        ("only_a", "only in A"),
        ("only_b", "only in B"),
    ):
        if number := len(found.of_kind(kind)):
            counts.append(f"{number:,} {what}")
    return ("equal: " if found.is_empty else "different: ") + ", ".join(counts)
