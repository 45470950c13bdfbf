"""What the bytes of tensors mean: not-a-number and infinite values, zeros, and how far two tensors lie apart.

Needs numpy, which has no bfloat16 and no 8-bit floats: those are told apart by their bits. In every float dtype the
values beyond the finite ones are, read as integers, larger than a bound: as signed integers for the positive ones, as
unsigned integers for the negative ones. Two maxima over a block therefore say that all is well, at the speed of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class FloatBits:
    """How a float dtype encodes what is not finite: patterns of ``width`` bytes.

    ``finite`` is the largest finite magnitude and ``infinite`` the pattern of infinity, if there is one.
    """

    width: int
    finite: int
    infinite: int | None

    @property
    def sign(self) -> int:
        return 1 << (8 * self.width - 1)

    @property
    def top_exponent_bit(self) -> int:
        """Set in magnitudes of 2 and more only, in each of these dtypes."""
        return self.sign >> 1


FLOATS: Mapping[str, FloatBits] = {
    "F64": FloatBits(8, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000),
    "F32": FloatBits(4, 0x7F7FFFFF, 0x7F800000),
    "C64": FloatBits(4, 0x7F7FFFFF, 0x7F800000),
    "F16": FloatBits(2, 0x7BFF, 0x7C00),
    "BF16": FloatBits(2, 0x7F7F, 0x7F80),
    "F8_E5M2": FloatBits(1, 0x7B, 0x7C),
    "F8_E4M3": FloatBits(1, 0x7E, None),
}
"""Of the dtypes in which NaN and infinity follow the largest number; see ``NAN_ONLY`` for the others."""

NAN_ONLY: Mapping[str, int] = {"F8_E4M3FNUZ": 0x80, "F8_E5M2FNUZ": 0x80, "F8_E8M0": 0xFF}
"""8-bit dtypes with a single NaN and no infinity, and its pattern. F4 and F6 have neither."""


@dataclass
class Count:
    """What was found in a tensor so far. ``zero_bytes`` are those in blocks of nothing but zeros."""

    nan: int = 0
    infinite: int = 0
    not_bool: int = 0
    zero_bytes: int = 0

    @property
    def is_bad(self) -> bool:
        return bool(self.nan or self.infinite or self.not_bool)

    def __add__(self, other: Count) -> Count:
        return Count(
            self.nan + other.nan,
            self.infinite + other.infinite,
            self.not_bool + other.not_bool,
            self.zero_bytes + other.zero_bytes,
        )


def count_block(block: NDArray[np.uint8], dtype: str, count: Count) -> None:
    """Add what ``block``, whole elements of ``dtype``, holds to ``count``."""
    bits = FLOATS.get(dtype)
    if bits is not None:
        _count_floats(block, bits, count)
    elif dtype in NAN_ONLY:
        count.nan += int(np.count_nonzero(block == NAN_ONLY[dtype]))
    elif dtype == "BOOL":
        count.not_bool += int(np.count_nonzero(block > 1))


def _count_floats(block: NDArray[np.uint8], bits: FloatBits, count: Count) -> None:
    """Two cheap passes before the dear one: most blocks hold no magnitude of 2 or more, hence nothing infinite."""
    union = _union(block, bits.width)
    if union == 0:
        count.zero_bytes += len(block)
    if not union & bits.top_exponent_bit:
        return
    unsigned = block.view(f"<u{bits.width}")
    if int(unsigned.max()) > bits.finite + bits.sign or int(block.view(f"<i{bits.width}").max()) > bits.finite:
        _count_not_finite(unsigned, bits, count)


def _union(block: NDArray[np.uint8], width: int) -> int:
    """All bits that are set in any element of ``width`` bytes. Words of eight bytes are the fastest to combine."""
    rest = len(block) % 8
    union = int(np.bitwise_or.reduce(block[: len(block) - rest].view("<u8")))
    for element in block[-rest:].view(f"<u{width}").tolist() if rest else ():
        union |= element
    for shift in (32, 16, 8):
        if shift >= 8 * width:
            union = (union | union >> shift) & ((1 << shift) - 1)
    return union


def _count_not_finite(unsigned: NDArray[Any], bits: FloatBits, count: Count) -> None:
    magnitude = unsigned & unsigned.dtype.type(bits.sign - 1)
    beyond = int(np.count_nonzero(magnitude > bits.finite))
    infinite = 0 if bits.infinite is None else int(np.count_nonzero(magnitude == bits.infinite))
    count.nan += beyond - infinite
    count.infinite += infinite


_LARGEST = np.finfo(np.float64).max


@dataclass(frozen=True)
class Distance:
    """How far two tensors of one form lie apart: over the pairs of finite numbers, in units of the numbers themselves.

    A distance beyond the largest float64 is given as that one.

    ``changed`` counts the elements whose bits differ, ``not_finite`` those of them with a NaN or an infinity in one of
    the two. All are ``None`` or 0 where the dtype is not decoded (below eight bits); the first two also where no pair
    is finite.
    """

    largest: float | None
    mean: float | None
    changed: int
    not_finite: int


def distance(dtype: str, a: Iterable[bytes], b: Iterable[bytes]) -> Distance:
    """The distance between two tensors of ``dtype``, given in equal blocks of whole elements."""
    largest, total, counted, changed, not_finite = 0.0, 0.0, 0, 0, 0
    for one, other in zip(a, b, strict=True):
        x, y = decode(one, dtype), decode(other, dtype)
        if x is None or y is None:
            continue
        finite = np.isfinite(x) & np.isfinite(y)
        with np.errstate(over="ignore"):
            apart = np.minimum(np.abs(x[finite] - y[finite]), _LARGEST)
            total += float(apart.sum())
        largest = max(largest, float(apart.max(initial=0)))
        counted += apart.size
        different = (_rows(one, x.size) != _rows(other, x.size)).any(axis=1)
        changed += int(np.count_nonzero(different))
        not_finite += int(np.count_nonzero(different & ~finite))
    if not counted:
        return Distance(None, None, changed, not_finite)
    return Distance(largest, min(total / counted, largest), changed, not_finite)  # the sum may be beyond all numbers


def _rows(data: bytes, elements: int) -> NDArray[np.uint8]:
    """The bytes of each element."""
    return np.frombuffer(data, np.uint8).reshape(elements, -1)


def decode(data: bytes, dtype: str) -> NDArray[Any] | None:
    """The numbers in ``data`` as float64 (complex128 for C64), or ``None`` for a dtype below eight bits."""
    native = _NATIVE.get(dtype)
    if native is not None:
        return _widened(np.frombuffer(data, native), np.complex128 if dtype == "C64" else np.float64)
    if dtype == "BF16":
        return _widened((np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4"), np.float64)
    if dtype in _EIGHT_BITS:
        return _table(dtype)[np.frombuffer(data, np.uint8)]
    return None


def _widened(found: NDArray[Any], to: type[np.generic]) -> NDArray[Any]:
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one, which is no news here
        return found.astype(to)


_NATIVE: Mapping[str, str] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "C64": "<c8",
    "BOOL": "u1",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
}

_EIGHT_BITS: Mapping[str, tuple[int, int, int]] = {
    "F8_E5M2": (5, 2, 15),
    "F8_E5M2FNUZ": (5, 2, 16),
    "F8_E4M3": (4, 3, 7),
    "F8_E4M3FNUZ": (4, 3, 8),
    "F8_E8M0": (8, 0, 127),
}
"""Bits of exponent and mantissa, and the exponent's bias. E8M0 has no sign and no zero."""


def _table(dtype: str) -> NDArray[Any]:
    """The 256 values of an 8-bit float."""
    exponent_bits, mantissa_bits, bias = _EIGHT_BITS[dtype]
    patterns = np.arange(256)
    exponent = (patterns >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = (patterns & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    if dtype == "F8_E8M0":
        values = 2.0 ** (exponent - bias)
    else:
        subnormal = exponent == 0
        values = np.where(subnormal, mantissa * 2.0 ** (1 - bias), (1 + mantissa) * 2.0 ** (exponent - bias))
        values = np.where(patterns & 0x80, -values, values)
    if dtype in NAN_ONLY:
        values[NAN_ONLY[dtype]] = np.nan
    else:
        bits = FLOATS[dtype]
        magnitude = patterns & 0x7F
        values[magnitude > bits.finite] = np.nan
        if bits.infinite is not None:
            values[bits.infinite], values[bits.infinite | bits.sign] = np.inf, -np.inf
    return values
