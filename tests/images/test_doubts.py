"""Prompts that are probably not meant are told of; those that the demo has learnt are not."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from shardtool.events import Event, Note
from shardtool.images.doubts import tell_doubts
from tests.conftest import ROOT


def codes(prompts: Iterable[str], *, of_demo: bool = True) -> list[str]:
    told: list[Event] = []
    tell_doubts(prompts, of_demo=of_demo, on_event=told.append)
    assert all(isinstance(note, Note) and note.warning for note in told)
    return [note.code for note in told if isinstance(note, Note)]


def test_everything_that_the_demo_was_trained_on_is_known() -> None:
    with np.load(ROOT / "examples/demo-model/data.npz") as data:
        names = [name for words in data["words"].tolist() for name in words.split("|")]
    assert len(names) > 163
    assert codes(names) == []
    assert codes(f"A cute {name.upper()}, running on the grass" for name in names) == []


@pytest.mark.parametrize("prompt", ["zebra", "dogs", "two trains", "catalogue", "ice", "🐶", "a\x1b[2J"])
def test_what_it_never_saw_is_told_of(prompt: str) -> None:
    assert codes([prompt]) == ["demo_unknown"]
    assert codes([prompt, "a dog", prompt, "zzz"]) == ["demo_unknown"]
    assert codes([prompt], of_demo=False) == []


def test_an_empty_prompt_is_no_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes([""]) == []
    (tmp_path / "model_index.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert codes([""]) == []


def test_a_model_among_the_prompts_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sdxl").mkdir()
    (tmp_path / "sdxl/model_index.json").write_text("{}")
    (tmp_path / "my model").mkdir()
    (tmp_path / "my model/model_index.json").write_text("{}")
    (tmp_path / "rocket").mkdir()
    monkeypatch.chdir(tmp_path)
    for prompt in ("demo", "sdxl", "sdxl/"):
        assert codes([prompt, "dog"]) == codes([prompt, "dog"], of_demo=False) == ["prompt_names_model"]
    told: list[Event] = []
    tell_doubts(["my model", "sdxl"], of_demo=False, on_event=told.append)
    (note,) = told
    assert isinstance(note, Note)
    assert '"my model" (and 1 more)' in note.text and note.text.endswith("--model 'my model'")
    assert codes(["rocket", "a dog at sdxl", "dog" * 2000, "dog\0"], of_demo=False) == []
