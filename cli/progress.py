"""Listeners for the core's events: bars on a terminal, a line at start and end in a log, JSON lines, or nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shardtool.events import Advanced, Event, Finished, Listener, Note, Started
from shardtool.sizes import format_size

from .options import ProgressMode
from .output import Output, show

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@contextmanager
def progress(out: Output) -> Iterator[Listener]:
    """A listener for as long as the ``with`` block runs, as ``out`` asks for it."""
    mode = out.progress
    if mode is ProgressMode.AUTO:
        mode = ProgressMode.RICH if sys.stderr.isatty() else ProgressMode.PLAIN
    if mode is ProgressMode.JSON:
        yield _JsonLines(out)
    elif mode is ProgressMode.NONE or out.quiet:
        yield _Notes(out)
    elif mode is ProgressMode.PLAIN:
        yield _Lines(out)
    else:
        with _bars(out) as drawn:
            yield _Bars(out, drawn)


def counted(number: int, unit: str) -> str:
    """``1 image``, ``3 images``, ``2.00 GB``."""
    if unit == "bytes":
        return format_size(number)
    return f"{number} {unit.removesuffix('s') if number == 1 else unit}"


class _Notes:
    """Says nothing but the notes."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def __call__(self, event: Event) -> None:
        if isinstance(event, Note):
            self._out.note(event)


class _Lines:
    """One line when a task starts and one when it ends."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._begun: dict[str, tuple[Started, float]] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Started(task, label, total, unit):
                self._begun[task] = (event, time.monotonic())
                amount = (
                    "" if total is None else f" ({format_size(total) if unit == 'bytes' else counted(total, unit)})"
                )
                self._out.say(f"{label}{amount} …")
            case Finished(task) if task in self._begun:
                started, since = self._begun.pop(task)
                self._out.say(f"{started.label}: done in {time.monotonic() - since:.1f} s")
            case Note():
                self._out.note(event)
            case _:
                pass


class _JsonLines:
    """One JSON object a line on stderr, for programs that watch a run."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._done: dict[str, int] = {}
        self._totals: dict[str, int | None] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Started(task, label, total, unit):
                self._done[task], self._totals[task] = 0, total
                self._write("started", task=task, label=label, total=total, unit=unit)
            case Advanced(task, by):
                self._done[task] = self._done.get(task, 0) + by
                self._write("progress", task=task, done=self._done[task], total=self._totals.get(task))
            case Finished(task):
                self._write("finished", task=task)
            case Note(code, text, warning):
                if warning:
                    self._out.warnings.append({"code": code, "message": text})
                self._write("note", code=code, text=text, warning=warning)

    def _write(self, event: str, **fields: object) -> None:
        sys.stderr.write(json.dumps({"event": event, **fields}) + "\n")
        sys.stderr.flush()


class _Bars:
    """Rich bars, one for each task under way."""

    def __init__(self, out: Output, drawn: Progress) -> None:
        self._out = out
        self._drawn = drawn
        self._tasks: dict[str, tuple[TaskID, bool]] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Started(task, label, total, unit):
                amount = format_size(total) if unit == "bytes" and total is not None else ""
                bar = self._drawn.add_task(show(label), total=total, amount=amount, unit=unit)
                self._tasks[task] = (bar, unit == "bytes")
            case Advanced(task, by) if task in self._tasks:
                bar, in_bytes = self._tasks[task]
                self._drawn.advance(bar, by)
                state = self._drawn.tasks[self._drawn.task_ids.index(bar)]
                if not in_bytes:
                    of_total = "" if state.total is None else f"/{state.total:.0f}"
                    self._drawn.update(bar, amount=f"{state.completed:.0f}{of_total} {state.fields['unit']}")
            case Finished(task) if task in self._tasks:
                bar, _ = self._tasks.pop(task)
                state = self._drawn.tasks[self._drawn.task_ids.index(bar)]
                self._drawn.update(bar, total=state.total or 1, completed=state.total or 1)
            case Note():
                # Printed above the bars: Rich redirects stderr while they are drawn.
                self._out.note(event)
            case _:
                pass


def _bars(out: Output) -> Progress:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    return Progress(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=28),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeElapsedColumn(),
        console=out.console(sys.stderr),
    )
