"""What is printed, where, and that nothing in it can do anything to a terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app
from cli.options import ProgressMode
from cli.output import Output, show
from cli.progress import progress
from shardtool.events import Advanced, Finished, Note, Started

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mred\x1b[0m", r"a\x1b[31mred\x1b[0m"),
        ("two\nlines\ttab", r"two\nlines\ttab"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("[bold]not markup[/bold]", "[bold]not markup[/bold]"),
        ("ein Hund, 犬, 🐕", "ein Hund, 犬, 🐕"),
    ],
)
def test_foreign_text_is_shown_and_not_interpreted(text: str, shown: str) -> None:
    assert show(text) == shown


def test_a_note_while_bars_are_drawn_stands_on_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich redirects stderr while it draws; a console of one's own would print into the middle of a bar."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress(Output("test", progress=ProgressMode.RICH)) as on_event:
        on_event(Started("copy", "Copying", 100))
        on_event(Advanced("copy", 50))
        on_event(Note("note", "half way"))
        on_event(Finished("copy"))
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).replace("\r", "\n").splitlines()
    assert "note: half way" in [line.rstrip() for line in lines]


def on_a_terminal(*arguments: str, **env: str) -> str:
    """What ``shardtool ARGUMENTS`` writes to a terminal of 80 columns, stdout and stderr together."""
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    ran = subprocess.Popen(
        [sys.executable, "-m", "cli", *arguments],
        cwd=ROOT,
        env={**environment, "TERM": "xterm-256color", **env},
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
    )
    os.close(theirs)
    written = b""
    try:
        while block := os.read(ours, 65536):
            written += block
    except OSError:  # how Linux says that the other side is closed
        pass
    ran.wait()
    os.close(ours)
    return written.decode()


def test_colour_is_for_terminals_that_want_it() -> None:
    colour = re.compile(r"\x1b\[[\d;]*3[0-8]")
    assert colour.search(on_a_terminal("inspect", "demo"))
    assert not colour.search(on_a_terminal("inspect", "demo", NO_COLOR="1"))
    assert not colour.search(on_a_terminal("inspect", "demo", "--no-color"))
    assert "\x1b[" not in CliRunner().invoke(app, ["inspect", "demo"]).output


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {}])
def test_without_colour_there_is_no_bold_either(env: dict[str, str]) -> None:
    written = on_a_terminal("inspect", "demo", *([] if env else ["--no-color"]), **env)
    assert "StableDiffusionXLPipeline" in written
    assert not re.search(r"\x1b\[[\d;]*m", written)


@pytest.mark.parametrize("arguments", [["inspect", "demo"], ["shard", "demo", "--dry-run", "-o", "nowhere"]])
def test_no_line_of_a_pipe_ends_in_blanks(arguments: list[str]) -> None:
    lines = CliRunner().invoke(app, arguments).stdout.splitlines()
    assert len(lines) > 5 and [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize("arguments", [["load", "demo", "--dry-run", "--device", "cpu"], ["inspect", "demo"]])
def test_the_tables_of_a_pipeline_fit_80_columns(arguments: list[str]) -> None:
    """Nothing is folded: every component is one line."""
    ran = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
    assert "CLIPTextModelWithProjection" in ran.stdout
    assert "text_encoder_2 " in ran.stdout


def test_a_pipe_gets_lines_that_are_not_cut_and_no_bars() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "cli", "shard", "demo", "--max-size", "1MB", "--dry-run", "-o", "nowhere"],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "COLUMNS"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "unet/diffusion_pytorch_model-00001-of-00010.safetensors " in ran.stdout
    assert "\r" not in ran.stdout + ran.stderr


@pytest.mark.parametrize("start", [["-m", "shardtool"], ["-m", "cli"]])
def test_the_program_has_one_name_however_it_is_started(start: list[str]) -> None:
    ran = subprocess.run([sys.executable, *start, "shard", "--zzzzz"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 2
    assert ran.stderr == "error: no such option: --zzzzz\nhint: see shardtool shard --help\n"


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        (
            "shard demo --max-sise 3",
            "no such option: --max-sise",
            "did you mean --max-size? see shardtool shard --help",
        ),
        ("load", "missing argument 'SOURCE'", "see shardtool load --help"),
        ("verify demo --against", "option '--against' requires an argument", "see shardtool verify --help"),
        ("shardd demo", "no such command 'shardd'", "did you mean shard? see shardtool --help"),
        ("inspec generate", "no such command 'inspec'", "did you mean inspect? see shardtool --help"),
        ("--progress verify --nope", "no such option: --nope", "see shardtool --help"),
        ("inspect demo --depth x", "invalid value for '--depth': not a whole number", "see shardtool inspect --help"),
        (
            "inspect demo --sort zz",
            "invalid value for '--sort': 'zz' is not one of 'name', 'size', 'shard'",
            "see shardtool inspect --help",
        ),
        (
            "shard demo --max-size 1 MB",
            "got unexpected extra argument(s) (MB)",
            "quote what has blanks in it; see shardtool shard --help",
        ),
        ("generate \x1b[2J --no\x1b[31m", "no such option: --no\\x1b[31m", "see shardtool generate --help"),
    ],
)
def test_what_the_parser_refuses_is_told_like_any_other_error(line: str, error: str, hint: str) -> None:
    ran = subprocess.run([sys.executable, "-m", "cli", *line.split()], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 2
    assert ran.stderr == f"error: {error}\nhint: {hint}\n"


def test_nothing_typed_is_answered_with_the_help() -> None:
    ran = subprocess.run([sys.executable, "-m", "cli"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 2
    assert ran.stderr.startswith("Usage: shardtool [OPTIONS] COMMAND")
