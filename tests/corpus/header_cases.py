"""Files whose header is no valid one. The reference parser's verdict on each is checked in the tests."""

from __future__ import annotations

import os
from pathlib import Path

from tests.corpus.case import Case, raw_file, reject, tensor, whole_file

GOOD = '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'


def _entry(dtype: str = '"F32"', shape: str = "[2]", offsets: str = "[0,8]", more: str = "") -> str:
    return f'{{"a":{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}{more}}}}}'


def _sparse_giant(folder: Path) -> Path:
    """A file of more than 100 MB that promises a header of that size; it takes no room on the disk."""
    path = folder / "x.safetensors"
    with path.open("wb") as file:
        file.write((100_000_001).to_bytes(8, "little") + b"{")
    os.truncate(path, 100_000_100)
    return path


_TEXTS: dict[str, tuple[str | bytes, str, tuple[str, ...]]] = {
    "not-json": ("weights!", "header_invalid", ("not JSON",)),
    "list": ("[]", "header_invalid", ("not a JSON object",)),
    "string": ('"a"', "header_invalid", ("not a JSON object",)),
    "null": ("null", "header_invalid", ("not a JSON object",)),
    "number": ("8", "header_invalid", ("not a JSON object",)),
    "byte-order-mark": (b"\xef\xbb\xbf" + GOOD.encode(), "header_invalid", ("not JSON",)),
    "utf-16": (GOOD.encode("utf-16-le"), "header_invalid", ("JSON",)),
    "latin-1": (GOOD.replace('"a"', '"é"').encode("latin-1"), "header_invalid", ("not UTF-8",)),
    "trailing-nul": (GOOD + "\0", "header_invalid", ("not JSON",)),
    "trailing-comma": (GOOD[:-1] + ",}", "header_invalid", ("not JSON",)),
    "comment": (GOOD + "// fine", "header_invalid", ("not JSON",)),
    "single-quotes": (GOOD.replace('"', "'"), "header_invalid", ("not JSON",)),
    "cut-in-the-middle": (GOOD[:20], "header_invalid", ("not JSON",)),
    "raw-newline-in-name": (GOOD.replace('"a"', '"a\n"'), "header_invalid", ("not JSON",)),
    "nan": (_entry(shape="[NaN]"), "header_invalid", ("NaN",)),
    "infinity": (_entry(offsets="[0,Infinity]"), "header_invalid", ("Infinity",)),
    "lone-surrogate": (GOOD.replace('"a"', '"\\ud800"'), "header_invalid", ("surrogate",)),
    "deep": (_entry(more=',"x":' + "[" * 100_000 + "]" * 100_000), "header_invalid", ("nested",)),
    "number-beyond-range": (_entry(more=',"x":1e400'), "header_invalid", ("1e400",)),
    "duplicate-tensor": (GOOD[:-1] + "," + GOOD[1:], "duplicate_name", ("'a'", "twice")),
    "duplicate-other-dtype": (GOOD[:-1] + "," + GOOD[1:].replace("F32", "I32"), "duplicate_name", ("'a'", "twice")),
    "duplicate-by-escape": (GOOD[:-1] + "," + GOOD[1:].replace('"a"', '"\\u0061"'), "duplicate_name", ("'a'",)),
    "duplicate-field": (_entry(more=',"dtype":"I32"'), "duplicate_name", ("'dtype'",)),
    "duplicate-metadata": ('{"__metadata__":{},"__metadata__":{},' + GOOD[1:], "duplicate_name", ("__metadata__",)),
    "duplicate-metadata-key": ('{"__metadata__":{"k":"1","k":"2"},' + GOOD[1:], "duplicate_name", ("'k'",)),
    "metadata-null": ('{"__metadata__":null,' + GOOD[1:], "header_invalid", ("__metadata__",)),
    "metadata-list": ('{"__metadata__":[],' + GOOD[1:], "header_invalid", ("__metadata__",)),
    "metadata-number": ('{"__metadata__":{"k":1},' + GOOD[1:], "header_invalid", ("__metadata__",)),
    "metadata-nested": ('{"__metadata__":{"k":{}},' + GOOD[1:], "header_invalid", ("__metadata__",)),
    "entry-null": ('{"a":null}', "header_invalid", ("'a'", "object")),
    "entry-list": ('{"a":["F32",[2],[0,8]]}', "header_invalid", ("'a'", "object")),
    "entry-text": ('{"a":"F32"}', "header_invalid", ("'a'", "object")),
    "dtype-missing": ('{"a":{"shape":[2],"data_offsets":[0,8]}}', "dtype_unknown", ("'a'", "None")),
    "dtype-unknown": (_entry('"F128"'), "dtype_unknown", ("'a'", "F128")),
    "dtype-lower-case": (_entry('"f32"'), "dtype_unknown", ("'a'", "f32")),
    "dtype-number": (_entry("4"), "dtype_unknown", ("'a'", "4")),
    "dtype-null": (_entry("null"), "dtype_unknown", ("'a'",)),
    "shape-missing": ('{"a":{"dtype":"F32","data_offsets":[0,8]}}', "header_invalid", ("'a'", "shape")),
    "shape-number": (_entry(shape="2"), "header_invalid", ("'a'", "shape")),
    "shape-null": (_entry(shape="null"), "header_invalid", ("'a'", "shape")),
    "shape-negative": (_entry(shape="[-2]"), "header_invalid", ("'a'", "-2")),
    "shape-two-negatives": (_entry(shape="[-1,-2]"), "header_invalid", ("'a'", "-1")),
    "shape-float": (_entry(shape="[2.0]"), "header_invalid", ("'a'", "2.0")),
    "shape-exponent": (_entry(shape="[2e0]"), "header_invalid", ("'a'", "shape")),
    "shape-true": (_entry(shape="[true,2]"), "header_invalid", ("'a'", "True")),
    "shape-text": (_entry(shape='["2"]'), "header_invalid", ("'a'", "shape")),
    "shape-beyond-64-bits": (_entry(shape=f"[{2**64}]"), "header_invalid", ("'a'", "shape")),
    "shape-5000-digits": (_entry(shape=f"[{'9' * 5000}]"), "header_invalid", ("digits",)),
    "shape-product-overflows": (_entry(shape=f"[{2**32},{2**32}]"), "size_mismatch", ("'a'", "beyond")),
    "shape-overflows-in-bits": (_entry(shape=f"[{2**61}]"), "size_mismatch", ("'a'", "beyond")),
    "shape-100000-huge-sides": (_entry(shape=str([2**60] * 100_000)), "size_mismatch", ("'a'", "beyond")),
    "offsets-missing": ('{"a":{"dtype":"F32","shape":[2]}}', "header_invalid", ("'a'", "data_offsets")),
    "offsets-null": (_entry(offsets="null"), "header_invalid", ("'a'", "data_offsets")),
    "offsets-one": (_entry(offsets="[8]"), "header_invalid", ("'a'", "data_offsets")),
    "offsets-three": (_entry(offsets="[0,4,8]"), "header_invalid", ("'a'", "data_offsets")),
    "offsets-reversed": (_entry(offsets="[8,0]"), "header_invalid", ("'a'", "[8, 0]")),
    "offsets-negative": (_entry(offsets="[-8,0]"), "header_invalid", ("'a'", "-8")),
    "offsets-float": (_entry(offsets="[0.0,8.0]"), "header_invalid", ("'a'", "data_offsets")),
    "offsets-text": (_entry(offsets='["0","8"]'), "header_invalid", ("'a'", "data_offsets")),
    "offsets-bool": (_entry(dtype='"U8"', shape="[1]", offsets="[false,true]"), "header_invalid", ("'a'",)),
    "offsets-beyond-64-bits": (_entry(offsets=f"[{2**64},{2**64 + 8}]"), "header_invalid", ("'a'", "data_offsets")),
}

