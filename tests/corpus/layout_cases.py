"""Headers that are well formed and contradict the data: holes, overlaps, missing and surplus bytes."""

from __future__ import annotations

from tests.corpus.case import Case, Make, raw_file, reject, tensor


def _two(first: tuple[int, int], second: tuple[int, int], data: int = 16) -> Make:
    return raw_file({"a": tensor(offsets=first), "b": tensor(offsets=second)}, bytes(data))


CASES: list[Case] = [
    reject("hole-in-front", raw_file({"a": tensor(offsets=(4, 12))}, bytes(12)), "hole", "'a'", "4 bytes"),
    reject("hole-in-the-middle", _two((0, 8), (12, 20), 20), "hole", "'b'", "4 bytes"),
    reject(
        "hole-before-an-empty-tensor",
        raw_file({"a": tensor(), "b": tensor(shape=(0,), offsets=(9, 9))}, bytes(9)),
        "hole",
        "'b'",
    ),
    reject("trailing-byte", raw_file({"a": tensor()}, bytes(9)), "trailing_bytes", "1 bytes"),
    reject(
        "trailing-archive", raw_file({"a": tensor()}, bytes(8) + b"PK\x03\x04" + bytes(100)), "trailing_bytes", "104"
    ),
    reject("data-without-tensors", raw_file({}, bytes(8)), "trailing_bytes", "8 bytes"),
    reject("overlap-by-half", _two((0, 8), (4, 12), 12), "overlap", "'b'", "'a'"),
    reject("overlap-by-a-byte", _two((0, 8), (7, 15), 15), "overlap", "'b'", "'a'"),
    reject("hole-of-a-byte", _two((0, 8), (9, 17), 17), "hole", "'b'", "1 bytes"),
    reject("overlap-wholly", _two((0, 8), (0, 8), 8), "overlap", "'b'", "'a'"),
    reject(
        "overlap-inside",
        raw_file({"a": tensor(shape=(4,), offsets=(0, 16)), "b": tensor(offsets=(4, 12))}, bytes(16)),
        "overlap",
        "'b'",
        "'a'",
    ),
    reject("data-one-byte-short", raw_file({"a": tensor()}, bytes(7)), "truncated", "'a'", "8", "7"),
    reject("data-missing", raw_file({"a": tensor()}, b""), "truncated", "'a'"),
    reject("data-of-the-last-tensor-missing", _two((0, 8), (8, 16), 8), "truncated", "'b'"),
    reject("range-too-large", raw_file({"a": tensor(offsets=(0, 12))}, bytes(12)), "size_mismatch", "'a'", "8", "12"),
    reject("range-too-small", raw_file({"a": tensor(offsets=(0, 4))}, bytes(4)), "size_mismatch", "'a'", "8", "4"),
    reject("range-beyond-file", raw_file({"a": tensor(offsets=(2**40, 2**40 + 8))}), "hole truncated", "'a'"),
    reject("scalar-of-no-bytes", raw_file({"a": tensor(shape=(), offsets=(0, 0))}, b""), "size_mismatch", "'a'"),
    reject("empty-tensor-with-bytes", raw_file({"a": tensor(shape=(0,))}), "size_mismatch", "'a'"),
    reject("half-a-byte", raw_file({"a": tensor("F4", (3,), (0, 2))}, bytes(2)), "size_mismatch", "'a'", "12 bits"),
    reject("six-bits", raw_file({"a": tensor("F6_E2M3", (1,), (0, 1))}, bytes(1)), "size_mismatch", "'a'", "6 bits"),
    reject("dtype-of-another-size", raw_file({"a": tensor("F64")}), "size_mismatch", "'a'", "F64"),
]
