"""What lies beside the weights and is left alone: pickles, which run code when they are loaded, and Python files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shardtool.checkpoint.folder import PICKLE_SUFFIXES, names_in
from shardtool.errors import Problem


def beside_findings(folder: Path) -> Iterator[Problem]:
    """Warnings about the pickles and the Python files directly in ``folder``. Nothing is opened."""
    names = names_in(folder)
    pickles = [name for name in names if name.endswith(PICKLE_SUFFIXES)]
    if pickles:
        message = f"{folder}: {_listed(pickles)}: pickled, not opened: a pickle can run any code when it is loaded"
        yield Problem("pickle_beside", message, str(folder / pickles[0]), severity="warning")
    programs = [name for name in names if name.endswith(".py")]
    if programs:
        message = f"{folder}: {_listed(programs)}: Python code, not executed"
        yield Problem("code_beside", message, str(folder / programs[0]), severity="warning")


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
