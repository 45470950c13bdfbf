"""Prompts files: what a line may say, and what is refused with its line number."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.errors import InputError
from shardtool.images.prompts import Asked, parse_prompts, read_prompts


def no_stdin() -> bytes:
    raise AssertionError("standard input was read")


def test_one_prompt_a_line_without_comments_and_blank_lines() -> None:
    asked = parse_prompts("a dog\n\n# a comment\n  a cat  \n", "f")
    assert [one.prompt for one in asked] == ["a dog", "a cat"]
    assert asked[1].where == "f, line 4"


def test_short_and_long_overrides_mean_the_same() -> None:
    short = parse_prompts("a cat --n blurry, dark --w 64 --h 96 --s 20 --d 7 --l 5.5", "f")[0]
    long = parse_prompts(
        "a cat --negative-prompt blurry, dark --width 64 --height 96 --steps 20 --seed 7 --guidance 5.5", "f"
    )[0]
    assert short == long
    assert short.prompt == "a cat"
    assert short.settings == {
        "negative_prompt": "blurry, dark",
        "width": 64,
        "height": 96,
        "steps": 20,
        "guidance": 5.5,
    }
    assert short.seeds == (7,)


def test_json_lines_are_told_by_their_first_character_or_the_suffix(tmp_path: Path) -> None:
    text = '{"prompt": "a cat", "seed": "1-3", "count": 2, "negative-prompt": "x"}\n"a dog"\n'
    asked = parse_prompts(text, "f")
    assert asked[0] == Asked("a cat", {"negative_prompt": "x"}, (1, 2, 3), 2, "f, line 1")
    assert asked[1].prompt == "a dog"
    path = tmp_path / "p.jsonl"
    path.write_text('"# not a comment"\n')
    assert [one.prompt for one in read_prompts(str(path), no_stdin)] == ["# not a comment"]


def test_standard_input_is_read_for_a_dash_only() -> None:
    assert read_prompts("-", lambda: "ein Hündchen\n".encode())[0].prompt == "ein Hündchen"


def test_a_dash_within_a_prompt_is_no_override() -> None:
    assert parse_prompts("a half--timbered house -- at night", "f")[0].prompt == "a half--timbered house -- at night"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\nb --colour red", 'line 2: "colour" is no setting'),
        ("a --s many", "line 1: steps is not a whole number"),
        ("a --d 4-1", "line 1"),
        ('{"prompt": 3}', 'not an object with a text "prompt"'),
        ('{"prompt": "a", "steps": 2.5}', "steps is not a whole number"),
        ('{"prompt": "a", "steps": true}', "steps is not a whole number"),
        ('{"prompt": "a"', "not JSON"),
    ],
)
def test_a_bad_line_is_named(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_prompts(text, "f")


@pytest.mark.parametrize(
    ("content", "code"), [(b"\xff\xfe", "prompts_invalid"), (b"# nothing\n", "prompts_empty"), (None, "file_missing")]
)
def test_a_file_that_holds_no_prompts(tmp_path: Path, content: bytes | None, code: str) -> None:
    path = tmp_path / "p.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_prompts(str(path), no_stdin)
    assert error.value.code == code


@settings(deadline=None, max_examples=100)
@given(st.text())
def test_any_text_is_prompts_or_an_input_error(text: str) -> None:
    try:
        asked = parse_prompts(text, "f")
    except InputError:
        return
    assert all("\n" not in one.prompt for one in asked)
