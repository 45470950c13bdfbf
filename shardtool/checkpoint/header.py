"""The header of a ``.safetensors`` file: read it strictly, write it canonically.

The format (https://github.com/huggingface/safetensors#format, checked against release 0.8.0)::

    8 bytes     N, unsigned little-endian: the length of the header
    N bytes     a JSON object in UTF-8, padded with white space:
                {"__metadata__": {str: str}, NAME: {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}
    the rest    the tensors' bytes, little-endian, row-major; offsets count from here, without holes or overlaps

Everything the format's own parser accepts is accepted, with six exceptions that make two readers see two models:
duplicate names and keys, entries that are lists instead of objects, ``__metadata__: null``, and sides beyond 2⁶³.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeGuard

from shardtool.checkpoint.dtypes import DTYPE_BITS
from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.foreign import SNIFF, recognise, text_problem
from shardtool.checkpoint.strict_json import DuplicateKeyError, parse_json_object
from shardtool.errors import REPLACE_FILE, InputError, Problem

MAX_HEADER = 100_000_000
"""Bytes a header may have, as in the format's own parser (decimal, not MiB)."""

_SIDE_LIMIT = 2**63
_BITS_LIMIT = 2**64
_WRITE = "the program that wrote it is at fault: write the file again"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One entry of a header. ``start`` and ``stop`` are bytes from the start of the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start

    @property
    def elements(self) -> int:
        """How many numbers the tensor holds; 1 for a scalar."""
        return prod(self.shape)


@dataclass(frozen=True)
class Header:
    """A valid header. ``tensors`` are in the order of their data; ``data_start`` is in bytes from the file's start."""

    tensors: tuple[TensorInfo, ...]
    metadata: Mapping[str, str]
    data_start: int


def read_header(file: OpenFile) -> Header:
    """Read and check the header of an open file; no tensor data is read.

    Raises ``InputError`` whose ``problems`` list every fault that was found, each naming the file and the tensor.
    """
    path = str(file.path)
    start = file.read_at(0, min(file.size, SNIFF))
    length = int.from_bytes(start[:8], "little")
    if file.size < 8 or length == 0 or length > MAX_HEADER or length + 8 > file.size:
        fault = recognise(start, path) or text_problem(start, path) or _wrong_length(path, file.size, length)
        raise InputError.of_all([fault])
    return parse_header(file.read_at(8, length), data_size=file.size - 8 - length, path=path)


def parse_header(raw: bytes, *, data_size: int, path: str) -> Header:
    """The header in ``raw`` (without the eight bytes of length) of a file with ``data_size`` bytes of tensor data.

    ``path`` is only for messages. Raises ``InputError`` with every problem found.
    """
    try:
        entries = parse_json_object(raw)
    except DuplicateKeyError as error:
        message = f"the header names {error.key!r:.200} twice"
        raise InputError.of_all([Problem("duplicate_name", f"{path}: {message}", path, error.key, _WRITE)]) from error
    except ValueError as error:
        raise InputError.of_all(
            [Problem("header_invalid", f"{path}: the header is {error}", path, hint=REPLACE_FILE)]
        ) from error
    problems: list[Problem] = []
    metadata = _metadata(entries.pop("__metadata__", {}), path, problems)
    tensors: list[TensorInfo] = []
    for name, entry in entries.items():
        found = _tensor(name, entry, path)
        tensors.append(found) if isinstance(found, TensorInfo) else problems.append(found)
    tensors.sort(key=lambda info: (info.start, info.stop))
    if not problems:
        problems.extend(_layout_problems(tensors, data_size, path))
    if problems:
        raise InputError.of_all(problems)
    return Header(tuple(tensors), metadata, data_start=8 + len(raw))


def _wrong_length(path: str, size: int, length: int) -> Problem:
    if size < 8:
        fault = f"truncated: {size} bytes are too few for a safetensors file"
    elif length == 0:
        return Problem("header_invalid", f"{path}: its header has no bytes", path, hint=REPLACE_FILE)
    elif length > MAX_HEADER:
        fault = f"is no safetensors file (its first bytes promise a header of {length:,} bytes)"
        return Problem("not_safetensors", f"{path}: {fault}", path, hint=REPLACE_FILE)
    else:
        fault = f"truncated: the header alone needs {length + 8:,} bytes, the file has {size:,}"
    return Problem("truncated", f"{path}: {fault}", path, hint=REPLACE_FILE)


