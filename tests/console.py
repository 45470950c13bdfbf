"""Play the console sessions of the documentation: run each ``$ command`` and compare with what the page shows.

``python -m tests.console docs/sharding.md`` plays a page and rewrites the listings that are no longer true.

In a listing, ``…`` stands for anything within a line, and a line of nothing but ``…`` for any lines. What is shown is
the command's standard output, its standard error, or both in the order they were printed. A command that does not exit
with 0 is followed by ``$ echo $?``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parent.parent
COLUMNS = "100"
WILD = "…"
_PRINTED_TIMES = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?= (?:ms|s|min)\b)")


@dataclass(frozen=True)
class Step:
    """One ``$ command`` of a page and the lines shown under it. ``first`` and ``end`` are the lines' place, from 0."""

    page: Path
    line: int
    command: str
    shown: tuple[str, ...]
    first: int
    end: int

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line + 1}"


@dataclass(frozen=True)
class Ran:
    """What a command printed on each stream, on both in order, and how it ended."""

    code: int
    output: str
    stdout: str
    stderr: str


def fenced(text: str, language: str) -> Iterator[tuple[int, list[str]]]:
    """The fenced blocks of one language: the number of the first line inside, from 0, and the lines."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        opened = re.fullmatch(r"(`{3,})\s*([^`]*)", lines[at].strip())
        if opened:
            end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == opened[1])
            if opened[2] == language:
                yield at + 1, lines[at + 1 : end]
            at = end
        at += 1


def steps(page: Path) -> list[Step]:
    """The commands of a page's ``console`` blocks, in order."""
    found = []
    for start, lines in fenced(page.read_text(encoding="utf-8"), "console"):
        starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
        for i, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            command, first = lines[i][2:], i + 1
            while command.endswith("\\"):
                command, first = command[:-1] + lines[first].strip(), first + 1
            if here := re.search(r"<<'(\w+)'$", command):
                body = lines.index(here[1], first) + 1
                command, first = "\n".join([command, *lines[first:body]]), body
            shown = tuple(lines[first:end])
            found.append(Step(page, start + i, command, shown, start + first, start + end))
    return found


@dataclass
class Session:
    """A shell in a folder of its own. Plain ``shardtool`` commands run in this process, anything else in bash."""

    folder: Path
    code: int = 0
    env: dict[str, str] = field(default_factory=dict)

    def run(self, command: str) -> Ran:
        words = shlex.split(command)
        if command == "echo $?":
            return Ran(0, f"{self.code}\n", f"{self.code}\n", "")
        if words[0] == "cd":
            self.folder = (self.folder / words[1]).resolve()
            ran = Ran(0, "", "", "")
        elif words[0] == "shardtool" and not _needs_a_shell(command):
            ran = self._run_here(words[1:])
        else:
            ran = self._run_in_bash(command)
        self.code = ran.code
        return ran

    def _run_here(self, arguments: list[str]) -> Ran:
        from typer.testing import CliRunner

        from cli.app import app

        with contextlib.chdir(self.folder):
            result = CliRunner().invoke(app, arguments, prog_name="shardtool", env={"COLUMNS": COLUMNS})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.output, result.stdout, result.stderr)

    def _run_in_bash(self, command: str) -> Ran:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        ran = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env={**os.environ, "COLUMNS": COLUMNS, "PATH": path},
            capture_output=True,
            text=True,
        )
        return Ran(ran.returncode, ran.stderr + ran.stdout, ran.stdout, ran.stderr)


def _needs_a_shell(command: str) -> bool:
    quoted = re.sub(r"'[^']*'|\"[^\"$`]*\"", "", command)
    return bool(re.search(r"[|<>&;$*?`]", quoted))


def matches(shown: tuple[str, ...], text: str) -> bool:
    """Whether ``text`` is what is shown."""
    pattern = "".join(_line_pattern(line.rstrip()) for line in shown)
    return re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in text.splitlines())) is not None


def _line_pattern(line: str) -> str:
    if line == WILD:
        return r"(?:.*\n)*?"
    return ".*?".join(re.escape(part) for part in line.split(WILD)) + "\n"


def fault_of(step: Step, ran: Ran, following: Step | None) -> str | None:
    """Why the page is wrong about this command; nothing if it is right."""
    told = following is not None and following.command == "echo $?"
    if ran.code != 0 and not told:
        return f"{step.place}: `{step.command}` exits with {ran.code}\n{ran.output}"
    if not step.shown and ran.stdout:
        return f"{step.place}: `{step.command}` prints what the page does not show:\n{ran.stdout}"
    if step.shown and not any(matches(step.shown, text) for text in (ran.stdout, ran.output, ran.stderr)):
        return f"{step.place}: `{step.command}` printed something else than the page shows:\n{ran.output}"
    return None


def play(page: Path, folder: Path) -> Iterator[tuple[Step, Ran, str | None]]:
    """Run a page's commands in ``folder``; each with the fault that was found, if any."""
    session, todo = Session(folder), steps(page)
    for step, following in zip_longest(todo, todo[1:]):
        if step.command.startswith("make "):
            continue  # tests/test_docs.py looks for its rule in the Makefile
        ran = session.run(step.command)
        yield step, ran, fault_of(step, ran, following)


def rewrite(page: Path) -> None:
    """Play a page and replace the listings that are not true; times become ``…``. Exit codes are left to the author."""
    with tempfile.TemporaryDirectory() as folder:
        played = [(step, ran) for step, ran, fault in play(page, Path(folder)) if fault and step.shown]
    faulty = [(step, ran) for step, ran in played if step.command != "echo $?"]
    lines = page.read_text(encoding="utf-8").splitlines()
    for step, ran in reversed(faulty):
        printed = _PRINTED_TIMES.sub(WILD, ran.stdout or ran.output).splitlines()
        kept = [_as_shown(step.shown, line.rstrip()) for line in printed]
        lines[step.first : step.end] = _cut_as_before(step.shown, kept)
        print(f"{step.place}: {step.command}")
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _as_shown(shown: tuple[str, ...], line: str) -> str:
    """The author's own form of the line, if one with a part left open still matches."""
    return next((one for one in shown if WILD in one and one != WILD and matches((one,), line)), line)


def _cut_as_before(shown: tuple[str, ...], printed: list[str]) -> list[str]:
    """Where the author left out one part, that part is left out again."""
    if shown.count(WILD) != 1 or len(printed) <= len(shown):
        return printed
    head = shown.index(WILD)
    tail = len(shown) - head - 1
    return [*printed[:head], WILD, *printed[len(printed) - tail :]]


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        rewrite(Path(argument).resolve())
