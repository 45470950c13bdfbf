"""What bytes mean, with torch as the referee: every pattern of the small dtypes, a sample of the large ones."""

from __future__ import annotations

import math
import struct
import sys
import warnings

import numpy as np
import pytest
import torch

from shardtool.values import FLOATS, NAN_ONLY, Count, count_block, decode, distance

TORCH = {
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
    "F32": torch.float32,
    "F64": torch.float64,
}


def every_pattern(dtype: str) -> np.ndarray:
    """All patterns of up to 16 bits; of wider dtypes the edges and a sample."""
    width = TORCH[dtype].itemsize
    if width <= 2:
        return np.arange(256**width, dtype=f"<u{width}")
    edges = [FLOATS[dtype].finite, FLOATS[dtype].infinite or 0, 0, 1]
    patterns = [edge + step + sign for edge in edges for step in (0, 1) for sign in (0, FLOATS[dtype].sign)]
    sample = np.random.default_rng(0).integers(0, 256, size=8000, dtype=np.uint8).view(f"<u{width}")
    return np.concatenate([np.array(patterns, dtype=f"<u{width}"), sample])


def as_torch(patterns: np.ndarray, dtype: str) -> torch.Tensor:
    return torch.from_numpy(patterns.view(np.uint8).copy()).view(TORCH[dtype]).to(torch.float64)


@pytest.mark.parametrize("dtype", TORCH)
def test_every_value_is_decoded_as_torch_does(dtype: str) -> None:
    patterns = every_pattern(dtype)
    found = decode(patterns.tobytes(), dtype)
    assert found is not None
    np.testing.assert_array_equal(found, as_torch(patterns, dtype).numpy())


@pytest.mark.parametrize("dtype", TORCH)
def test_every_value_is_judged_as_torch_does(dtype: str) -> None:
    """One by one, so that no pattern hides behind another."""
    values = as_torch(every_pattern(dtype), dtype)
    for pattern, value in zip(every_pattern(dtype), values.tolist(), strict=True):
        count = Count()
        count_block(np.array([pattern]).view(np.uint8), dtype, count)
        assert (count.nan, count.infinite) == (int(math.isnan(value)), int(math.isinf(value))), hex(pattern)


@pytest.mark.parametrize("dtype", TORCH)
def test_a_block_is_counted_as_torch_does(dtype: str) -> None:
    patterns = every_pattern(dtype)
    np.random.default_rng(1).shuffle(patterns)
    values, count = as_torch(patterns, dtype), Count()
    for start in range(0, len(patterns), 1000):
        count_block(patterns[start : start + 1000].view(np.uint8), dtype, count)
    assert count.nan == int(torch.isnan(values).sum())
    assert count.infinite == int(torch.isinf(values).sum())


@pytest.mark.parametrize("length", range(1, 20))
def test_one_bad_value_is_found_wherever_it_stands(length: int) -> None:
    """Also in the last elements, which fill no word of eight bytes."""
    for place in range(length):
        block = np.full(length, 1.5, np.float16)
        block[place] = math.nan
        count = Count()
        count_block(block.view(np.uint8), "F16", count)
        assert (count.nan, count.infinite) == (1, 0)


def test_no_float_dtype_of_the_format_is_forgotten() -> None:
    from shardtool.checkpoint.dtypes import DTYPE_BITS

    floats = {dtype for dtype in DTYPE_BITS if dtype.startswith(("F", "BF", "C"))}
    assert floats - FLOATS.keys() - NAN_ONLY.keys() == {"F4", "F6_E2M3", "F6_E3M2"}


def halves(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}e", *values)


def test_the_distance_is_the_largest_and_mean_difference_of_the_finite() -> None:
    found = distance("F16", [halves(1, 2), halves(3, math.nan)], [halves(1, 2.5), halves(3.25, 1)])
    assert (found.largest, found.mean, found.changed, found.not_finite) == (0.5, 0.25, 3, 1)


def test_bits_that_mean_the_same_are_changed_by_nothing() -> None:
    found = distance("F32", [struct.pack("<f", 0.0)], [struct.pack("<f", -0.0)])
    assert (found.largest, found.mean, found.changed) == (0.0, 0.0, 1)


def test_large_integers_that_differ_by_one_are_changed() -> None:
    found = distance("I64", [struct.pack("<q", 2**62)], [struct.pack("<q", 2**62 + 1)])
    assert found.changed == 1


def test_a_distance_beyond_all_numbers_is_the_largest_of_them() -> None:
    """JSON knows no infinity."""
    largest = sys.float_info.max
    a, b = struct.pack("<3d", largest, -largest, 1), struct.pack("<3d", -largest, largest, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = distance("F64", [a, a], [b, b])
    assert (found.largest, found.changed) == (largest, 6)
    assert found.mean is not None and found.mean <= largest


def test_nothing_finite_has_no_distance() -> None:
    found = distance("F16", [halves(math.inf)], [halves(math.nan)])
    assert (found.largest, found.mean, found.changed, found.not_finite) == (None, None, 1, 1)


def test_what_is_not_decoded_has_no_distance() -> None:
    assert distance("F4", [b"\x12"], [b"\x34"]).largest is None
