"""Write what the pages take from elsewhere: help texts, the map of the house, schemas, figures, placements, examples.

``python docs/generate.py`` writes it, ``--check`` only compares and exits with 1 where something is stale.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import codes  # noqa: E402 (beside this program)
import figures  # noqa: E402
import placement_table  # noqa: E402

from cli.app import COMMANDS, app  # noqa: E402 (the checkout's own program, wherever this is started)

COMMAND = "python docs/generate.py"
MADE = f"<!-- Made by `{COMMAND}`; do not edit. -->"
COLUMNS = "80"
MAPPED = {
    "shardtool/checkpoint": "Checkpoints on disk: no torch, no numpy, the standard library alone",
    "shardtool/hub": "Sources on the Hub",
    "shardtool/images": "Pictures: prompts, names, metadata, grids and pages; no torch",
    "shardtool/generation": "Making pictures: torch",
    "shardtool": "The core",
    "cli": "The command line",
}


def help_page() -> str:
    """Every ``--help``, as the program prints it."""
    names = [function.__name__ for function in COMMANDS]
    parts = [
        "# Help texts",
        MADE,
        "What the program prints with `--help`.",
        _listing("shardtool"),
        *(f"## {name}\n\n{_listing(f'shardtool {name}')}" for name in names),
    ]
    return "\n\n".join(parts) + "\n"


def _listing(command: str) -> str:
    arguments = [*command.split()[1:], "--help"]
    ran = CliRunner().invoke(app, arguments, prog_name="shardtool", env={"COLUMNS": COLUMNS})
    assert ran.exit_code == 0, ran.output
    text = "\n".join(line.rstrip() for line in ran.output.strip().splitlines())
    return f"```text\n$ {command} --help\n{text}\n```"


def contributing_page() -> str:
    """CONTRIBUTING.md with a fresh map: each module, and the first line of its docstring."""
    tables = "\n\n".join(_table(folder, title) for folder, title in MAPPED.items())
    return _between(ROOT / "CONTRIBUTING.md", "map", tables)


def _table(folder: str, title: str) -> str:
    rows = [f"**{title}** (`{folder}/`)", "", "| module | is about |", "|---|---|"]
    for path in sorted((ROOT / folder).glob("*.py")):
        if path.stem in ("__init__", "__main__"):
            continue
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        line = " ".join(docstring.split("\n\n")[0].split()).replace("``", "`").replace("|", r"\|")
        rows.append(f"| `{path.relative_to(ROOT).as_posix()}` | {line} |")
    return "\n".join(rows)


def json_page() -> str:
    """The fields of every ``--json`` document, from the schemas."""
    schemas = ROOT / "docs" / "schemas"
    names = ["envelope", *(function.__name__ for function in COMMANDS)]
    parts = ["# JSON", MADE, JSON_INTRODUCTION]
    for name in names:
        schema = json.loads((schemas / f"{name}.json").read_text(encoding="utf-8"))
        title = "The document" if name == "envelope" else name
        rows = "\n".join(f"| `{field}` | {kind} | {about} |" for field, kind, about in _fields(schema))
        link = f"[`schemas/{name}.json`](schemas/{name}.json)"
        parts.append(f"## {title}\n\n{link}\n\n| field | type | what it is |\n|---|---|---|\n{rows}")
    parts.append(f"## Codes\n\n{CODES_INTRODUCTION}\n\n{codes.table()}")
    return "\n\n".join(parts) + "\n"


CODES_INTRODUCTION = """\
What `code` may be: in `error` (with its exit code), in `problems`, and in `warnings`. These are spelled out in the
source at the place of the fault; a few more come from tables, such as `shape_mismatch` and `lfs_pointer`."""

JSON_INTRODUCTION = """\
With `--json`, standard output is one document in ASCII: the envelope below, with the command's own `data` in it. Every
field is always there, `null` where it does not apply, unless its description says when; sizes are bytes, times
seconds. A number that is infinite or none, which JSON has not, is the text `Infinity`, `-Infinity` or `NaN`, in the
records of images too (some schedulers have such settings). The schemas are in the
[2020-12 draft](https://json-schema.org/draft/2020-12) and strict: a field that is not described fails the test suite,
which validates real output with them.

On failure the document is printed too, with `ok: false`, `data: null` and an `error`. When the answer is "no" (exit
code 1), `ok` is true: the command did its work."""


def _fields(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str, str]]:
    """Each field of an object with its type and description, those within it after it."""
    for name, entry in schema.get("properties", {}).items():
        where = f"{path}.{name}" if path else name
        inner = entry
        while "items" in inner or isinstance(inner.get("additionalProperties"), dict):
            mapped = "items" not in inner
            where, inner = where + (".*" if mapped else "[]"), inner["additionalProperties" if mapped else "items"]
        yield where, _kind(inner), entry.get("description", inner.get("description", "")).replace("|", "\\|")
        yield from _fields(inner, where)


def _kind(entry: Mapping[str, Any]) -> str:
    if "$ref" in entry:
        return "[problem](#the-document)"
    if "type" not in entry:
        return "any"
    if "enum" in entry:
        return " or ".join(f"`{word}`" for word in entry["enum"])
    return entry["type"] if isinstance(entry["type"], str) else " or ".join(entry["type"])


def figures_page() -> str:
    """What the benchmarks recorded."""
    parts = ["# Figures", MADE, FIGURES_INTRODUCTION, *(list(figures.sections()) or [figures.NONE_YET])]
    return "\n\n".join(parts) + "\n"


FIGURES_INTRODUCTION = """\
`make bench` measures all of this: each way in a process of its own, start-up included, interleaved with the others in
every round. What a machine was doing beside it shows in the range. Read ratios within a table, not seconds across."""


def readme_page() -> str:
    """The README with fresh figures."""
    return _between(ROOT / "README.md", "figures", figures.summary())


def placement_page() -> str:
    """docs/placement.md with a fresh table of every case."""
    return _between(ROOT / "docs" / "placement.md", "table", placement_table.text())


def with_examples(page: Path) -> str:
    """A page with the programs that it shows as they are now, each below a comment with its path."""
    return re.sub(
        r"(<!-- (examples/[\w.-]+) -->\n```\w+\n).*?^```$",
        lambda shown: shown[1] + (ROOT / shown[2]).read_text("utf-8").rstrip() + "\n```",
        page.read_text("utf-8"),
        flags=re.DOTALL | re.MULTILINE,
    )


def _between(path: Path, name: str, text: str) -> str:
    """The page at ``path`` with ``text`` between the markers of ``name``."""
    start, end = f"<!-- --8<-- [start:{name}] -->", f"<!-- --8<-- [end:{name}] -->"
    pattern = re.compile(re.escape(start) + ".*" + re.escape(end), re.DOTALL)
    return pattern.sub(lambda _: f"{start}\n{MADE}\n\n{text}\n{end}", path.read_text(encoding="utf-8"))


EXAMPLE_PAGES = [ROOT / "docs" / f"{name}.md" for name in ("ci", "python", "several-gpus")]
"""Pages that show a program of examples/ whole."""

PAGES = {
    ROOT / "docs" / "help.md": help_page,
    ROOT / "docs" / "json.md": json_page,
    ROOT / "docs" / "figures.md": figures_page,
    ROOT / "README.md": readme_page,
    ROOT / "CONTRIBUTING.md": contributing_page,
    ROOT / "docs" / "placement.md": placement_page,
    **{page: partial(with_examples, page) for page in EXAMPLE_PAGES},
}


def main() -> int:
    check = "--check" in sys.argv
    stale = [page for page, make in PAGES.items() if not page.exists() or page.read_text("utf-8") != make()]
    for page in stale:
        print(f"{page.relative_to(ROOT)} is stale" if check else f"writing {page.relative_to(ROOT)}")
        if not check:
            page.write_text(PAGES[page](), encoding="utf-8")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
