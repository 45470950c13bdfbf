"""What the user sees: the result on stdout, everything else on stderr, and one JSON document with ``--json``.

Text that comes from a file (names, metadata, prompts) may hold terminal escapes, line breaks and Rich markup. The
consoles here interpret no markup, and ``show`` makes every control character visible.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from shardtool import __version__
from shardtool.checkpoint.strict_json import MAX_DEPTH, plain
from shardtool.errors import Problem, ShardtoolError
from shardtool.events import Note

from .options import ProgressMode

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

PIPE_WIDTH = 200
"""Columns of a table that is not shown on a terminal, so that nothing is cut in a log."""

_SHOWN_PROBLEMS = 20


def show(text: object) -> str:
    """``text`` in one line, with control, format and surrogate characters written as escapes."""
    return "".join(_escape(char) for char in str(text))


def _escape(char: str) -> str:
    if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char != "\u200d":
        return char.encode("unicode_escape", "surrogatepass").decode("ascii")
    return char


@dataclass
class Output:
    """How one command speaks. Made by the command's wrapper from the common options."""

    command: str
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    no_color: bool = False
    progress: ProgressMode = ProgressMode.AUTO
    started: float = field(default_factory=time.monotonic)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    _consoles: dict[TextIO, Console] = field(default_factory=dict, init=False, repr=False)

    def console(self, stream: TextIO) -> Console:
        """The Rich console on ``stream``; it takes all text literally.

        There is one for each stream, so that what is said while bars are drawn is printed above them.
        """
        from rich.console import Console

        # While bars are drawn, sys.stderr is Rich's stand-in for the stream that they are drawn on.
        real = getattr(stream, "rich_proxied_file", stream)
        if real not in self._consoles:
            width = None if real.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
            # Rich's own no_color leaves bold and dim in.
            unstyled = self.no_color or os.environ.get("NO_COLOR")
            self._consoles[real] = Console(
                file=real,
                width=width,
                markup=False,
                emoji=False,
                highlight=False,
                color_system=None if unstyled else "auto",
            )
        return self._consoles[real]

    def result(self, data: dict[str, Any], *renderables: RenderableType, error: ShardtoolError | None = None) -> None:
        """Print what was asked for: ``data`` in the envelope with ``--json``, else the renderables.

        ``error`` is for a command that has something to show and failed all the same; it still has to leave with the
        error's exit code.
        """
        if self.json:
            self.document(data=data, error=error)
        else:
            for renderable in renderables:
                self._print(renderable)
        if error:
            self._explain(error)

    def _print(self, renderable: RenderableType) -> None:
        """A pipe or a file gets no line wrapped, which other programs search, and no blanks at a line's end."""
        from rich.text import Text

        console = self.console(sys.stdout)
        if console.is_terminal:
            console.print(renderable, soft_wrap=isinstance(renderable, str))
            return
        with console.capture() as captured:
            console.print(renderable, soft_wrap=isinstance(renderable, str | Text))
        console.file.write("".join(f"{line.rstrip(' ')}\n" for line in captured.get().split("\n")[:-1]))
        console.file.flush()

    def say(self, text: str, *, style: str | None = None) -> None:
        """A line for people on stderr; silent with ``--quiet``."""
        if not self.quiet:
            self.console(sys.stderr).print(show(text), style=style, soft_wrap=True)

    def detail(self, text: str) -> None:
        """A line that only ``--verbose`` shows."""
        if self.verbose:
            self.say(text, style="dim")

    def note(self, note: Note) -> None:
        """A note of the core: told to people, and collected for the JSON document when it is a warning."""
        if note.warning:
            self.warnings.append({"code": note.code, "message": note.text})
        self.say(f"{'warning' if note.warning else 'note'}: {note.text}", style="yellow" if note.warning else None)

    def fail(self, error: ShardtoolError) -> None:
        """Show an error: one red line, the other problems, and what to do."""
        if self.json:
            self.document(error=error)
        self._explain(error)

    def _explain(self, error: ShardtoolError) -> None:
        console = self.console(sys.stderr)
        console.print(f"error: {show(error.message)}", style="bold red", soft_wrap=True)
        others = [problem for problem in error.problems if problem.message != error.message]
        for line in problem_lines(others):
            console.print(f"  {line}", soft_wrap=True)
        if error.hint:
            console.print(f"hint: {show(error.hint)}", soft_wrap=True)
        if self.debug:
            console.print("".join(traceback.format_exception(error)), soft_wrap=True)

    def document(self, *, data: dict[str, Any] | None = None, error: ShardtoolError | None = None) -> None:
        """Print the one JSON document, and nothing for people."""
        document = {
            "schema": f"shardtool.{self.command}/1",
            "ok": error is None,
            "command": self.command,
            "version": __version__,
            "data": data,
            "warnings": self.warnings,
            "error": error.as_json() if error else None,
            "elapsed_s": round(time.monotonic() - self.started, 3),
        }
        # What was read is as deep as is taken at most, and stands some levels down in here.
        written = plain(document, 2 * MAX_DEPTH)
        # ASCII, so that no name in it can do anything to a terminal.
        sys.stdout.write(json.dumps(written, indent=2, allow_nan=False) + "\n")
        sys.stdout.flush()


def problem_lines(problems: Sequence[Problem]) -> Iterable[str]:
    """The problems as lines, safe to print; a long list is cut with a count of the rest."""
    for problem in problems[:_SHOWN_PROBLEMS]:
        yield show(problem.message)
    if len(problems) > _SHOWN_PROBLEMS:
        yield f"… and {len(problems) - _SHOWN_PROBLEMS} more (all of them with --json)"


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """An empty table in the house style; columns named in ``right`` are aligned right."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made
