"""Two checkpoints tensor by tensor, bit for bit, however each is sharded. Memory is bounded by two blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shardtool.checkpoint.contents import Contents
from shardtool.checkpoint.inventory import Checkpoint, StoredTensor
from shardtool.checkpoint.reading import TensorReader
from shardtool.errors import InputError, UsageError
from shardtool.events import Advanced, Finished, Listener, Started, ignore

Kind: TypeAlias = Literal["same", "only_a", "only_b", "form", "values"]
"""``form``: another shape or dtype. ``values``: same form, other bytes."""


@dataclass(frozen=True)
class Pair:
    """A tensor name and what stands under it in both checkpoints, at least one of them."""

    name: str
    kind: Kind
    a: StoredTensor | None
    b: StoredTensor | None

    @property
    def one(self) -> StoredTensor:
        """Either of the two."""
        found = self.a or self.b
        if found is None:
            raise AssertionError(self.name)
        return found


def compare(a: Checkpoint, b: Checkpoint, reader: TensorReader, on_event: Listener = ignore) -> Iterator[Pair]:
    """A pair for every name in either, those of ``a`` first, in the order of its data.

    Data is read only where the forms agree. Raises ``InputError`` where a file cannot be read; ``reader`` says in the
    end whether one changed meanwhile.
    """
    shared = (stored.info.nbytes for name, stored in a.tensors.items() if name in b.tensors)
    on_event(Started("compare", "comparing tensors", sum(shared)))
    for name, stored in a.tensors.items():
        other = b.tensors.get(name)
        if other is None:
            yield Pair(name, "only_a", stored, None)
            continue
        yield Pair(name, _kind(stored, other, reader), stored, other)
        on_event(Advanced("compare", stored.info.nbytes))
    for name, stored in b.tensors.items():
        if name not in a.tensors:
            yield Pair(name, "only_b", None, stored)
    on_event(Finished("compare"))


def _kind(a: StoredTensor, b: StoredTensor, reader: TensorReader) -> Kind:
    if (a.info.dtype, a.info.shape) != (b.info.dtype, b.info.shape):
        return "form"
    return "same" if _equal(reader.blocks(a), reader.blocks(b)) else "values"


def _equal(a: Iterable[bytes], b: Iterable[bytes]) -> bool:
    return all(one == other for one, other in zip(a, b, strict=True))


def form(tensor: StoredTensor) -> str:
    """``F16[320, 4, 3, 3]``."""
    return f"{tensor.info.dtype}{list(tensor.info.shape)}"


def paired(a: Contents, b: Contents) -> Iterator[tuple[str, Checkpoint | None, Checkpoint | None]]:
    """The checkpoints of two sources, side by side: components of pipelines by name, else the one with the other.

    Raises ``InputError`` where a part of either is damaged, and ``UsageError`` where only one is a pipeline.
    """
    for contents in (a, b):
        errors = [problem for problem in contents.problems if problem.severity == "error"]
        if errors:
            raise InputError.of_all(errors)
    if (a.kind == "pipeline") != (b.kind == "pipeline"):
        pipeline, other = (a, b) if a.kind == "pipeline" else (b, a)
        raise UsageError(
            f"{pipeline.path} is a pipeline, {other.path} is a single checkpoint",
            code="kinds_differ",
            hint=f"name one component of the pipeline, such as {pipeline.path / 'unet'}",
        )
    if a.kind != "pipeline":
        yield a.parts[0].name, a.parts[0].checkpoint, b.parts[0].checkpoint
        return
    ours, theirs = _by_name(a), _by_name(b)
    for name in dict.fromkeys((*ours, *theirs)):
        yield name, ours.get(name), theirs.get(name)


def _by_name(contents: Contents) -> dict[str, Checkpoint]:
    return {part.name: part.checkpoint for part in contents.parts if part.checkpoint is not None}
