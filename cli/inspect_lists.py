"""``inspect``'s longer lists: tensors, metadata, and what each variant would load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shardtool.checkpoint.contents import Contents
from shardtool.checkpoint.inventory import Checkpoint
from shardtool.checkpoint.resolve import Resolution, mixture
from shardtool.sizes import format_size

from .inspect_data import Shown, listed_tensors
from .output import show, table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text


def tensor_lines(checkpoint: Checkpoint, shown: Shown) -> Text:
    """One line for each tensor, its name last, so that a long one moves nothing; the file where there are several.

    There may be tens of thousands: as a table they would take seconds to draw.
    """
    from rich.text import Text

    rows = [("dtype", "size", "shape", "file", "tensor")]
    for stored in listed_tensors(checkpoint, shown):
        info = stored.info
        shape = "×".join(map(str, info.shape)) or "scalar"
        file = show(short_name(stored.file.path.name, checkpoint.name.base))
        rows.append((info.dtype, format_size(info.nbytes), shape, file, show(info.name)))
    dtype, size, sides, shard = (max(len(row[column]) for row in rows) for column in range(4))
    lines = [
        f"{row[0]:{dtype}}  {row[1]:>{size}}  {row[2]:{sides}}  "
        + (f"{row[3]:{shard}}  " if len(checkpoint.files) > 1 else "")
        + row[4]
        for row in rows
    ]
    made = Text(lines[0], "bold", no_wrap=True, overflow="ignore")
    made.append("".join(f"\n{line}" for line in lines[1:]), "not bold")
    return made


def short_name(filename: str, stem: str) -> str:
    """The name of a shard without what all the shards of a regular split share: ``…00001-of-00003``."""
    bare = filename.removeprefix(f"{stem}-").removesuffix(".safetensors")
    return f"…{bare}" if filename == f"{stem}-{bare}.safetensors" else filename


def metadata_table(checkpoint: Checkpoint) -> Table:
    """What the index says of itself, and the files; where all files agree, their key stands there once."""
    made = table("key", "value", "where")
    if checkpoint.index:
        for key, value in checkpoint.index.metadata.items():
            made.add_row(show(key), show(value if isinstance(value, str) else json.dumps(value)), "index")
    said: dict[tuple[str, str], list[str]] = {}
    for file in checkpoint.files:
        for key, value in file.header.metadata.items():
            said.setdefault((key, value), []).append(file.path.name)
    for (key, value), names in said.items():
        where = "every file" if len(names) == len(checkpoint.files) > 1 else ", ".join(names)
        made.add_row(show(key), show(value), show(where))
    return made


def variants_view(contents: Contents) -> Iterator[RenderableType]:
    """What would be loaded, where there are several variants or one was asked for."""
    found = {part.name: part.resolution for part in contents.parts if part.resolution}
    if all(set(resolution.present) <= {None} for resolution in found.values()):
        return
    mixed = mixture(found) if contents.kind == "pipeline" else ()
    made = table("component", "would load", "variants there", "files", "bytes", right=("files", "bytes"))
    for name, resolution in found.items():
        made.add_row(show(name), _chosen(resolution, mixed=name in mixed), *_facts(resolution))
    yield ""
    yield made
    if mixed:
        yield f"mixed: {show(', '.join(mixed))} would come from the default weights"


def _chosen(resolution: Resolution, *, mixed: bool) -> str:
    if resolution.outcome == "missing":
        return f"{show(resolution.variant or 'default')}: missing"
    return show(resolution.variant or "default") + (" (mixed in)" if mixed else "")


def _facts(resolution: Resolution) -> tuple[str, str, str]:
    present = ", ".join(show(variant or "default") for variant in resolution.present)
    return present, str(len(resolution.files)), format_size(resolution.nbytes)
