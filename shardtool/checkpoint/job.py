"""What is to be written, decided in full before anything is: pure data, and how it follows from a selection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from shardtool.checkpoint.index import render_index
from shardtool.checkpoint.inventory import Checkpoint
from shardtool.checkpoint.layout import FilePlan, Item
from shardtool.checkpoint.names import WeightsName
from shardtool.checkpoint.selection import Part

FORMAT = {"format": "pt"}
"""What older loaders insist on in a file's metadata."""


@dataclass(frozen=True)
class Output:
    """One checkpoint to be written: ``files`` under ``name`` in the folder of ``part``."""

    part: Part
    name: WeightsName
    files: tuple[FilePlan, ...]
    index_metadata: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_sharded(self) -> bool:
        return len(self.files) > 1

    @cached_property
    def filenames(self) -> tuple[str, ...]:
        """The files' names, in the order of ``files``."""
        count = len(self.files)
        return (self.name.single,) if count == 1 else tuple(self.name.shard(n, count) for n in range(1, count + 1))

    @property
    def index(self) -> bytes | None:
        """The contents of the index; ``None`` for a single file, which has none."""
        if not self.is_sharded:
            return None
        weight_map = {
            item.name: name for name, file in zip(self.filenames, self.files, strict=True) for item in file.items
        }
        return render_index(weight_map, total_size=self.data, metadata=self.index_metadata)

    @property
    def data(self) -> int:
        """Bytes of tensor data."""
        return sum(file.data for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of the weights files, headers included."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class Job:
    """Everything one run writes. ``others`` are carried over, relative to ``source`` and to the result alike."""

    source: Path
    outputs: tuple[Output, ...]
    others: tuple[PurePath, ...]

    @property
    def size(self) -> int:
        """Bytes of the weights files."""
        return sum(output.size for output in self.outputs)


def items_of(checkpoint: Checkpoint) -> list[Item]:
    """The tensors of a checkpoint as items to be written, in the order of its files and their data."""
    return [
        Item(info.name, info.dtype, info.shape, info.nbytes, origin, file.header.data_start + info.start)
        for origin, file in enumerate(checkpoint.files)
        for info in file.header.tensors
    ]


def metadata_of(checkpoint: Checkpoint) -> dict[str, str]:
    """What the header of each written file says: what the source's headers say, and the format, should they not."""
    return {**FORMAT, **checkpoint.metadata}


def index_metadata_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the source's index says beside the size, which is counted anew."""
    found = dict(checkpoint.index.metadata) if checkpoint.index is not None else {}
    found.pop("total_size", None)
    return found


def renamed_items(items: list[Item], names: Mapping[str, str]) -> list[Item]:
    """The items under new names, where ``names`` has one."""
    return [replace(item, name=names[item.name]) if item.name in names else item for item in items]
