"""Every stable code that the program's source gives an error, a problem or a note, as a table."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from shardtool import errors

ROOT = Path(__file__).parent.parent
ERRORS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and name.endswith("Error")}


def table() -> str:
    """Code, exit codes of the errors that have it, and what else has it."""
    found: dict[str, set[str]] = {}
    for folder in ("shardtool", "cli"):
        for path in (ROOT / folder).rglob("*.py"):
            for code, kind in _codes(ast.parse(path.read_text(encoding="utf-8"))):
                found.setdefault(code, set()).add(kind)
    rows = ["| code | where |", "|---|---|"]
    rows += [f"| `{code}` | {', '.join(sorted(kinds))} |" for code, kinds in sorted(found.items())]
    return "\n".join(rows)


def _codes(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        given = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
        if name in ("Problem", "Note"):
            given += node.args[:1]
        for value in given:
            for code in _texts(value):
                yield code, _kind(name)


def _texts(value: ast.expr) -> list[str]:
    """The text, or both texts of a choice."""
    if isinstance(value, ast.IfExp):
        return [*_texts(value.body), *_texts(value.orelse)]
    return [value.value] if isinstance(value, ast.Constant) and isinstance(value.value, str) else []


def _kind(name: str) -> str:
    if name in ERRORS:
        return f"exit {ERRORS[name].exit_code}"
    return "note or warning" if name == "Note" else "problem"
