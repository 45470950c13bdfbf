"""The header: what is written is read back by us and by the reference, and every fault is told at once."""

from __future__ import annotations

import json
import struct
from math import prod
from pathlib import Path

import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st

from shardtool.checkpoint.dtypes import DTYPE_BITS
from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.header import build_header, parse_header, read_header
from shardtool.errors import InputError
from tests.corpus.valid_cases import BITS

NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=12).filter(lambda name: name != "__metadata__")
WHOLE_BYTES = sorted(dtype for dtype, bits in BITS.items() if bits >= 8)
TENSORS = st.dictionaries(
    NAMES, st.tuples(st.sampled_from(WHOLE_BYTES), st.lists(st.integers(0, 5), max_size=3)), max_size=6
)


def test_the_dtypes_are_those_of_the_format() -> None:
    assert dict(DTYPE_BITS) == dict(BITS)


@given(
    TENSORS, st.dictionaries(NAMES, st.text(st.characters(exclude_categories=("Cs",))), max_size=3), st.integers(0, 63)
)
def test_what_is_written_is_read_by_us_and_by_the_reference(
    tensors: dict[str, tuple[str, list[int]]], metadata: dict[str, str], rest: int
) -> None:
    sizes = {name: prod(shape) * BITS[dtype] // 8 for name, (dtype, shape) in tensors.items()}
    entries = [(name, dtype, shape, sizes[name]) for name, (dtype, shape) in tensors.items()]
    start = build_header(entries, metadata, data_start_modulo=(rest, 64))
    data = bytes(position % 251 for position in range(sum(sizes.values())))
    header = parse_header(start[8:], data_size=len(data), path="x")

    assert header.metadata == metadata
    assert header.data_start == len(start) and len(start) % 64 == rest
    assert {info.name: (info.dtype, list(info.shape), info.nbytes) for info in header.tensors} == {
        name: (dtype, shape, sizes[name]) for name, (dtype, shape) in tensors.items()
    }
    theirs = {
        name: (found["dtype"], found["shape"], bytes(found["data"]))
        for name, found in safetensors.deserialize(start + data)
    }
    assert theirs == {
        info.name: (info.dtype, list(info.shape), data[info.start : info.stop]) for info in header.tensors
    }


def test_the_same_tensors_give_the_same_bytes_whatever_the_order_of_the_metadata() -> None:
    one = build_header([("a", "U8", [1], 1)], {"x": "1", "y": "2"})
    assert one == build_header([("a", "U8", [1], 1)], {"y": "2", "x": "1"})


def test_every_fault_of_a_header_is_told_with_its_tensor() -> None:
    entries = {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in "abc"}
    entries["a"]["dtype"] = "F31"
    entries["b"]["shape"] = [-1]
    with pytest.raises(InputError) as caught:
        parse_header(json.dumps(entries).encode(), data_size=4, path="x")
    assert [(problem.code, problem.tensor) for problem in caught.value.problems] == [
        ("dtype_unknown", "a"),
        ("header_invalid", "b"),
    ]


def test_messages_stay_short_however_long_the_names_are() -> None:
    raw = json.dumps({"x" * 100_000: {"dtype": "y" * 100_000, "shape": [1] * 10_000, "data_offsets": [0, 4]}}).encode()
    with pytest.raises(InputError) as caught:
        parse_header(raw, data_size=4, path="x")
    assert len(caught.value.message) < 1000


def test_no_more_than_the_header_is_read(tmp_path: Path) -> None:
    """A hole of a terabyte behind the header costs nothing."""
    path = tmp_path / "x.safetensors"
    size = 2**40
    raw = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + size)
    with OpenFile(path) as opened:
        assert read_header(opened).tensors[0].nbytes == size
