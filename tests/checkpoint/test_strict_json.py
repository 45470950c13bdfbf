"""JSON that means one thing only: what everybody reads alike is read, what two readers see differently is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.checkpoint.strict_json import MAX_DEPTH, DuplicateKeyError, parse_json_object, plain, read_json_object
from shardtool.errors import InputError

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
PLACES = st.lists(st.sampled_from(["[{}]", "[1, {}]", '{{"k": {}}}', '{{"a": 1, "k": {}, "b": []}}']), max_size=4)


def inside(places: list[str], text: str) -> bytes:
    """``text`` as a value somewhere within an object."""
    for place in places:
        text = place.format(text)
    return f'{{"outer": {text}}}'.encode("utf-8", "surrogatepass")


@given(st.dictionaries(TEXT, VALUES, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_what_everybody_reads_alike_is_read(found: dict[str, Any], ascii_only: bool, indent: int | None) -> None:  # noqa: FBT001
    """Characters beyond the first 65,536 are written as two escapes, which together are one."""
    text = json.dumps(found, ensure_ascii=ascii_only, indent=indent)
    assert parse_json_object(f" \n{text}\t".encode()) == found


@given(PLACES, TEXT, st.booleans(), st.lists(TEXT, max_size=3))
def test_a_key_that_stands_there_twice_is_named(places: list[str], key: str, escaped: bool, others: list[str]) -> None:  # noqa: FBT001
    """At any depth, with others between, and where one of the two is escaped."""
    again = "".join(f"\\u{ord(char):04x}" for char in key) if key.isascii() and escaped else json.dumps(key)[1:-1]
    between = "".join(f"{json.dumps(other)}: 0, " for other in dict.fromkeys(others) if other != key)
    with pytest.raises(DuplicateKeyError) as caught:
        parse_json_object(inside(places, f'{{{json.dumps(key)}: 1, {between}"{again}": 1}}'))
    assert caught.value.key == key


AMBIGUOUS = {
    "not a number": "NaN",
    "infinite": "Infinity",
    "negative infinite": "-Infinity",
    "beyond the range": "1e400",
    "negative beyond the range": "-1e400",
    "an integer that is no integer": "-0",
    "an integer of too many digits": "9" * 5000,
    "first half of a character": '"\\ud800"',
    "last of the first halves": '"x\\uDBFF"',
    "second half of a character": '"\\udc00x"',
    "last of the second halves": '"\\uDFFF"',
    "halves in the wrong order": '"\\ude00\\ud83d"',
    "half a character as a key": '{"\\ud800": 1}',
    "half a character, unescaped": '"\ud800"',
    "comment": "1 // one",
    "trailing comma": "[1,]",
    "control character": '"\x01"',
    "single quotes": "'x'",
    "leading zero": "01",
    "deep": "[" * 100_000 + "]" * 100_000,
}


@pytest.mark.parametrize("text", AMBIGUOUS.values(), ids=AMBIGUOUS)
@given(PLACES)
@settings(max_examples=10)
def test_what_readers_see_differently_is_refused_at_any_depth(text: str, places: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^not .{1,200}$"):
        parse_json_object(inside(places, text))


@pytest.mark.parametrize("coding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_other_codings_are_not_guessed(coding: str) -> None:
    with pytest.raises(ValueError, match=r"^not "):
        parse_json_object('{"a": 1}'.encode(coding))


@pytest.mark.parametrize("text", ["[]", '"x"', "1", "null", "true", "", "{", "{} x", '{"a": 1'])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not "):
        parse_json_object(text.encode())


def test_a_file_may_have_exactly_the_bytes_that_make_sense(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"a": 1}')
    assert read_json_object(path, code="config_invalid", limit=8) == {"a": 1}
    with pytest.raises(InputError) as caught:
        read_json_object(path, code="config_invalid", limit=7)
    assert (caught.value.code, caught.value.path) == ("config_invalid", str(path))


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"{", "config_invalid"),
        (b'{"a": 1, "a": 2}', "config_invalid"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "lfs_pointer"),
        (b"<!DOCTYPE html><html></html>", "web_page"),
    ],
)
def test_a_file_that_is_refused_is_named_and_recognised(tmp_path: Path, content: bytes, code: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_json_object(path, code="config_invalid")
    assert caught.value.code == code
    assert str(path) in caught.value.message


@pytest.mark.parametrize(("start", "stop"), [("[", "]"), ('{"a":', "}")])
def test_what_is_nested_too_deeply_is_refused_at_the_same_depth_by_every_python(start: str, stop: str) -> None:
    """Whoever walks through it later has as many levels as he needs."""
    assert parse_json_object(('{"x":' + start * 126 + "[1]" + stop * 126 + "}").encode())
    for depth in (128, 2000):
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json_object(('{"x":' + start * depth + "1" + stop * depth + "}").encode())


ANY_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def said(value: Any) -> Any:
    """The same with text in place of numbers that JSON has not."""
    if isinstance(value, dict):
        return {key: said(item) for key, item in value.items()}
    if isinstance(value, list):
        return [said(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


@given(ANY_VALUES)
def test_every_value_becomes_json_and_only_what_json_has_not_becomes_text(value: Any) -> None:
    again = json.loads(json.dumps(plain(value), allow_nan=False))
    assert said(again) == said(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.inf, "Infinity"), ([-math.inf], ["-Infinity"]), ({"a": (1.5, math.nan)}, {"a": [1.5, "NaN"]})],
)
def test_infinities_become_text(value: Any, text: Any) -> None:
    assert plain(value) == text


def test_what_is_too_deep_to_be_written_is_refused() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert plain(value) == value
    with pytest.raises(ValueError, match="too deeply"):
        plain({"a": value})
