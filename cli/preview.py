"""Images in the terminal: kitty, iTerm or sixel where ``textual-image`` is installed, else two pixels a character."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from .output import Output, show

if TYPE_CHECKING:
    from PIL import Image
    from rich.console import RenderableType

    from shardtool.images.settings import Job

HALF_BLOCK = "▀"
_COLUMNS = 48


def previewer(out: Output, *, wanted: bool) -> Callable[[Job, int, Image.Image], None] | None:
    """What shows an image of a job after so many steps, on stderr; ``None`` where there is no terminal to show it."""
    if not wanted or out.quiet:
        return None
    if not sys.stderr.isatty():
        out.say("note: --preview shows nothing here, as stderr is no terminal")
        return None

    def show_image(job: Job, step: int, image: Image.Image) -> None:
        console = out.console(sys.stderr)
        console.print(f"{show(job.settings.prompt)} · seed {job.seed} · step {step} of {job.settings.steps_run}")
        console.print(drawable(image, min(console.width, _COLUMNS)))

    return show_image


def drawable(image: Image.Image, columns: int) -> RenderableType:
    """Something that Rich draws ``columns`` wide."""
    try:
        from textual_image.renderable import Image as TerminalImage
    except ImportError:
        return half_blocks(image, columns)
    drawn: RenderableType = TerminalImage(image, width=columns, height="auto")
    return drawn


def half_blocks(image: Image.Image, columns: int) -> RenderableType:
    """Upper half blocks: the upper pixel is the character's colour, the lower one its background."""
    from rich.text import Text

    rows = max(1, round(image.height * columns / image.width / 2))
    small = image.convert("RGB").resize((columns, rows * 2))
    text = Text(no_wrap=True, end="")
    for row in range(rows):
        for column in range(columns):
            upper, lower = (small.getpixel((column, 2 * row + half)) for half in (0, 1))
            text.append(HALF_BLOCK, f"{_colour(upper)} on {_colour(lower)}")
        text.append("\n")
    return text


def _colour(pixel: object) -> str:
    if not isinstance(pixel, tuple):
        raise TypeError(pixel)
    return "#" + "".join(f"{int(value):02x}" for value in pixel[:3])
