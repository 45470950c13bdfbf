"""What a case of the corpus is: something to look at, the right verdict, and the words a good error must hold."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

Make: TypeAlias = Callable[[Path], Path]
"""Makes the case in an empty folder and gives the source to look at."""

SENTINEL = "sentinel"
"""A file of this name in the case's folder means that code from the checkpoint was run."""


@dataclass(frozen=True)
class Case:
    """``codes`` are those of the errors (of the warnings, where it is to be accepted), every one of them.

    ``words`` must all stand in the messages. ``deep``: the fault is in the data, which only ``--deep`` reads.
    """

    name: str
    verdict: Literal["accept", "reject"]
    make: Make = field(repr=False)
    codes: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    deep: bool = False


def accept(name: str, make: Make, *codes: str, deep: bool = False) -> Case:
    return Case(name, "accept", make, frozenset(codes), deep=deep)


def reject(name: str, make: Make, codes: str | Sequence[str], *words: str, deep: bool = False) -> Case:
    given = codes.split() if isinstance(codes, str) else codes
    return Case(name, "reject", make, frozenset(given), words, deep)


def tensor(dtype: str = "F32", shape: Sequence[Any] = (2,), offsets: Sequence[Any] = (0, 8), **more: Any) -> Any:
    """An entry of a header, in which anything may be wrong."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def raw_file(header: bytes | str | Mapping[str, Any], data: bytes = bytes(8), *, length: int | None = None) -> Make:
    """A single file with exactly this header and data; ``length`` lies about the header's."""
    if isinstance(header, Mapping):
        header = json.dumps(header)
    raw = header.encode() if isinstance(header, str) else header

    def make(folder: Path) -> Path:
        path = folder / "x.safetensors"
        path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + data)
        return path

    return make


def whole_file(data: bytes, name: str = "x.safetensors") -> Make:
    """A single file with these contents."""

    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(data)
        return path

    return make
