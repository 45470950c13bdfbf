"""What ``verify`` found, as data and for people: a table of parts, the problems, and what was not looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardtool.errors import Problem
from shardtool.verification import Checked, Verification

from .output import show, table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

SHOWN_OF_A_KIND = 10
"""Problems with one code that are printed; --verbose and --json give all."""


@dataclass(frozen=True)
class Against:
    """What a comparison with another source gave."""

    source: str
    same: int
    problems: tuple[Problem, ...]


def verification_data(source: str, found: Verification, against: Against | None) -> dict[str, Any]:
    """The result for ``--json``. ``whole`` is the answer."""
    return {
        "source": source,
        "path": str(found.contents.path),
        "kind": found.contents.kind,
        "class": found.contents.class_name,
        "whole": not found.errors and not (against and against.problems),
        "components": [
            {
                "name": checked.part.name,
                "class": checked.part.class_name,
                "variant": checked.part.variant,
                "checked": list(checked.checked),
                "digests_recorded": checked.digests is not None,
                "problems": [problem.as_json() for problem in checked.problems],
            }
            for checked in found.parts
        ],
        "problems": [problem.as_json() for problem in found.problems],
        "against": None
        if against is None
        else {
            "source": against.source,
            "same": against.same,
            "problems": [problem.as_json() for problem in against.problems],
        },
    }


def verification_view(
    source: str,
    found: Verification,
    against: Against | None,
    *,
    all: bool,  # noqa: A002
) -> Iterator[RenderableType]:
    """What is printed."""
    problems = found.problems + (against.problems if against else ())
    if len(found.parts) > 1:
        yield _parts(found.parts)
        yield ""
    if problems:
        yield from _listed(problems, limit=None if all else SHOWN_OF_A_KIND)
        yield ""
    yield _verdict(source, found, against, problems)
    if unchecked := _unchecked(found, compared=against is not None):
        yield _dim(f"not checked: {'; '.join(unchecked)}")


def _parts(parts: Sequence[Checked]) -> Table:
    made = table("component", "class", "checked", "result")
    for checked in parts:
        name = checked.part.name + (f" ({checked.part.variant})" if checked.part.variant else "")
        made.add_row(
            show(name), show(checked.part.class_name or "?"), ", ".join(checked.checked), _counted(checked.problems)
        )
    return made


def _counted(problems: Sequence[Problem]) -> str:
    counts = Counter(problem.severity for problem in problems)
    said = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in sorted(counts.items())]
    return ", ".join(said) or "ok"


def _listed(problems: Sequence[Problem], limit: int | None) -> Iterator[Text]:
    """Errors first; of many with one code only the first ones."""
    from rich.text import Text

    hints: set[str] = set()
    for severity, style in (("error", "bold red"), ("warning", "yellow")):
        chosen = [problem for problem in problems if problem.severity == severity]
        counts: Counter[str] = Counter()
        for problem in chosen:
            counts[problem.code] += 1
            if limit is not None and counts[problem.code] > limit:
                continue
            line = Text(f"{severity}: ", style)
            line.append(show(problem.message), "not bold default")
            line.append(f"  [{problem.code}]", "not bold dim")
            if problem.hint and problem.hint not in hints:
                hints.add(problem.hint)
                line.append(f"\n  {show(problem.hint)}", "not bold dim")
            yield line
        for code, count in counts.items():
            if limit is not None and count > limit:
                yield _dim(f"… and {count - limit:,} more {code} (all of them with --verbose or --json)")


def _verdict(source: str, found: Verification, against: Against | None, problems: Sequence[Problem]) -> Text:
    from rich.text import Text

    bad = [problem for problem in problems if problem.severity == "error"]
    if not bad:
        line = Text("whole", "bold green")
    elif not found.errors:
        line = Text("different", "bold red")
    else:
        line = Text("damaged", "bold red")
    line.append(f"  {show(source)}", "not bold default")
    line.append(f"  {_extent(found)}", "not bold dim")
    if problems:
        line.append(f", {_counted(problems)}", "not bold dim")
    if against is not None:
        line.append(f", {against.same:,} the same as in {show(against.source)}", "not bold dim")
    return line


def _extent(found: Verification) -> str:
    """How many tensors were found, and in how many of the files where some cannot be read."""
    files = sum(len(checked.part.files) for checked in found.parts)
    readable = [file for checked in found.parts for file in checked.part.readable]
    tensors = sum(len(file.header.tensors) for file in readable)
    said = f"{tensors:,} tensor{'' if tensors == 1 else 's'}"
    if len(readable) < files:
        said += f" in {len(readable):,} of {files:,} file{'' if files == 1 else 's'}"
    return said


def _unchecked(found: Verification, *, compared: bool) -> list[str]:
    """What no part with weights was checked for. Where every bit was compared, none can have flipped unseen."""
    weighty = [checked for checked in found.parts if checked.part.checkpoint]
    if not weighty:
        return []
    done = {what for checked in weighty for what in checked.checked}
    said = [] if "fit" in done else ["the fit to the model's class"]
    if "values" not in done:
        recorded = any(checked.digests is not None for checked in weighty)
        if compared:
            unread = "NaN, infinities and the recorded digests" if recorded else "NaN and infinities"
        else:
            unread = "the values and the recorded digests" if recorded else "the values"
        said.append(f"{unread} (--deep reads them)")
    elif "digests" not in done and not compared:
        said.append("digests, since none are recorded: a flipped bit may go unseen")
    return said


def _dim(text: str) -> Text:
    from rich.text import Text

    return Text(text, "dim")
