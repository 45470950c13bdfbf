"""Write what the pages take from the program itself: the help texts, and the map of the house.

``python docs/generate.py`` writes it, ``--check`` only compares and exits with 1 where something is stale.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from cli.app import COMMANDS, app  # noqa: E402 (the checkout's own program, wherever this is started)

COMMAND = "python docs/generate.py"
MADE = f"<!-- Made by `{COMMAND}`; do not edit. -->"
COLUMNS = "80"
MAPPED = {
    "shardtool/checkpoint": "Checkpoints on disk: no torch, no numpy, the standard library alone",
    "shardtool/hub": "Sources on the Hub",
    "shardtool/images": "Pictures: names, metadata, grids and pages",
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
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tables = "\n\n".join(_table(folder, title) for folder, title in MAPPED.items())
    start, end = "<!-- --8<-- [start:map] -->", "<!-- --8<-- [end:map] -->"
    pattern = re.compile(re.escape(start) + ".*" + re.escape(end), re.DOTALL)
    return pattern.sub(lambda _: f"{start}\n{MADE}\n\n{tables}\n{end}", page)


def _table(folder: str, title: str) -> str:
    rows = [f"**{title}** (`{folder}/`)", "", "| module | is about |", "|---|---|"]
    for path in sorted((ROOT / folder).glob("*.py")):
        if path.stem in ("__init__", "__main__"):
            continue
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        line = " ".join(docstring.split("\n\n")[0].split()).replace("``", "`").replace("|", r"\|")
        rows.append(f"| `{path.relative_to(ROOT).as_posix()}` | {line} |")
    return "\n".join(rows)


PAGES = {ROOT / "docs" / "help.md": help_page, ROOT / "CONTRIBUTING.md": contributing_page}


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
