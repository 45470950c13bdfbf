"""Prompts that are probably not meant: a model's name among them, or things that the embedded demo has never seen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote

from shardtool.checkpoint.names import PIPELINE_NAME
from shardtool.events import Listener, Note
from shardtool.source import DEMO, demo_path

_SHOWN = 60
_LONGEST = 3
"""Words of the longest name of a thing: jack o lantern."""


def tell_doubts(prompts: Iterable[str], *, of_demo: bool, on_event: Listener) -> None:
    """Warn of what is odd about ``prompts``; ``of_demo`` says that the embedded model draws them."""
    different = tuple(dict.fromkeys(prompts))
    models = [prompt for prompt in different if _names_a_model(prompt)]
    if models:
        typed = f"--model {quote(models[0])}"
        text = f'"{models[0]}"{_more(models)} is drawn as a prompt; the model of that name is taken with {typed}'
        on_event(Note("prompt_names_model", text, warning=True))
    if of_demo:
        things = _things()
        strange = [prompt for prompt in different if prompt not in ("", *models) and not _names_one(prompt, things)]
        if strange:
            text = (
                f'"{strange[0]:.{_SHOWN}}"{_more(strange)} names none of the things that the embedded demo draws '
                f"(dog, cat, rocket, …, in the singular), so expect another; {demo_path() / 'README.md'} lists them"
            )
            on_event(Note("demo_unknown", text, warning=True))


def _more(prompts: Sequence[str]) -> str:
    return f" (and {len(prompts) - 1:,} more)" if len(prompts) > 1 else ""


def _names_a_model(prompt: str) -> bool:
    try:
        return prompt == DEMO or (prompt != "" and (Path(prompt) / PIPELINE_NAME).is_file())
    except (OSError, ValueError):  # too long for a path, or a zero byte in it
        return False


def _things() -> frozenset[str]:
    """The names of everything that the demo has learnt, in words with one blank between them."""
    listed = Path(__file__).with_name("demo_things.txt").read_text("utf-8")
    return frozenset(" ".join(_words(name)) for line in listed.splitlines() for name in line.split(","))


def _names_one(prompt: str, things: frozenset[str]) -> bool:
    words = _words(prompt)
    return any(
        " ".join(words[at : at + length]) in things for length in range(1, _LONGEST + 1) for at in range(len(words))
    )


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
