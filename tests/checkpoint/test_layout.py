"""Sizes are known to the byte before anything is written, and the padding follows from the input alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardtool.checkpoint.header import build_header
from shardtool.checkpoint.layout import ALIGNMENT, BLOCK, SHARE_FROM, Item, lay_out, runs
from tests.checkpoint.referee import metadata, names

ITEMS = st.lists(
    st.builds(
        lambda name, shape, origin, offset: Item(name, "U8", tuple(shape), shape[0] if shape else 1, origin, offset),
        names,
        st.lists(st.integers(0, 200_000), max_size=1),
        st.integers(0, 2),
        st.integers(0, 10**9) | st.none(),
    ),
    max_size=15,
    unique_by=lambda item: item.name,
)


@given(items=ITEMS, meta=metadata, single=st.booleans())
def test_the_size_is_known_beforehand(items: list[Item], meta: dict[str, str], *, single: bool) -> None:
    draft = lay_out(items, meta, single=single)
    assert draft.size() == draft.plan().size
    entries = [(item.name, item.dtype, item.shape, item.nbytes) for item in items]
    assert draft.least() == len(build_header(entries, meta)) + sum(item.nbytes for item in items)


@given(ITEMS, metadata)
def test_padding_is_less_than_a_block(items: list[Item], meta: dict[str, str]) -> None:
    draft = lay_out(items, meta)
    assert draft.least() - 8 <= draft.size() < draft.least() + BLOCK


def shared_at(items: list[Item], start: int) -> int:
    """Bytes of tensors that keep their offset modulo a block where the data begins at ``start``."""
    total, position = 0, start
    for item in items:
        if item.offset is not None and (item.offset - position) % BLOCK == 0:
            total += item.nbytes
        position += item.nbytes
    return total


RUNS = st.lists(st.tuples(st.integers(0, 3 * SHARE_FROM), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=6)
"""Sizes, source files, and one of three offsets modulo a block at which the tensor would lie in the target."""


@given(RUNS, metadata)
def test_a_shard_keeps_as_many_bytes_in_their_blocks_as_can_be(
    found: list[tuple[int, int, int]], meta: dict[str, str]
) -> None:
    """Where no padding keeps enough to be worth it, the data is aligned instead."""
    items, position = [], 0
    for number, (size, origin, residue) in enumerate(found):
        offset = None if residue == 2 else 5 * BLOCK + position + 1000 * residue
        items.append(Item(f"t{number}", "U8", (size,), size, origin, offset))
        position += size
    start = len(lay_out(items, meta).plan().header)
    best = max(shared_at(items, residue) for residue in (0, 1000))
    if best >= SHARE_FROM:
        assert shared_at(items, start) == best
    else:
        assert start % ALIGNMENT == 0
        assert lay_out(items, meta).size() < lay_out(items, meta).least() + ALIGNMENT


@pytest.mark.parametrize("made", [False, True])
def test_from_what_size_on_blocks_are_worth_sharing(made: bool) -> None:  # noqa: FBT001
    """Exactly 64 KiB that can be shared are; one byte less, or bytes that lie in no file, are not."""
    for size, shared in ((SHARE_FROM, not made), (SHARE_FROM - 1, False)):
        items = [Item("a", "U8", (size,), size, 0, None if made else 4001)]
        assert (len(lay_out(items, {}).plan().header) % BLOCK == 4001) == shared


def test_padding_that_alone_breaks_the_limit_is_left_out() -> None:
    draft = lay_out([Item("a", "U8", (SHARE_FROM,), SHARE_FROM, 0, 4001)], {})
    assert draft.size() > draft.least() + 1000
    assert draft.plan(limit=draft.size()).size == draft.size()
    assert draft.plan(limit=draft.least()).size == draft.least()


def test_a_limit_that_is_broken_anyhow_costs_no_sharing() -> None:
    draft = lay_out([Item("a", "U8", (SHARE_FROM,), SHARE_FROM, 0, 4001)], {})
    assert len(draft.plan(limit=100).header) % BLOCK == 4001


def test_small_shards_are_aligned_to_sixty_four_bytes() -> None:
    assert len(lay_out([Item("a", "F32", (4,), 16, 0, 4001)], {}).plan().header) % ALIGNMENT == 0


def test_the_one_file_takes_the_offset_that_all_its_shards_remember() -> None:
    """So merging shares blocks even where the first file's header was not the format's own writer's."""
    first = Item("a", "U8", (SHARE_FROM,), SHARE_FROM, 0, 3 * BLOCK + 77)
    second = Item("b", "U8", (SHARE_FROM,), SHARE_FROM, 1, 9 * BLOCK + 77)
    assert len(lay_out([first, second], {}, single=True).plan().header) % BLOCK == 77


def test_the_one_file_is_canonical_where_its_shards_disagree() -> None:
    first = Item("a", "U8", (SHARE_FROM,), SHARE_FROM, 0, 3 * BLOCK + 77)
    second = Item("b", "U8", (SHARE_FROM,), SHARE_FROM, 1, 9 * BLOCK + 78)
    draft = lay_out([first, second], {}, single=True)
    assert draft.size() == draft.least()


@given(ITEMS)
def test_runs_are_contiguous_and_together_are_everything(items: list[Item]) -> None:
    found = list(runs(items))
    assert [item for run in found for item in run] == items
    for run in found:
        assert all(follows(one, other) for one, other in pairwise(run))
    for before, after in pairwise(found):
        assert not follows(before[-1], after[0])


def follows(one: Item, other: Item) -> bool:
    """Whether two tensors lie one after the other in one file."""
    if one.offset is None or other.offset is None:
        return False
    return one.origin == other.origin and other.offset == one.offset + one.nbytes


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["next", "gap", "file", "made"])), min_size=1))
def test_runs_are_as_long_as_can_be(steps: list[tuple[int, str]]) -> None:
    """One ends where the next tensor lies elsewhere, in another file, or nowhere."""
    items, origin, offset = [], 0, 100
    for number, (size, step) in enumerate(steps):
        origin += step == "file"
        offset += 3 if step == "gap" else 0
        items.append(Item(f"t{number}", "U8", (size,), size, origin, None if step == "made" else offset))
        offset += size
    found = [len(run) for run in runs(items)]
    ends = [n for n, (one, other) in enumerate(pairwise(items), start=1) if not follows(one, other)]
    assert found == [end - begin for begin, end in pairwise([0, *ends, len(items)])]
