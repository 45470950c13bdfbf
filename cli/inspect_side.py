"""``inspect`` of several sources: the same facts in one row, a column for each source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shardtool.checkpoint.contents import Contents, Part
from shardtool.checkpoint.dtypes import DTYPES
from shardtool.checkpoint.summary import Summary, summarise
from shardtool.sizes import format_count, format_size

from .inspect_view import dtype_shares, file_count
from .output import show, table

if TYPE_CHECKING:
    from rich.table import Table

_FACTS: dict[str, Callable[[Summary], str]] = {
    "parameters": lambda summary: format_count(summary.parameters),
    "tensors": lambda summary: f"{summary.tensors:,}",
    "bytes": lambda summary: format_size(summary.nbytes),
    "dtypes": dtype_shares,
    "files": file_count,
    "largest file": lambda summary: format_size(max(file.nbytes for file in summary.files)),
    "variant": lambda summary: show(summary.variant or "–"),
}


def side_by_side(sources: Sequence[tuple[str, Contents]]) -> Table:
    """A table of the sources: the figures of checkpoints, a row for each component of pipelines."""
    made = table("", *(show(text) for text, _ in sources))
    made.add_row("class", *(show(contents.class_name or "–") for _, contents in sources))
    if all(contents.kind != "pipeline" for _, contents in sources):
        _checkpoints(made, [contents.parts[0] for _, contents in sources])
    else:
        _components(made, [contents for _, contents in sources])
    return made


def _checkpoints(made: Table, parts: Sequence[Part]) -> None:
    summaries = [summarise(part.checkpoint, part.quantised) if part.checkpoint else None for part in parts]
    for label, fact in _FACTS.items():
        made.add_row(label, *("damaged" if summary is None else fact(summary) for summary in summaries))
    for dtype in DTYPES:
        made.add_row(f"as {dtype}", *(format_size(summary.memory[dtype]) if summary else "" for summary in summaries))
    first = set(parts[0].checkpoint.tensors) if parts[0].checkpoint else set()
    names = [set(part.checkpoint.tensors) if part.checkpoint else set() for part in parts[1:]]
    made.add_row("names in common", "–", *(f"{len(first & other):,}" for other in names))


def _components(made: Table, sources: Sequence[Contents]) -> None:
    names = dict.fromkeys(
        part.name if contents.kind == "pipeline" else "" for contents in sources for part in contents.parts
    )
    for name in names:
        made.add_row(show(name) or "weights", *(_cell(contents, name) for contents in sources))


def _cell(contents: Contents, name: str) -> str:
    for part in contents.parts:
        if name == (part.name if contents.kind == "pipeline" else ""):
            if part.checkpoint is None:
                return "damaged" if part.errors else show(part.class_name or "–")
            summary = summarise(part.checkpoint, part.quantised)
            return f"{format_count(summary.parameters)} · {dtype_shares(summary)} · {file_count(summary)}"
    return "–"
