"""Every case of the corpus through the real commands: right verdict, right words, nothing run, nothing hung."""

from __future__ import annotations

import json
import signal
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.app import app
from tests.corpus import (
    config_cases,
    header_cases,
    index_cases,
    layout_cases,
    pickle_cases,
    shard_cases,
    valid_cases,
    value_cases,
)
from tests.corpus.case import SENTINEL, Case

CASES: list[Case] = [
    *header_cases.CASES,
    *layout_cases.CASES,
    *value_cases.CASES,
    *valid_cases.CASES,
    *index_cases.CASES,
    *shard_cases.CASES,
    *pickle_cases.CASES,
    *config_cases.CASES,
]
SECONDS = 60
"""After which a command is taken to hang; the slowest takes well under one second."""


@contextmanager
def bounded() -> Iterator[None]:
    """Fail instead of hanging."""

    def late(signum: int, frame: object) -> None:
        raise TimeoutError("hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(*arguments: object) -> Result:
    with bounded():
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def problems_in(data: Any) -> Iterator[dict[str, Any]]:
    """Every problem anywhere in a document."""
    if isinstance(data, dict):
        if {"code", "severity", "message"} <= data.keys():
            yield data
        for value in data.values():
            yield from problems_in(value)
    elif isinstance(data, list):
        for value in data:
            yield from problems_in(value)


def safe_for_a_terminal(text: str) -> bool:
    return not any(unicodedata.category(char) in ("Cc", "Cf") for char in text.replace("\n", ""))


def judge(case: Case, document: dict[str, Any]) -> None:
    """The codes are exactly the case's, and the messages hold its words."""
    found = list(problems_in(document))
    severity = "error" if case.verdict == "reject" else "warning"
    told = [problem for problem in found if problem["severity"] == severity]
    error = document["error"]
    if not told and error:  # nothing could be looked into: the error is the whole answer
        told = [error]
    codes = {problem["code"] for problem in told}
    said = " ".join(f"{problem['message']} {problem['hint'] or ''}" for problem in told)
    if case.verdict == "reject":
        assert codes <= case.codes and codes, (codes, said)
    else:
        assert codes == case.codes, (codes, said)
        assert not [problem for problem in found if problem["severity"] == "error"], found
    for word in case.words:
        assert word in said, said


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_is_judged_rightly(case: Case, tmp_path: Path) -> None:
    source = case.make(tmp_path)
    depth = "--deep" if case.deep else "--structure"
    verified = run("verify", source, depth, "--json")
    assert verified.exit_code in ((0,) if case.verdict == "accept" else (1, 3))
    judge(case, json.loads(verified.stdout))

    if not case.deep:
        inspected = run("inspect", source, "--json")
        assert inspected.exit_code == (0 if case.verdict == "accept" else 3)
        judge(case, json.loads(inspected.stdout))

    for_people = ["verify", "--structure"] if case.verdict == "reject" else ["inspect", "--tensors", "--metadata"]
    shown = run(*for_people, source)
    assert safe_for_a_terminal(shown.output), shown.output
    assert "Traceback" not in shown.output
    assert not (tmp_path / SENTINEL).exists(), "code from the checkpoint was run"


BYTES = [
    case
    for group in (header_cases, layout_cases, index_cases, shard_cases, pickle_cases)
    for case in group.CASES
    if case.verdict == "reject"
]


@pytest.mark.parametrize("case", BYTES, ids=lambda case: case.name)
def test_what_is_refused_is_not_sharded_either(case: Case, tmp_path: Path) -> None:
    """The same guard stands before the commands that write: nothing is written, nothing is run."""
    refused = run("shard", case.make(tmp_path), "-o", tmp_path / "out", "--no-fsync", "--json")
    assert refused.exit_code in (3, 4)
    assert json.loads(refused.stdout)["error"]["code"]
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / SENTINEL).exists(), "code from the checkpoint was run"


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 250
    assert sum(case.verdict == "accept" for case in CASES) >= 60


def test_the_pickles_are_live(tmp_path: Path) -> None:
    """They do write the sentinel where somebody unpickles them, so its absence means something."""
    import pickle

    pickle.loads(pickle_cases.payload(tmp_path))  # noqa: S301 (our own)
    assert (tmp_path / SENTINEL).exists()
