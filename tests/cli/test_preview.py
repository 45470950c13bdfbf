"""Images in the terminal."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

from PIL import Image
from rich.console import Console

from cli.preview import HALF_BLOCK, half_blocks

ROOT = Path(__file__).parent.parent.parent


def test_a_character_shows_two_pixels() -> None:
    image = Image.new("RGB", (2, 4))
    image.putdata([(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0)] * 2)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="truecolor", width=20, no_color=False, _environ={})
    console.print(half_blocks(image, 2))
    first, second = out.getvalue().splitlines()[:2]
    assert first == second
    assert first.count(HALF_BLOCK) == 2
    assert "38;2;255;0;0;48;2;0;0;255" in first  # red above blue
    assert "38;2;0;255;0;48;2;255;255;0" in first  # green above yellow


def test_on_a_terminal_the_image_is_drawn_while_it_becomes_and_at_the_end(tmp_path: Path) -> None:
    """In a process of its own whose stderr is a terminal, without the library that knows more protocols."""
    ours, theirs = pty.openpty()
    program = "import sys\nsys.modules['textual_image.renderable'] = None\nfrom cli.app import main\nmain()\n"
    options = ["dog", "--seed", "7", "--steps", "4", "--preview-every", "2", "--device", "cpu", "--progress", "none"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-c", program, "generate", *options],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait(timeout=300) == 0
    text = shown.decode()
    assert [f"step {step} of 4" in text for step in (2, 4)] == [True, True]
    assert text.count(HALF_BLOCK) == 2 * 48 * 24 + 48 * 24
