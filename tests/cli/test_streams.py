"""Streams that are closed, or whose reader has gone: exit 1 keeps its one meaning, "the answer is no"."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).parent.parent.parent


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run ``line`` in bash, where ``$S`` is shardtool."""
    how: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace", "stdin": subprocess.DEVNULL}
    program = f'S="{sys.executable} -m cli"; {line}'
    return subprocess.run(["bash", "-c", program], cwd=ROOT, **how)


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", ">&- 2>&- <&-"])
def test_a_closed_stream_changes_no_answer(closed: str) -> None:
    assert shell(f"$S verify demo --structure {closed}").returncode == 0
    ran = shell(f"$S verify nowhere --structure {closed}")
    assert ran.returncode == 3
    assert "Traceback" not in ran.stdout + ran.stderr


def test_a_closed_stderr_leaves_the_document_alone_on_stdout() -> None:
    ran = shell("$S verify nowhere --json 2>&-")
    assert ran.returncode == 3
    assert json.loads(ran.stdout)["ok"] is False


def test_prompts_from_a_closed_stdin_are_no_bug() -> None:
    ran = shell("$S generate - --dry-run <&-")
    assert ran.returncode == 3
    assert "error: " in ran.stderr


def test_a_reader_that_has_gone_is_told_as_the_shell_tells_it() -> None:
    ran = shell("$S inspect demo:unet --tensors -q | true; exit ${PIPESTATUS[0]}")
    assert ran.returncode in (0, 141)  # 0 where all was written before the reader went
    assert ran.stderr == ""


@pytest.mark.parametrize(
    "line", ["inspect demo", "inspect demo --json", "verify demo --structure", "--help", "--version"]
)
@pytest.mark.parametrize("buffered", ["", "PYTHONUNBUFFERED=1"])
def test_an_answer_that_cannot_be_written_is_a_failure(line: str, buffered: str) -> None:
    """On a full disk; neither a success nor a bug."""
    ran = shell(f"env {buffered} $S {line} > /dev/full")
    assert ran.returncode == 5
    assert ran.stderr.startswith("error: the output cannot be written: ")
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("line", ["inspect demo:unet", "verify demo --structure", "generate dog --dry-run", "-h"])
def test_a_stream_that_cannot_show_everything_fails_nothing(encoding: str, line: str) -> None:
    ran = shell(f"PYTHONIOENCODING={encoding} $S {line}")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout
    assert encoding != "ascii" or ran.stdout.isascii()
    assert "\\u" not in ran.stdout


def test_a_full_disk_under_stderr_is_no_success_either() -> None:
    assert shell("$S inspect nowhere 2>/dev/full").returncode == 5


@pytest.mark.parametrize("line", ["", "--nope", "--json", "--nope --json", "inspect demo --json --nope", "load"])
def test_a_line_that_makes_no_sense_to_nobody_is_no_answer_either(line: str) -> None:
    """Neither 1, which means no, nor a traceback: 5 for a full disk, 141 where the reader has gone."""
    for stream in ("1", "2"):
        full = shell(f"$S {line} {stream}>/dev/full")
        says_there = stream == "2" or "--json" in line
        assert full.returncode == (5 if says_there else 2)
        assert "Traceback" not in full.stderr
    gone = shell(f"$S {line} 2>&1 | true; exit ${{PIPESTATUS[0]}}")
    assert gone.returncode in (2, 141), "2 where it was quicker than its reader"
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run([sys.executable, "-m", "cli", *line.split()], cwd=ROOT, stdout=writing, stderr=writing)
    os.close(writing)
    assert ran.returncode == 141


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("bogus --json", "shardtool"),
        ("bogus inspect --json", "shardtool"),
        ("--progress shard --json --nope", "shardtool"),
        ("--json bogus", "shardtool"),
        ("shard --json", "shard"),
        ("--json shard demo --no-such-option", "shard"),
        ("generate dog --steps many --json", "generate"),
        ("verify --json demo --against", "verify"),
    ],
)
def test_a_line_that_the_parser_refuses_has_its_document_too(line: str, command: str) -> None:
    ran = shell(f"$S {line}")
    assert ran.returncode == 2
    document = json.loads(ran.stdout)
    jsonschema.validate(document, json.loads((ROOT / "docs/schemas/envelope.json").read_text()))
    assert (document["ok"], document["command"], document["error"]["code"]) == (False, command, "usage")
    assert document["error"]["message"] in ran.stderr
