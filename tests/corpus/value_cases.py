"""Sound files with values that no model holds; and the largest, smallest and oddest that one may hold."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from pathlib import Path

from shardtool.checkpoint.digests import fingerprint
from tests.corpus.case import Case, Make, accept, raw_file, reject, tensor


def _values(dtype: str, data: bytes, width: int) -> Make:
    return raw_file({"a": tensor(dtype, (len(data) // width,), (0, len(data)))}, data)


def _recorded(flip: int | None, *, other_name: bool = False, other_dtype: bool = False) -> Make:
    """A file with its digests, of which one bit may be flipped afterwards."""

    def make(folder: Path) -> Path:
        data = struct.pack("<4f", 1, 2, 3, 4)
        path = raw_file({"a": tensor(shape=(4,), offsets=(0, 16))}, data)(folder)
        digests = {"b" if other_name else "a": hashlib.sha256(data).hexdigest()}
        forms = [(name, "I32" if other_dtype else "F32", [4]) for name in digests]
        entry = {"fingerprint": fingerprint(forms, digests), "tensors": digests}
        content = {"schema": "shardtool.digests/1", "checkpoints": {"x": entry}}
        (folder / "shardtool.digests.json").write_text(json.dumps(content))
        if flip is not None:
            raw = bytearray(path.read_bytes())
            raw[-16 + flip // 8] ^= 1 << flip % 8
            path.write_bytes(raw)
        return path

    return make


def _halves(*patterns: int) -> bytes:
    return struct.pack(f"<{len(patterns)}H", *patterns)


CASES: list[Case] = [
    reject(
        "nan-f32", _values("F32", struct.pack("<3f", 1, math.nan, 2), 4), "not_finite", "'a'", "1 NaN of 3", deep=True
    ),
    reject("nan-negative-f32", _values("F32", struct.pack("<2I", 0xFFC00000, 0), 4), "not_finite", "1 NaN", deep=True),
    reject("inf-f32", _values("F32", struct.pack("<2f", math.inf, 0), 4), "not_finite", "1 infinite", deep=True),
    reject("minus-inf-f64", _values("F64", struct.pack("<2d", -math.inf, 0), 8), "not_finite", "1 infinite", deep=True),
    reject("nan-f64", _values("F64", struct.pack("<2d", math.nan, 1e308), 8), "not_finite", "1 NaN", deep=True),
    reject("inf-f16", _values("F16", _halves(0x3C00, 0x7C00, 0xFC00), 2), "not_finite", "2 infinite of 3", deep=True),
    reject("nan-f16", _values("F16", _halves(0x7C01, 0x7BFF, 0xFE00), 2), "not_finite", "2 NaN of 3", deep=True),
    reject(
        "nan-and-inf-bf16", _values("BF16", _halves(0x7FC0, 0xFF80), 2), "not_finite", "1 NaN and 1 infinite", deep=True
    ),
    reject("nan-c64", _values("C64", struct.pack("<2f", 0, math.nan), 8), "not_finite", "1 NaN", deep=True),
    reject("nan-f8-e4m3", _values("F8_E4M3", b"\x7f\xff\x7e", 1), "not_finite", "2 NaN of 3", deep=True),
    reject("inf-f8-e5m2", _values("F8_E5M2", b"\x7c\xfd\x7b", 1), "not_finite", "1 NaN and 1 infinite", deep=True),
    reject("nan-f8-fnuz", _values("F8_E4M3FNUZ", b"\x80\x7f", 1), "not_finite", "1 NaN of 2", deep=True),
    reject("nan-f8-scale", _values("F8_E8M0", b"\xff\xfe", 1), "not_finite", "1 NaN of 2", deep=True),
    reject("bool-of-two", _values("BOOL", b"\0\1\2", 1), "bool_invalid", "1 neither 0 nor 1 of 3", deep=True),
    reject("bit-flipped", _recorded(37), "digest_mismatch", "'a'", "SHA-256", deep=True),
    reject("digests-of-another-tensor", _recorded(None, other_name=True), "digests_stale", "0 of the 1", deep=True),
    reject("digests-of-another-dtype", _recorded(None, other_dtype=True), "digests_stale", "dtypes", deep=True),
    accept("recorded", _recorded(None), deep=True),
    accept("largest-f32", _values("F32", struct.pack("<2I", 0x7F7FFFFF, 0xFF7FFFFF), 4), deep=True),
    accept("largest-f16", _values("F16", _halves(0x7BFF, 0xFBFF), 2), deep=True),
    accept("largest-bf16", _values("BF16", _halves(0x7F7F, 0xFF7F), 2), deep=True),
    accept("largest-f64", _values("F64", struct.pack("<2Q", 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF), 8), deep=True),
    accept("largest-f8-e4m3", _values("F8_E4M3", b"\x7e\xfe", 1), deep=True),
    accept("largest-f8-e5m2", _values("F8_E5M2", b"\x7b\xfb", 1), deep=True),
    accept("smallest-f16", _values("F16", _halves(0x0001, 0x8001, 0x8000), 2), deep=True),
    accept("integers-of-all-ones", _values("I64", b"\xff" * 16, 8), deep=True),
    accept("all-patterns-of-f4", raw_file({"a": tensor("F4", (512,), (0, 256))}, bytes(range(256))), deep=True),
]
