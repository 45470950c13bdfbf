"""The division into shards: order kept, nothing empty, nothing too large, no shard more than needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardtool.checkpoint.layout import BLOCK, SHARE_FROM, FilePlan, Item, lay_out
from shardtool.checkpoint.plan import Split, plan_files, plan_like
from shardtool.errors import InputError, RefusedError, UsageError

META = {"format": "pt"}
SIZES = st.lists(st.integers(0, 3_000) | st.integers(SHARE_FROM, 3 * SHARE_FROM), min_size=1, max_size=40)


def run_of(sizes: Sequence[int], begin: int = 1000, origin: int = 0) -> list[Item]:
    """Tensors that lie one after another in a source file, from byte ``begin``."""
    items = []
    for number, size in enumerate(sizes):
        items.append(Item(f"o{origin}.t{number}", "U8", (size,), size, origin, begin))
        begin += size
    return items


def names(files: Sequence[FilePlan]) -> list[str]:
    return [item.name for file in files for item in file.items]


@given(SIZES, st.integers(300, 4 * SHARE_FROM))
@settings(max_examples=150)
def test_every_file_keeps_the_limit_and_the_order(sizes: list[int], limit: int) -> None:
    items = run_of(sizes)
    try:
        files = plan_files(items, META, Split(limit))
    except RefusedError as error:
        refused = next(item for item in items if item.name == error.tensor)
        assert refused.nbytes + 200 > limit
        return
    assert names(files) == [item.name for item in items]
    assert all(file.items for file in files)
    assert all(file.size <= limit for file in files)


@given(SIZES, st.integers(5_000, 4 * SHARE_FROM))
@settings(max_examples=80)
def test_no_two_neighbours_would_fit_in_one_file(sizes: list[int], limit: int) -> None:
    """The count is the least that keeps the order: each shard takes all it can."""
    items = run_of(sizes)
    files = plan_files(items, META, Split(limit, allow_oversize=True))
    for one, other in pairwise(files):
        assert one.data + other.items[0].nbytes + BLOCK + 300 + 100 * len(one.items) > limit


@given(SIZES, st.integers(5_000, 4 * SHARE_FROM))
@settings(max_examples=150)
def test_a_file_may_be_exactly_as_large_as_the_limit(sizes: list[int], limit: int) -> None:
    """Lowering the limit to the size of the largest file changes nothing."""
    items = run_of(sizes)
    files = plan_files(items, META, Split(limit, allow_oversize=True))
    largest = max(file.size for file in files)
    if len(files) == 1 or largest > limit:
        return
    assert plan_files(items, META, Split(largest)) == files


def fewest(items: Sequence[Item], limit: int) -> int:
    """The least number of files under the limit, by trying every division; a tensor above it has a file to itself."""
    least = [0]
    for end in range(1, len(items) + 1):
        fitting = (
            begin
            for begin in range(end)
            if begin == end - 1 or lay_out(items[begin:end], META).plan(limit=limit).size <= limit
        )
        least.append(1 + min(least[begin] for begin in fitting))
    return least[-1]


RESHARDED = st.lists(
    st.lists(st.integers(1, 20).map(lambda n: 1_000 * n), min_size=1, max_size=4), min_size=1, max_size=3
)
"""The sizes of the tensors in each file of a source."""


def from_files(sizes: Sequence[Sequence[int]]) -> list[Item]:
    return [item for origin, some in enumerate(sizes) for item in run_of(some, origin=origin)]


@example(sizes=[[1_000, 15_000, 16_000]], limit=16_176, balance=False)  # two fit with the least padding only
@given(RESHARDED, st.integers(5_000, 60_000), st.booleans())
@settings(max_examples=150)
def test_no_division_needs_fewer_files(sizes: list[list[int]], limit: int, balance: bool) -> None:  # noqa: FBT001
    """However many files the source has, and wherever it is cut."""
    items = from_files(sizes)
    files = plan_files(items, META, Split(limit, balance=balance, allow_oversize=True))
    assert names(files) == [item.name for item in items]
    assert all(file.size <= limit or len(file.items) == 1 for file in files)
    if lay_out(items, META, single=True).size() <= limit:
        assert len(files) == 1
    else:
        assert len(files) == fewest(items, limit)


@example([[1_000], [1_000, 15_000]], 16_176)
@given(RESHARDED, st.integers(5_000, 60_000))
@settings(max_examples=150)
def test_a_cut_inside_a_source_file_is_there_only_where_it_saves_a_file(sizes: list[list[int]], limit: int) -> None:
    """A shard that ends inside a source file holds all of it that fits, or none of the files before it ends there."""
    items = from_files(sizes)
    files = plan_files(items, META, Split(limit, allow_oversize=True))
    end = 0
    for number, file in enumerate(files[:-1]):
        begin, end = end, end + len(file.items)
        if items[end].origin != items[end - 1].origin:
            continue
        for place in range(begin + 1, end):  # every boundary that was passed over
            if items[place].origin != items[place - 1].origin:
                assert number + 1 + fewest(items[place:], limit) > len(files)


def test_a_lone_tensor_above_the_limit_is_the_one_file_of_its_checkpoint() -> None:
    items = run_of([1_001])
    files = plan_files(items, META, Split(1_000, allow_oversize=True))
    assert files == (lay_out(items, META, single=True).plan(),)
    assert files != (lay_out(items, META).plan(),)


def test_a_large_shard_begins_where_its_source_does_modulo_a_block() -> None:
    items = run_of([SHARE_FROM] * 4, begin=12_345)
    files = plan_files(items, META, Split(2 * SHARE_FROM + 10_000))
    assert len(files) == 2
    assert [len(file.header) % BLOCK for file in files] == [12_345 % BLOCK, (12_345 + 2 * SHARE_FROM) % BLOCK]


def test_a_whole_file_under_the_limit_stays_one_file() -> None:
    items = run_of([100, 200], begin=160)
    whole = plan_files(items, META, Split(10**9))
    assert len(whole) == 1
    assert len(plan_files(items, META, Split(whole[0].size))) == 1
    assert len(plan_files(items, META, Split(whole[0].size - 1))) == 2


def test_a_tensor_above_the_limit_is_refused_by_name_and_size() -> None:
    items = run_of([10, 5_000, 10])
    with pytest.raises(RefusedError, match=r"'o0.t1' alone needs a file of 5,\d+ bytes") as caught:
        plan_files(items, META, Split(3_000))
    assert caught.value.exit_code == 4
    assert caught.value.hint is not None
    assert "--allow-oversize" in caught.value.hint


def test_with_allow_oversize_it_gets_a_file_of_its_own() -> None:
    files = plan_files(run_of([10, 5_000, 10]), META, Split(3_000, allow_oversize=True))
    assert [[item.name for item in file.items] for file in files] == [["o0.t0"], ["o0.t1"], ["o0.t2"]]


def test_a_first_tensor_above_the_limit_makes_no_empty_shard() -> None:
    files = plan_files(run_of([5_000, 10]), META, Split(3_000, allow_oversize=True))
    assert [len(file.items) for file in files] == [1, 1]


@given(SIZES, st.integers(1, 12))
@settings(max_examples=80)
def test_a_number_of_shards_is_kept_exactly(sizes: list[int], count: int) -> None:
    items = run_of(sizes)
    if count > len(items):
        with pytest.raises(UsageError, match="only"):
            plan_files(items, META, Split(None, count))
        return
    files = plan_files(items, META, Split(None, count))
    assert len(files) == count
    assert names(files) == [item.name for item in items]
    assert all(file.items for file in files)


def test_a_number_of_shards_gives_nearly_equal_ones() -> None:
    files = plan_files(run_of([50_000] * 12), META, Split(None, 5))
    assert sorted(len(file.items) for file in files) == [2, 2, 2, 3, 3]


def smallest_largest(sizes: Sequence[int], count: int) -> int:
    """The least that the largest of ``count`` runs of ``sizes`` can hold, by trying every division."""
    cuts = combinations(range(1, len(sizes)), count - 1)
    return min(max(sum(sizes[a:b]) for a, b in pairwise([0, *cut, len(sizes)])) for cut in cuts)


@given(st.lists(st.integers(1, 20).map(lambda n: 10_000 * n), min_size=2, max_size=9), st.data())
@settings(max_examples=150)
def test_the_largest_of_a_number_of_shards_is_as_small_as_can_be(sizes: list[int], data: st.DataObject) -> None:
    """Sizes differ by more than all headers together, so that the data alone decides."""
    count = data.draw(st.integers(2, len(sizes)))
    files = plan_files(run_of(sizes), META, Split(None, count))
    assert max(file.data for file in files) == smallest_largest(sizes, count)


def test_balance_leaves_no_small_last_file() -> None:
    items = run_of([50_000] * 10)
    limit = Split(3 * 50_000 + 8_000)
    assert [len(file.items) for file in plan_files(items, META, limit)] == [3, 3, 3, 1]
    assert sorted(len(file.items) for file in plan_files(items, META, replace(limit, balance=True))) == [2, 2, 3, 3]


@given(SIZES, st.integers(4 * SHARE_FROM, 12 * SHARE_FROM))
@settings(max_examples=80)
def test_balance_needs_no_more_files_and_makes_the_largest_smaller(sizes: list[int], limit: int) -> None:
    items = run_of(sizes)
    greedy = plan_files(items, META, Split(limit))
    even = plan_files(items, META, Split(limit, balance=True))
    assert len(even) <= len(greedy)
    assert names(even) == names(greedy)
    # What is to be written is evened out; padding, less than a block, comes on top where there is room.
    assert max(file.size for file in even) < max(file.size for file in greedy) + BLOCK
    assert max(file.data for file in even) <= max(file.data for file in greedy) + 100  # two numbers of a header


def test_resharding_cuts_where_the_source_does_if_that_costs_no_file_more() -> None:
    items = [*run_of([40_000] * 4), *run_of([40_000] * 4, origin=1)]
    files = plan_files(items, META, Split(5 * 40_000 + 8_000))
    assert [{item.origin for item in file.items} for file in files] == [{0}, {1}]


def test_resharding_crosses_a_source_boundary_rather_than_write_a_file_more() -> None:
    items = [*run_of([40_000] * 3), *run_of([40_000] * 3, origin=1)]
    files = plan_files(items, META, Split(2 * 40_000 + 8_000))
    assert len(files) == 3
    assert names(files) == [item.name for item in items]


def test_like_takes_over_groups_order_and_padding() -> None:
    items = run_of([50, 60, 70])
    files = plan_like(items, META, [(["o0.t2", "o0.t0"], 5_000), (["o0.t1"], 64)], other="other")
    assert [[item.name for item in file.items] for file in files] == [["o0.t2", "o0.t0"], ["o0.t1"]]
    assert [len(file.header) % BLOCK for file in files] == [5_000 % BLOCK, 64]


@pytest.mark.parametrize("change", ["missing", "extra"])
def test_like_refuses_other_tensors(change: str) -> None:
    items = run_of([50, 60])
    groups = [(["o0.t0"], 64)] if change == "missing" else [(["o0.t0", "o0.t1", "more"], 64)]
    with pytest.raises(InputError, match="'o0.t1': other lacks it" if change == "missing" else "'more': only other"):
        plan_like(items, META, groups, other="other")


def test_made_tensors_align_to_sixty_four_bytes() -> None:
    items = [replace(item, offset=None) for item in run_of([100_000] * 3)]
    files = plan_files(items, META, Split(150_000))
    assert len(files) == 3
    assert all(len(file.header) % 64 == 0 for file in files)
