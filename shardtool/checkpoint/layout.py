"""Where the data of a file begins, and how large the file becomes, to the byte and before anything is written.

A header may be padded with blanks. The padding is chosen so that a tensor's bytes stand at the same offset modulo
``BLOCK`` as in the file they come from: a filesystem with reflinks can then share the blocks instead of copying them.
The choice depends on the input alone, never on the filesystem, so equal input gives equal bytes everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from shardtool.checkpoint.header import build_header

BLOCK = 4096
"""Bytes of a filesystem block; XFS, btrfs and bcachefs share whole blocks only."""

SHARE_FROM = 65_536
"""Bytes below which sharing blocks is not worth up to ``BLOCK`` bytes of padding."""

ALIGNMENT = 64
"""What the data of a shard is aligned to where no block can be shared."""

CANONICAL = 8
"""What the format's own writer aligns the data to."""


@dataclass(frozen=True)
class Item:
    """A tensor to be written: ``nbytes`` bytes, from byte ``offset`` of source file number ``origin``.

    ``offset`` is ``None`` where the bytes are made on the way (cast, or read from a pickle).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    origin: int
    offset: int | None

    @cached_property
    def entry_length(self) -> int:
        """Bytes of its entry in a header, without the two numbers that say where its data lies.

        Remembered, as a plan lays the same tensors out several times until it knows where to cut.
        """
        quoted = json.dumps(self.name, ensure_ascii=False).encode("utf-8")
        sides = ",".join(map(str, self.shape))
        return len(quoted) + len(f':{{"dtype":"{self.dtype}","shape":[{sides}],"data_offsets":[,]}}')


@dataclass(frozen=True)
class FilePlan:
    """One file to be written: its tensors in the order of their data, and the bytes that come before them."""

    items: tuple[Item, ...]
    header: bytes

    @property
    def data(self) -> int:
        """Bytes of tensor data."""
        return sum(item.nbytes for item in self.items)

    @property
    def size(self) -> int:
        """Bytes of the file, header included."""
        return len(self.header) + self.data


class Draft:
    """A file that is being filled with tensors, and its size at every step."""

    def __init__(self, metadata: Mapping[str, str], *, single: bool = False) -> None:
        """``single``: the one file of its checkpoint, which is laid out as the format's own writer does."""
        self.items: list[Item] = []
        self._metadata = metadata
        self._single = single
        self._raw = len(build_header([], metadata, data_start_modulo=(0, 1)))
        self._needs_comma = bool(metadata)
        self._data = 0
        self._shared: dict[int, int] = {}
        self._origins: dict[int, set[int]] = {}

    def add(self, item: Item) -> None:
        end = self._data + item.nbytes
        self._raw += int(self._needs_comma) + item.entry_length + len(str(self._data)) + len(str(end))
        self._needs_comma = True
        if item.offset is not None:
            residue = (item.offset - self._data) % BLOCK
            self._shared[residue] = self._shared.get(residue, 0) + item.nbytes
            self._origins.setdefault(residue, set()).add(item.origin)
        self._data = end
        self.items.append(item)

    def size(self) -> int:
        """Bytes of the file as ``plan`` lays it out."""
        return self._start(*self._modulo()) + self._data

    def least(self) -> int:
        """Bytes of the file with no more padding than the format's own writer gives it."""
        return self._start(0, CANONICAL) + self._data

    def fits(self, limit: int) -> bool:
        """Whether ``plan`` can keep the limit."""
        return self.least() <= limit or self.size() <= limit

    def _start(self, rest: int, modulo: int) -> int:
        return self._raw + (rest - self._raw) % modulo

    def _modulo(self) -> tuple[int, int]:
        """The padding's rule: the data begins at the first number modulo the second."""
        worth = {residue for residue, nbytes in self._shared.items() if nbytes >= SHARE_FROM}
        if not self._single:
            return (max(self._shared, key=self._shared.__getitem__), BLOCK) if worth else (0, ALIGNMENT)
        if len(worth) == 1 and self._start(0, CANONICAL) % BLOCK not in worth:
            residue = worth.pop()
            # A lone shard among several may have been squeezed under its limit: no witness of the file it came from.
            if len(self._origins[residue]) > 1 or len(set.union(*self._origins.values())) == 1:
                return residue, BLOCK
        return 0, CANONICAL

    def plan(self, *, limit: int | None = None, start: int | None = None) -> FilePlan:
        """The file as drafted. ``start`` asks for data at that offset modulo ``BLOCK``, whatever the source says.

        The padding is left out where it alone breaks ``limit``.
        """
        modulo = self._modulo() if start is None else (start % BLOCK, BLOCK)
        if limit is not None and self._start(*modulo) + self._data > limit >= self.least():
            modulo = (0, CANONICAL)
        entries = ((item.name, item.dtype, item.shape, item.nbytes) for item in self.items)
        return FilePlan(tuple(self.items), build_header(entries, self._metadata, data_start_modulo=modulo))


def lay_out(items: Iterable[Item], metadata: Mapping[str, str], *, single: bool = False) -> Draft:
    """A draft that holds all the items."""
    draft = Draft(metadata, single=single)
    for item in items:
        draft.add(item)
    return draft


def runs(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """The items in stretches whose bytes lie one after another in one source file; made items stand alone."""
    begin = 0
    for end in range(1, len(items) + 1):
        if end == len(items) or not _follows(items[end - 1], items[end]):
            yield items[begin:end]
            begin = end


def _follows(one: Item, other: Item) -> bool:
    return (
        one.offset is not None
        and other.offset is not None
        and one.origin == other.origin
        and one.offset + one.nbytes == other.offset
    )
