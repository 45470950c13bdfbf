"""Token counts without transformers, and the words that are lost; transformers is the referee."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import CLIPTokenizer

from shardtool.errors import InputError, UsageError
from shardtool.events import Event, Note
from shardtool.images.settings import Job, Settings
from shardtool.images.tokens import PromptTokenizer, check_prompts, measure_prompts, read_tokenizers
from shardtool.parts import read_parts
from tests.models import copied, edited

TEXTS = [
    "",
    "dog",
    "a cute dog running on the grass",
    "A  DOG,\n\twith   spaces",
    "it's the artist's 4k photo, f/2.8!!",
    "größe Ünïcode 狗 🐶 e\u0301",
    "<|endoftext|> dog",
    "supercalifragilisticexpialidocious " * 9,
]


@pytest.fixture(scope="module", params=["tokenizer.json", "vocab.json"])
def folder(demo: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The demo's tokenizer, and the same as older repos have it."""
    if request.param == "tokenizer.json":
        return demo / "tokenizer"
    copy = tmp_path_factory.mktemp("old") / "tokenizer"
    shutil.copytree(demo / "tokenizer", copy)
    (copy / "tokenizer.json").unlink()
    return copy


@pytest.mark.parametrize("text", TEXTS)
def test_the_count_is_that_of_transformers(folder: Path, text: str) -> None:
    expected = len(CLIPTokenizer.from_pretrained(folder)(text).input_ids)
    length = PromptTokenizer(folder).measure("prompt", text)
    assert (length.tokens, length.limit) == (expected, 32)


def test_the_words_beyond_the_limit_are_lost_and_no_others(folder: Path) -> None:
    words = [f"{colour} circle" for colour in ("red", "blue", "green") for _ in range(8)]
    text = " ".join(words)
    length = PromptTokenizer(folder).measure("prompt", text)
    assert length.is_long
    assert text.endswith(length.lost)
    kept = text.removesuffix(length.lost)
    assert PromptTokenizer(folder).measure("prompt", kept).tokens == length.limit
    assert not PromptTokenizer(folder).measure("prompt", "red circle").lost


def test_each_text_is_measured_once_by_the_tokenizer_that_reads_it(demo: Path) -> None:
    tokenizers = read_tokenizers(read_parts(demo))
    assert len(tokenizers) == 2
    assert [one.field for one in measure_prompts(Settings("dog"), tokenizers)] == ["prompt"]
    fields = [one.field for one in measure_prompts(Settings("dog", "a cat", "a fox", "a bear"), tokenizers)]
    assert fields == ["prompt", "negative_prompt", "prompt_2", "negative_prompt_2"]


def test_what_is_told_of_a_long_prompt(demo: Path) -> None:
    tokenizers = read_tokenizers(read_parts(demo))
    jobs = [Job(index, index, Settings("dog " * 40 + "cat"), None) for index in (1, 2)]
    told: list[Event] = []
    lengths = check_prompts(jobs, tokenizers, "warn", told.append)
    assert lengths[1] == lengths[2]
    (note,) = told
    assert isinstance(note, Note)
    assert note.warning
    assert note.text.startswith("prompt: 43 tokens, 32 used; lost:")
    assert note.text.endswith('dog cat"')
    with pytest.raises(UsageError, match="lost"):
        check_prompts(jobs, tokenizers, "error", told.append)
    told.clear()
    check_prompts(jobs, tokenizers, "chunk", told.append)
    assert [one.text for one in told if isinstance(one, Note)] == ["prompt: 43 tokens, encoded in 2 windows of 32"]


def test_a_damaged_tokenizer_is_an_input_error(demo: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "vocab.json"):
        folder = tmp_path / name
        shutil.copytree(demo / "tokenizer", folder)
        (folder / "tokenizer.json").unlink()
        (folder / name).write_text('{"a": ')
        with pytest.raises(InputError) as error:
            PromptTokenizer(folder)
        assert error.value.code == "tokenizer_invalid"


