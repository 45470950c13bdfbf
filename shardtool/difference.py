"""Which tensors of two sources differ, and by how much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shardtool.checkpoint.compare import Pair, compare, paired
from shardtool.checkpoint.contents import Contents, survey
from shardtool.checkpoint.inventory import Checkpoint
from shardtool.checkpoint.reading import TensorReader
from shardtool.events import Listener, ignore
from shardtool.values import Distance, distance


@dataclass(frozen=True)
class Change:
    """A tensor that is not the same in both. ``component`` is empty where two single checkpoints are compared.

    ``distance`` is given where the forms agree and the values do not.
    """

    component: str
    pair: Pair
    distance: Distance | None = None


@dataclass(frozen=True)
class Difference:
    """``same`` counts the tensors that agree bit for bit; ``only_a`` and ``only_b`` name components of one side."""

    same: int
    changes: tuple[Change, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.changes or self.only_a or self.only_b)

    def of_kind(self, kind: str) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.pair.kind == kind)


def difference(a: Contents | str | Path, b: Contents | str | Path, on_event: Listener = ignore) -> Difference:
    """Compare two sources, paths or what ``survey`` found in them. Memory is a few blocks.

    Tensors that differ are read a second time for the distance.

    Raises ``InputError`` where either cannot be read, and ``UsageError`` where only one of them is a pipeline.
    """
    a, b = (source if isinstance(source, Contents) else survey(source) for source in (a, b))
    same, changes = 0, []
    only: dict[str, list[str]] = {"a": [], "b": []}
    for name, one, other in paired(a, b):
        if one is None or other is None:
            only["a" if other is None else "b"].append(name)
            continue
        component = name if a.kind == "pipeline" else ""
        for change in _changes(component, one, other, on_event):
            if change.pair.kind == "same":
                same += 1
            else:
                changes.append(change)
    return Difference(same, tuple(changes), tuple(only["a"]), tuple(only["b"]))


def _changes(component: str, a: Checkpoint, b: Checkpoint, on_event: Listener) -> Iterator[Change]:
    with TensorReader() as reader:
        for pair in compare(a, b, reader, on_event):
            apart = None
            if pair.kind == "values" and pair.a is not None and pair.b is not None:
                apart = distance(pair.a.info.dtype, reader.blocks(pair.a), reader.blocks(pair.b))
            yield Change(component, pair, apart)
