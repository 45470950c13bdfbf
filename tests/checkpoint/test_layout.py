"""Sizes are known to the byte before anything is written, and the padding follows from the input alone."""

from __future__ import annotations

from itertools import pairwise

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
        for one, other in pairwise(run):
            assert one.offset is not None
            assert other.offset == one.offset + one.nbytes
            assert one.origin == other.origin
