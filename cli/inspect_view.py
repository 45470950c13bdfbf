"""``inspect`` for people: a heading, the shards, the module tree, and a table of components for a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from shardtool.checkpoint.contents import Contents, Part
from shardtool.checkpoint.dtypes import DTYPES
from shardtool.checkpoint.inventory import Checkpoint
from shardtool.checkpoint.summary import Summary, summarise
from shardtool.checkpoint.tree import Module, module_tree, rows
from shardtool.sizes import format_count, format_size

from .inspect_data import Shown
from .inspect_lists import metadata_table, short_name, tensor_lines, variants_view
from .output import show, table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

BAR = 10
"""Columns of the bar that shows how full a shard is."""


def contents_view(text: str, contents: Contents, shown: Shown) -> Iterator[RenderableType]:
    """What is printed for one source."""
    if contents.kind == "pipeline":
        yield from _pipeline(text, contents)
    else:
        yield from _checkpoint(text, contents, shown)
    for part in contents.parts:
        if part.checkpoint is None:
            continue
        if shown.tensors:
            yield from _titled(part, contents, "tensors")
            yield tensor_lines(part.checkpoint, shown)
        if shown.metadata:
            yield from _titled(part, contents, "metadata")
            yield metadata_table(part.checkpoint)


def _pipeline(text: str, contents: Contents) -> Iterator[RenderableType]:
    if not contents.parts:
        yield _heading("pipeline", text, "damaged")
        return
    yield _heading(contents.class_name or "pipeline", text, _totals(contents))
    yield from ("", _components(contents))
    yield from ("", _memory([summarise(part.checkpoint, part.quantised) for part in contents.parts if part.checkpoint]))
    yield from variants_view(contents)


def _checkpoint(text: str, contents: Contents, shown: Shown) -> Iterator[RenderableType]:
    part = contents.parts[0]
    if part.checkpoint is None:
        yield _heading(contents.class_name or contents.kind, text, damage(part))
        if len(part.files) > 1:
            yield from ("", _damaged_files(part))
        return
    summary = summarise(part.checkpoint, part.quantised)
    yield _heading(contents.class_name or "weights without a config.json", text, _figures(summary))
    if len(summary.files) > 1:
        yield from ("", _files(summary))
    if shown.depth and not shown.tensors:
        yield from ("", _tree(part.checkpoint, shown.depth))
    yield from ("", _memory([summary]))
    yield from variants_view(contents)


def damage(part: Part) -> str:
    """``damaged``, and how many of the files can be read where some can."""
    readable = len(part.readable)
    return f"damaged, {readable} of {len(part.files)} files readable" if readable else "damaged"


def _damaged_files(part: Part) -> Table:
    """The files of weights that do not make up a checkpoint, those that are missing or cannot be read too."""
    made = table("file", "tensors", "size", right=("tensors", "size"))
    for name, file in part.files.items():
        figures = (f"{len(file.header.tensors):,}", format_size(file.size)) if file else ("damaged", "")
        made.add_row(show(name), *figures)
    return made


def _titled(part: Part, contents: Contents, what: str) -> list[str]:
    """The lines above a list; a pipeline has several."""
    return ["", f"{what} of {show(part.name)}"] if contents.kind == "pipeline" else [""]


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
    parts = [
        f"{format_count(summary.parameters)} parameters",
        f"{format_count(summary.tensors)} tensors",
        format_size(summary.nbytes),
        dtype_shares(summary),
        file_count(summary),
    ]
    parts += [f"variant {show(summary.variant)}"] if summary.variant else []
    return " · ".join(parts + ([f"quantised with {show(summary.quantised)}"] if summary.quantised else []))


def dtype_shares(summary: Summary) -> str:
    """``F16``, or ``F16 99 %, F32 1 %`` by bytes."""
    if len(summary.dtypes) < 2:
        return next(iter(summary.dtypes), "no data")
    whole = max(summary.nbytes, 1)
    return ", ".join(f"{dtype} {_percent(size / whole)}" for dtype, size in summary.dtypes.items())


def file_count(summary: Summary) -> str:
    """``1 file`` or ``6 shards``."""
    count = len(summary.files)
    return "1 file" if count == 1 and summary.index is None else f"{count} shard{'s' if count > 1 else ''}"


def _percent(part: float) -> str:
    return "< 1 %" if 0 < part < 0.01 else f"{part:.0%}".replace("%", " %")


def _files(summary: Summary) -> Table:
    made = table("shard", "tensors", "size", "of the largest", right=("tensors", "size"))
    for file in summary.files:
        full = round(file.fill * BAR)
        bar = "█" * full + "░" * (BAR - full)
        made.add_row(
            show(short_name(file.name, summary.stem)),
            f"{file.tensors:,}",
            format_size(file.nbytes),
            f"{bar} {_percent(file.fill):>5}",
        )
    return made


def _tree(checkpoint: Checkpoint, depth: int) -> Table:
    from rich.text import Text

    root = module_tree((stored.info for stored in checkpoint.tensors.values()), depth)
    made = table("module", "parameters", "", "size", "dtype", right=("parameters", "", "size"))
    open_levels: list[bool] = []
    for level, last, module in rows(root):
        open_levels[level:] = [not last]
        name = Text()
        name.append(_branch(open_levels), "dim")
        if module.name:
            name.append(show(module.name), "" if level else "bold")
        else:
            name.append("(in no module)", "dim")
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

    sizes = {dtype: sum(summary.memory[dtype] for summary in summaries) for dtype in DTYPES}
    line = Text()
    line.append("memory for the weights: ", "dim")
    line.append(" · ".join(f"{dtype} {format_size(size)}" for dtype, size in sizes.items()))
    return line


def _components(contents: Contents) -> Table:
    made = table("component", "class", "files", "params", "size", "dtype", right=("params", "size"))
    for part in contents.parts:
        name, class_name = show(part.name), show(part.class_name or "?")
        if part.checkpoint is None:
            made.add_row(name, class_name, damage(part) if part.errors else "–", "", "", "")
            continue
        summary = summarise(part.checkpoint, part.quantised)
        packed = [f"({show(summary.quantised)})"] if summary.quantised else []
        figures = (format_count(summary.parameters), format_size(summary.nbytes), " ".join([*summary.dtypes, *packed]))
        made.add_row(name, class_name, file_count(summary), *figures)
    return made