def test_each_tokenizer_keeps_its_own_limit(demo: Path, tmp_path: Path) -> None:
    """Though their vocabularies are one."""
    copy = copied(demo, tmp_path / "copy")
    edited(copy / "tokenizer_2" / "tokenizer_config.json", model_max_length=16)
    assert [tokenizer.limit for tokenizer in read_tokenizers(read_parts(copy))] == [32, 16]


@pytest.mark.parametrize("limit", [None, 1e9, "77", 0, True])
def test_a_tokenizer_without_a_limit_is_refused(demo: Path, tmp_path: Path, limit: object) -> None:
    """With it, the pipeline would fail at its first prompt."""
    folder = copied(demo / "tokenizer", tmp_path / "tokenizer")
    edited(folder / "tokenizer_config.json", model_max_length=limit)
    with pytest.raises(InputError) as error:
        read_tokenizers(read_parts(demo, {"tokenizer": folder}))
    assert (error.value.code, error.value.path) == ("tokenizer_invalid", str(folder / "tokenizer_config.json"))


@pytest.mark.parametrize("name", ["tokenizer", "tokenizer_2"])
def test_a_tokenizer_of_more_tokens_than_its_encoder_knows_is_refused(demo: Path, tmp_path: Path, name: str) -> None:
    other = copied(demo / name, tmp_path / name)
    vocabulary = json.loads((other / "vocab.json").read_text())
    (other / "vocab.json").write_text(json.dumps({**vocabulary, "dog</w>": 5000}))
    (other / "tokenizer.json").unlink()
    with pytest.raises(InputError) as error:
        read_tokenizers(read_parts(demo, {name: other}))
    assert (error.value.code, error.value.path) == ("partner_mismatch", str(other))
    assert "has tokens up to number 5,000, its text encoder 1,232" in error.value.message


@pytest.mark.parametrize("name", ["tokenizer", "tokenizer_2"])
@pytest.mark.parametrize("named", ["<pad>", {"content": "<pad>", "__type": "AddedToken"}])
@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_padding_that_the_encoder_does_not_know_is_refused(
    demo: Path, tmp_path: Path, name: str, named: object, file: str
) -> None:
    """Every prompt is filled up with it, so every prompt would fail."""
    other = copied(demo / name, tmp_path / name)
    path = other / file
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | {"pad_token": named}))
    assert CLIPTokenizer.from_pretrained(other).pad_token_id == 1232
    with pytest.raises(InputError, match="has tokens up to number 1,232, its text encoder 1,232") as error:
        read_tokenizers(read_parts(demo, {name: other}))
    assert error.value.code == "partner_mismatch"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token": "!"}))
    assert len(read_tokenizers(read_parts(demo, {name: other}))) == 2


BARE: dict[str, Any] = {"added_tokens": [], "normalizer": None, "post_processor": None, "decoder": None}
PRECOMPILED = {"type": "Precompiled", "precompiled_charsmap": "/////w=="}
NOTHING_LONG = {"type": "FixedLength", "length": 0}
SLOW = {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}, "behavior": "Removed", "invert": False}
MERGES = {"type": "BPE", "continuing_subword_prefix": "##", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]}
NO_UNKNOWN = {"type": "WordLevel", "unk_token": "[U]", "vocab": {"a": 0}}


@pytest.mark.parametrize(
    "changes",
    [
        {"normalizer": PRECOMPILED},
        {"pre_tokenizer": NOTHING_LONG},
        {"pre_tokenizer": SLOW},
        {"pre_tokenizer": None, "model": NO_UNKNOWN},
        {
            "model": {
                "type": "BPE",
                "continuing_subword_prefix": "##",
                "vocab": {"a": 0, "b": 1},
                "merges": [["a", "b"]],
            }
        },
    ],
)
def test_a_tokenizer_that_makes_its_library_fail_or_panic_is_an_input_error(
    demo: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Some of it shows only when a prompt is read; a panic is no ``Exception``."""
    folder = copied(demo / "tokenizer", tmp_path / "tokenizer")
    edited(folder / "tokenizer.json", **{**BARE, **changes})
    with pytest.raises(InputError) as error:
        PromptTokenizer(folder).measure("prompt", "a" * 60 + "b")
    assert (error.value.code, error.value.path) == ("tokenizer_invalid", str(folder))
    assert "\n" not in error.value.message
