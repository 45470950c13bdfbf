"""Seeds: lists, ranges, counts, random ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.errors import UsageError
from shardtool.images.seeds import LARGEST, draw_seed, expand_seeds, parse_seeds, seeds_for


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("7", (7,)), ("1-4,9", (1, 2, 3, 4, 9)), ("3, 1", (3, 1)), ("1-3,2-4", (1, 2, 3, 4)), (str(LARGEST), (LARGEST,))],
)
def test_lists_and_ranges(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "x", "-1", "1-", "4-1", "1,,2", "1.5", "٣", str(LARGEST + 1), "0-99999999999"])
def test_anything_else_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_seeds(text)


def test_count_goes_on_from_each_seed() -> None:
    assert expand_seeds((7,), 3) == (7, 8, 9)
    assert expand_seeds((1, 10), 2) == (1, 2, 10, 11)
    with pytest.raises(UsageError):
        expand_seeds((7,), 0)


def test_one_seed_is_drawn_where_none_is_given() -> None:
    assert seeds_for((), 2, lambda: 40) == (40, 41)
    assert seeds_for((3,), 1, lambda: 40) == (3,)
    assert 0 <= draw_seed() < 2**32


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=9), st.integers(1, 9))
def test_no_seed_comes_twice_and_each_one_typed_comes(seeds: list[int], count: int) -> None:
    made = expand_seeds(parse_seeds(",".join(map(str, seeds))), count)
    assert len(set(made)) == len(made)
    assert set(seeds) <= set(made)
    assert max(made) == max(seeds) + count - 1
