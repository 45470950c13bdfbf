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


def tensor_table(checkpoint: Checkpoint, shown: Shown) -> Table:
    """One line for each tensor; the file's name only where there are several."""
    several = len(checkpoint.files) > 1
    made = table("tensor", "dtype", "shape", "size", *(["file"] if several else []), right=("size",))
    for stored in listed_tensors(checkpoint, shown):
        info = stored.info
        shape = " × ".join(map(str, info.shape)) or "scalar"
        file = [show(short_name(stored.file.path.name, checkpoint.name.base))] if several else []
        made.add_row(show(info.name), info.dtype, shape, format_size(info.nbytes), *file)
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
