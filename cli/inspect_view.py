"""``inspect`` for people: a heading, the shards, the module tree, and a table of components for a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from shardtool.checkpoint.contents import Contents, Part
from shardtool.checkpoint.summary import MEMORY_DTYPES, Summary, summarise
from shardtool.checkpoint.tree import Module, module_tree, rows
from shardtool.sizes import format_count, format_size

from .output import show, table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

BAR = 10
"""Columns of the bar that shows how full a shard is."""


def contents_view(text: str, contents: Contents, depth: int) -> Iterator[RenderableType]:
    """What is printed for one source."""
    if contents.kind == "pipeline":
        yield _heading(contents.class_name or "pipeline", text, _totals(contents))
        yield from ("", _components(contents))
        yield from ("", _memory([summarise(part.checkpoint) for part in contents.parts if part.checkpoint]))
        return
    part = contents.parts[0]
    if part.checkpoint is None:
        yield _heading(contents.class_name or contents.kind, text, "damaged")
        return
    summary = summarise(part.checkpoint)
    yield _heading(contents.class_name or "weights without a config.json", text, _figures(summary))
    if len(summary.files) > 1:
        yield from ("", _files(summary))
    if depth:
        yield from ("", _tree(part, depth))
    yield from ("", _memory([summary]))


def _heading(title: str, source: str, figures: str) -> Text:
    from rich.text import Text

    heading = Text(no_wrap=False)
    heading.append(show(title), "bold cyan")
    heading.append(f"  {show(source)}\n", "dim")
    heading.append(figures)
    return heading


def _totals(contents: Contents) -> str:
    checkpoints = [part.checkpoint for part in contents.parts if part.checkpoint]
    parameters = sum(checkpoint.parameters for checkpoint in checkpoints)
    size = sum(checkpoint.nbytes for checkpoint in checkpoints)
    return f"{format_count(parameters)} parameters · {format_size(size)} · {len(contents.parts)} components"


def _figures(summary: Summary) -> str:
    count = len(summary.files)
    files = "1 file" if count == 1 else f"{count} shards"
    parts = [
        f"{format_count(summary.parameters)} parameters",
        f"{format_count(summary.tensors)} tensors",
        format_size(summary.nbytes),
        _dtypes(summary),
        files,
    ]
    return " · ".join(parts + ([f"variant {show(summary.variant)}"] if summary.variant else []))


def _dtypes(summary: Summary) -> str:
    """``F16``, or ``F16 99 %, F32 1 %`` by bytes."""
    if len(summary.dtypes) < 2:
        return next(iter(summary.dtypes), "no data")
    whole = max(summary.nbytes, 1)
    return ", ".join(f"{dtype} {_percent(size / whole)}" for dtype, size in summary.dtypes.items())


def _percent(part: float) -> str:
    return "< 1 %" if 0 < part < 0.01 else f"{part:.0%}".replace("%", " %")


def _files(summary: Summary) -> Table:
    made = table("shard", "tensors", "size", "fill", right=("tensors", "size"))
    for file in summary.files:
        full = round(file.fill * BAR)
        bar = "█" * full + "░" * (BAR - full)
        made.add_row(
            show(_short(file.name, summary)),
            f"{file.tensors:,}",
            format_size(file.nbytes),
            f"{bar} {_percent(file.fill):>5}",
        )
    return made


def _short(filename: str, summary: Summary) -> str:
    """The name of a shard without what all the shards of a regular split share."""
    bare = filename.removeprefix(f"{summary.stem}-").removesuffix(".safetensors")
    return f"…{bare}" if filename == f"{summary.stem}-{bare}.safetensors" else filename


def _tree(part: Part, depth: int) -> Table:
    from rich.text import Text

    assert part.checkpoint is not None  # noqa: S101 (the caller looked)
    root = module_tree((stored.info for stored in part.checkpoint.tensors.values()), depth)
    made = table("module", "parameters", "", "size", "dtype", right=("parameters", "", "size"))
    open_levels: list[bool] = []
    for level, last, module in rows(root):
        open_levels[level:] = [not last]
        name = Text()
        name.append(_branch(open_levels), "dim")
        name.append(show(module.name), "" if level else "bold")
        if module.alike > 1:
            name.append(f"  {module.alike} alike", "dim")
        made.add_row(name, *_module_figures(module, root))
    return made


def _branch(open_levels: list[bool]) -> str:
    """The lines of a tree before a name; the top level has none, so that it stands out."""
    if len(open_levels) == 1:
        return ""
    return "".join("│  " if still else "   " for still in open_levels[1:-1]) + ("├─ " if open_levels[-1] else "└─ ")


def _module_figures(module: Module, root: Module) -> tuple[str, str, str, str]:
    share = _percent(module.parameters / max(root.parameters, 1))
    return format_count(module.parameters), share, format_size(module.nbytes), " ".join(sorted(module.dtypes))


def _memory(summaries: Sequence[Summary]) -> Text:
    from rich.text import Text

    sizes = {dtype: sum(summary.memory[dtype] for summary in summaries) for dtype in MEMORY_DTYPES}
    line = Text()
    line.append("memory for the weights: ", "dim")
    line.append(" · ".join(f"{dtype} {format_size(size)}" for dtype, size in sizes.items()))
    return line


def _components(contents: Contents) -> Table:
    made = table("component", "class", "files", "params", "size", "dtype", right=("params", "size"))
    for part in contents.parts:
        name, class_name = show(part.name), show(part.class_name or "?")
        if part.checkpoint is None:
            made.add_row(name, class_name, "damaged" if part.errors else "–", "", "", "")
            continue
        summary = summarise(part.checkpoint)
        count = len(summary.files)
        files = "1 file" if count == 1 else f"{count} shards"
        figures = (format_count(summary.parameters), format_size(summary.nbytes), " ".join(summary.dtypes))
        made.add_row(name, class_name, files, *figures)
    return made