_EVERY_FAULT = {
    "good": tensor(offsets=(0, 8)),
    "first": tensor("F31", offsets=(8, 16)),
    "second": tensor(shape=(-1,), offsets=(16, 24)),
    "third": tensor(shape=(3,), offsets=(24, 32)),
}

CASES: list[Case] = [
    reject("file-empty", whole_file(b""), "truncated", "x.safetensors", "0 bytes"),
    reject("file-of-seven-bytes", whole_file(b"\2\0\0\0\0\0\0"), "truncated", "7 bytes"),
    reject("length-of-zero", raw_file("", b"\1" * 8), "header_invalid", "no bytes"),
    reject("length-beyond-file", raw_file(GOOD, length=5000), "truncated", "5,008"),
    reject("length-of-all-ones", raw_file(GOOD, length=2**64 - 1), "not_safetensors", "18,446,744,073,709,551,615"),
    reject("length-above-the-limit", raw_file(GOOD, length=100_000_001), "not_safetensors", "100,000,001"),
    reject("length-above-the-limit-in-a-giant", _sparse_giant, "not_safetensors", "100,000,001"),
    reject("length-too-short", raw_file(GOOD, length=len(GOOD) - 1), "header_invalid", "not JSON"),
    reject("length-too-long", raw_file(GOOD, length=len(GOOD) + 8), "header_invalid", "JSON"),
    reject("length-big-endian", whole_file(len(GOOD).to_bytes(8, "big") + GOOD.encode() + bytes(8)), "not_safetensors"),
    *(
        reject(f"header-{name}", raw_file(text), code, "x.safetensors", *words)
        for name, (text, code, words) in _TEXTS.items()
    ),
    reject("header-shape-minus-zero", raw_file(_entry(shape="[-0]", offsets="[0,0]"), b""), "header_invalid", "-0"),
    reject(
        "header-shape-zero-by-huge",
        raw_file(_entry(shape=f"[0,{2**63}]", offsets="[0,0]"), b""),
        "header_invalid",
        "'a'",
        "shape",
    ),
    reject(
        "header-shape-overflows-before-zero",
        raw_file(_entry(shape=f"[{2**40},{2**40},0]", offsets="[0,0]"), b""),
        "size_mismatch",
        "'a'",
    ),
    reject(
        "header-every-fault-is-told",
        raw_file(_EVERY_FAULT, bytes(32)),
        "dtype_unknown header_invalid size_mismatch",
        "'first'",
        "'second'",
        "'third'",
    ),
]