def _metadata(found: Any, path: str, problems: list[Problem]) -> dict[str, str]:
    if isinstance(found, dict) and all(isinstance(value, str) for value in found.values()):
        return found
    fault = "__metadata__ must map strings to strings"
    problems.append(Problem("header_invalid", f"{path}: {fault}", path, hint=_WRITE))
    return {}


def _tensor(name: str, entry: Any, path: str) -> TensorInfo | Problem:
    """One checked entry, or what is wrong with it; its range is compared with the others' later."""

    def fault(text: str, code: str = "header_invalid") -> Problem:
        return Problem(code, f"{path}: tensor {name!r:.200}: {text}", path, name, _WRITE)

    if not isinstance(entry, dict):
        return fault("its entry is no JSON object")
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        return fault(f"unknown dtype {dtype!r:.60}", "dtype_unknown")
    if not _are_sizes(shape):
        return fault(f"its shape is {shape!r:.80}, not a list of sizes")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        return fault(f"its data_offsets are {offsets!r:.80}, not [start, stop]")
    needed, given = _bits(shape, DTYPE_BITS[dtype]), offsets[1] - offsets[0]
    if needed is None:
        return fault(f"shape {shape!r:.80} of {dtype} is beyond what any file can hold", "size_mismatch")
    if needed % 8:
        return fault(f"{needed} bits (shape {shape!r:.80}, {dtype}) are not whole bytes", "size_mismatch")
    if needed // 8 != given:
        promised = f"shape {shape!r:.80} of {dtype} is {needed // 8:,} bytes"
        return fault(f"{promised}, its range {offsets} holds {given:,}", "size_mismatch")
    return TensorInfo(name, dtype, tuple(shape), offsets[0], offsets[1])


def _are_sizes(value: Any) -> TypeGuard[list[int]]:
    # `True` is an int in Python, and a header may hold any JSON number.
    return isinstance(value, list) and all(type(item) is int and 0 <= item < _SIDE_LIMIT for item in value)


def _bits(shape: Sequence[int], bits: int) -> int | None:
    """Bits of all elements, or ``None`` where the product leaves 64 bits on the way, as in the format's own parser."""
    elements = 1
    for side in shape:
        elements *= side
        if elements >= _BITS_LIMIT:
            return None
    return elements * bits if elements * bits < _BITS_LIMIT else None


def _layout_problems(tensors: Sequence[TensorInfo], data_size: int, path: str) -> Iterable[Problem]:
    """The tensors, sorted by range, must cover the data exactly: no hole, no overlap, nothing beyond."""
    previous = TensorInfo("", "U8", (0,), 0, 0)
    for info in tensors:
        if info.start != previous.stop:
            gap = info.start - previous.stop
            what = f"{gap:,} bytes before it belong to no tensor" if gap > 0 else f"overlaps {previous.name!r:.200}"
            code = "hole" if gap > 0 else "overlap"
            yield Problem(code, f"{path}: tensor {info.name!r:.200}: {what}", path, info.name, _WRITE)
        if info.stop >= previous.stop:
            previous = info
    if previous.stop > data_size:
        ends = f"{previous.name!r:.200} ends at byte {previous.stop:,} of the data"
        fault = f"truncated: {ends}, of which there are {data_size:,}"
        yield Problem("truncated", f"{path}: {fault}", path, previous.name, REPLACE_FILE)
    elif previous.stop < data_size:
        fault = f"{data_size - previous.stop:,} bytes after the last tensor belong to nothing"
        yield Problem("trailing_bytes", f"{path}: {fault}", path, hint=REPLACE_FILE)


def build_header(
    tensors: Iterable[tuple[str, str, Sequence[int], int]],
    metadata: Mapping[str, str],
    *,
    data_start_modulo: tuple[int, int] = (0, 8),
) -> bytes:
    """The bytes before the data: length and header, for tensors given as (name, dtype, shape, bytes) in data order.

    The result depends on the arguments alone: metadata keys are sorted, entries stand in data order, and the JSON is
    written as the format's own writer does. It is padded with blanks to the smallest length that is
    ``data_start_modulo[0]`` modulo ``data_start_modulo[1]``; the default is what the format's own writer does.
    """
    entries: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    position = 0
    for name, dtype, shape, nbytes in tensors:
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + nbytes]}
        position += nbytes
    raw = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    rest, modulo = data_start_modulo
    raw += b" " * ((rest - 8 - len(raw)) % modulo)
    return len(raw).to_bytes(8, "little") + raw
