"""Digests made while bytes pass through: those of hashlib, wherever the blocks are cut."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.checkpoint.hashing import AHEAD, Hasher


def cut(data: bytes, lengths: list[int]) -> Iterator[memoryview]:
    """``data`` in blocks of these lengths, in turn."""
    position = number = 0
    while position < len(data):
        yield memoryview(data)[position : position + lengths[number % len(lengths)]]
        position += lengths[number % len(lengths)]
        number += 1


FILES = st.lists(st.lists(st.integers(0, 12), max_size=5), max_size=2)
"""For each file, the sizes of its tensors in bytes."""


@given(FILES, st.lists(st.integers(1, 20), min_size=1, max_size=5))
@settings(max_examples=50)
def test_every_tensor_has_its_digest_wherever_the_blocks_are_cut(files: list[list[int]], lengths: list[int]) -> None:
    """Tensors without bytes included, be they first, last, or all there is."""
    expected = {}
    with Hasher() as hasher:
        for number, sizes in enumerate(files):
            parts = [hashlib.shake_128(f"{number}.{n}".encode()).digest(size) for n, size in enumerate(sizes)]
            names = [f"{number}.{n}" for n in range(len(sizes))]
            feed = hasher.begin(zip(names, sizes, strict=True))
            for block in cut(b"".join(parts), lengths):
                feed(block)
            expected |= {name: hashlib.sha256(part).hexdigest() for name, part in zip(names, parts, strict=True)}
    assert hasher.digests == expected


def test_bytes_after_the_last_tensor_belong_to_none() -> None:
    with Hasher() as hasher:
        hasher.begin([("a", 3), ("b", 0)])(b"abcd")
    assert hasher.digests == {"a": hashlib.sha256(b"abc").hexdigest(), "b": hashlib.sha256(b"").hexdigest()}


def test_an_error_while_bytes_pass_through_ends_the_thread_and_is_raised() -> None:
    before = threading.active_count()
    with pytest.raises(KeyError), Hasher() as hasher:
        feed = hasher.begin([("a", 1 << 20)])
        for _ in range(3 * AHEAD):
            feed(bytes(1024))
        raise KeyError
    assert threading.active_count() == before
    assert hasher.digests == {}
