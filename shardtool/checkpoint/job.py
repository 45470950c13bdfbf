"""What is to be written, decided in full before anything is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from shardtool.checkpoint.index import render_index
from shardtool.checkpoint.layout import FilePlan, Item
from shardtool.checkpoint.names import WeightsName
from shardtool.checkpoint.selection import Selected
from shardtool.checkpoint.sources import Sources
from shardtool.events import Note

FORMAT = {"format": "pt"}
"""What older loaders insist on in a file's metadata."""

Maker: TypeAlias = Callable[[Item, Sources], Iterator[bytes | memoryview]]
"""Gives the bytes of an item that has no ``offset``, in blocks."""


@dataclass(frozen=True)
class Output:
    """One checkpoint to be written: ``files`` under ``name`` in the folder of ``part``.

    ``renamed`` maps a tensor's new name to the one in the source. ``make`` gives what no range of the source holds.
    """

    part: Selected
    name: WeightsName
    files: tuple[FilePlan, ...]
    index_metadata: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    make: Maker | None = None

    @property
    def is_sharded(self) -> bool:
        return len(self.files) > 1

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """Every tensor, file by file in the order of its data."""
        return tuple(item for file in self.files for item in file.items)

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
        total = sum(item.nbytes for item in self.items)
        return render_index(weight_map, total_size=total, metadata=self.index_metadata)

    @property
    def size(self) -> int:
        """Bytes of the weights files, headers included."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class Job:
    """Everything one run writes.

    ``others`` are carried over, relative to ``source`` and to the result alike; ``rewritten`` holds the contents of
    those of them that change. ``notes`` say what may surprise. ``check`` is called when everything is written, and
    raises if it must not be published.
    """

    source: Path
    outputs: tuple[Output, ...]
    others: tuple[PurePath, ...]
    rewritten: Mapping[PurePath, bytes] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    check: Callable[[], None] = lambda: None

    @property
    def size(self) -> int:
        """Bytes of the weights files."""
        return sum(output.size for output in self.outputs)
