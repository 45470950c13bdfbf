"""The documentation cannot lie: its commands run, its listings are what is printed, its links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import referencing
from typer.testing import CliRunner

from cli.app import COMMANDS, app
from tests.console import fenced, play, steps

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
PLAYED = [page for page in PAGES if steps(page)]
NAMES = [function.__name__ for function in COMMANDS]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PLAYED, ids=name_of)
def test_every_session_on_a_page_is_true(page: Path, tmp_path: Path) -> None:
    """Each command runs, in order, and prints what the page shows. `python -m tests.console PAGE` mends a page."""
    faults = [fault for _, _, fault in play(page, tmp_path) if fault]
    assert not faults, "\n\n".join(faults)


def test_generated_pages_are_fresh() -> None:
    made = runpy.run_path(str(DOCS / "generate.py"))
    stale = [str(page.relative_to(ROOT)) for page, make in made["PAGES"].items() if page.read_text("utf-8") != make()]
    assert stale == [], f"run: {made['COMMAND']}"


def test_the_picture_on_the_pages_is_what_the_tool_makes() -> None:
    """docs/pictures.sh makes it again, after the embedded model has changed."""
    arguments = ["generate", "--replay", str(DOCS / "images" / "dog.png"), "--expect", "close:30"]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_explained(name: str) -> None:
    """Its name with an example stands in the README and in a page that somebody wrote."""
    written = [page for page in PAGES if page.name != "help.md" and page.parent == DOCS]
    assert any(f"shardtool {name} " in page.read_text("utf-8") for page in written)
    assert f"shardtool {name}" in (ROOT / "README.md").read_text("utf-8")


DOCUMENTS: dict[str, tuple[list[str], ...]] = {
    "shard": (
        ["shard", "demo:unet", "--shards", "2", "-o", "two", "--digests", "--verify"],
        ["shard", "demo", "--max-size", "1MB", "-o", "sharded", "--dry-run"],
        ["shard", "demo", "--max-size", "1MB", "-o", "two"],
    ),
    "merge": (["merge", "two", "-o", "one"], ["merge", "nothing", "-o", "one"]),
    "inspect": (
        ["inspect", "demo", "two", "two/config.json"],
        ["inspect", "two", "--tensors", "--metadata"],
        ["inspect", "docs/images/dog.png"],
        ["inspect", "damaged"],
    ),
    "verify": (["verify", "two", "--structure", "--deep", "--against", "one"], ["verify", "damaged", "--structure"]),
    "diff": (["diff", "two", "one"], ["diff", "demo:unet", "demo:vae"]),
    "repair": (["repair", "damaged", "-o", "repaired"],),
    "load": (["load", "demo", "--dry-run"], ["load", "two", "--device", "cpu", "--forward", "--verify"]),
    "generate": (
        ["generate", "dog", "--seed", "1", "--dry-run"],
        ["generate", "dog", "cat", "--seed", "1", "--steps", "2", "-o", "out/", "--grid", "--gallery"],
        ["generate", "dog", "cat", "--seed", "1", "--steps", "2", "-o", "out/", "--skip-existing"],
        ["generate", "cat", "--image", "out/dog-1.png", "--steps", "2", "-o", "cat.png"],
        ["generate", "--replay", "out/dog-1.png", "--steps", "3", "--expect", "same"],
        ["generate", "--list-schedulers"],
    ),
}
"""Commands, run in this order in one folder, whose documents the schemas must describe: successes and failures."""


def test_every_document_is_as_its_schema_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(DOCS)
    schemas = {path.stem: json.loads(path.read_text("utf-8")) for path in (DOCS / "schemas").glob("*.json")}
    assert set(schemas) == {"envelope", *NAMES}
    resources = [(f"{name}.json", referencing.Resource.from_contents(schema)) for name, schema in schemas.items()]
    registry = referencing.Registry().with_resources(resources)
    for name, commands in DOCUMENTS.items():
        for command in commands:
            if "damaged" in command and not Path("damaged").exists():
                shutil.copytree("two", "damaged")
                next(Path("damaged").glob("*.index.json")).unlink()
            document = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
            for schema, part in (("envelope", document), (name, document["data"])):
                if part is not None:
                    jsonschema.Draft202012Validator(schemas[schema], registry=registry).validate(part)


def commands_not_run() -> list[tuple[str, str]]:
    """The ``shardtool`` commands of ``bash`` blocks: those that need a network, a GPU or hours, and are not played."""
    found = []
    for page in PAGES:
        for start, lines in fenced(page.read_text("utf-8"), "bash"):
            if lines[0].startswith("#!"):  # a program of examples/, which tests/examples runs
                continue
            joined = "\n".join(lines).replace("\\\n", " ").splitlines()
            found += [(f"{name_of(page)}:{start + 1}", line) for line in joined if re.search(r"\bshardtool\b", line)]
    return found


@pytest.mark.parametrize(("place", "line"), commands_not_run())
def test_commands_that_are_only_shown_have_options_that_exist(place: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    at = next((i for i, word in enumerate(words) if word == "shardtool"), None)
    if at is None or words[0] in ("pip", "git", "cd", "make"):
        return
    import typer

    command = typer.main.get_command(app)
    arguments = words[at + 1 :]
    if arguments and arguments[0] in NAMES:
        subcommand = command.get_command(command.make_context("shardtool", [arguments[0]]), arguments[0])
        assert subcommand is not None
        subcommand.make_context(arguments[0], arguments[1:])  # raises a usage error for an option that is not there
    else:
        known = {"--help", "--version", "--install-completion", "--show-completion"}
        assert set(arguments) <= known, f"{place}: {line}"


def test_make_targets_that_the_pages_name_exist() -> None:
    rules = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in PAGES:
        text = page.read_text("utf-8")
        named = set(re.findall(r"(?:^\$ |`)make ([\w-]+)", text, re.MULTILINE))
        assert named <= rules, name_of(page)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, spelled as MkDocs and GitHub do, and those set by hand."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: list[str] = []
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\s-]", "", plain.lower()).strip()
        found.append(re.sub(r"[-\s]+", "-", slug))
    return {*found, *re.findall(r'id="([^"]+)"', text)}


def links(page: Path) -> list[str]:
    text = re.sub(r"^(`{3,}).*?^\1", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    inline = re.findall(r"\]\(([^)\s]+)\)", text)
    return [link for link in [*inline, *re.findall(r'(?:src|href)="([^"]+)"', text)] if "://" not in link]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"], ids=name_of)
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name_of(page)} links to {link}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 250


def test_the_map_of_the_house_is_complete() -> None:
    """CONTRIBUTING.md has one line for each module, and none for a module that is gone."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    mapped = set(re.findall(r"^\| `([\w/]+\.py)` \|", text, re.MULTILINE))
    modules = {
        path.relative_to(ROOT).as_posix()
        for folder in ("cli", "shardtool")
        for path in (ROOT / folder).rglob("*.py")
        if path.stem not in ("__init__", "__main__")
    }
    assert mapped == modules


def test_the_site_builds_without_a_network_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs the dependency group docs: make docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    ran = subprocess.run(command, cwd=ROOT, env={**os.environ, **nowhere}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?([^\"\s>]+)", page.read_text("utf-8"))
        loaded += re.findall(r"<link\b[^>]*\brel=\"?(?:stylesheet|preload|icon)\b[^>]*", page.read_text("utf-8"))
        assert [address for address in loaded if "//" in address] == [], page.name
