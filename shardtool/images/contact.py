"""The contact sheet: every image of a run on one sheet, with its prompt and seed below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

SHEET_NAME: Final = "grid.png"
_GAP: Final = 8
_LINES: Final = 2
_LEAST: Final = 128
"""Pixels a cell is wide at least: a caption must fit below a picture of 64."""
_MOST: Final = 512


def contact_sheet(images: Sequence[tuple[Image.Image, str]]) -> Image.Image:
    """``images`` with their captions in rows, as near to a square as their number allows. At least one image."""
    from PIL import Image, ImageDraw, ImageFont

    columns = math.ceil(math.sqrt(len(images)))
    side = min(max(max(max(image.size) for image, _ in images), _LEAST), _MOST)
    points = max(11, side // 24)
    font = ImageFont.load_default(size=points)
    line = int(points * 1.3)
    cell = (side + _GAP, side + _GAP + _LINES * line)
    rows = math.ceil(len(images) / columns)
    sheet = Image.new("RGB", (columns * cell[0] + _GAP, rows * cell[1] + _GAP), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (image, caption) in enumerate(images):
        left, top = _GAP + number % columns * cell[0], _GAP + number // columns * cell[1]
        shown = _fitted(image, side)
        sheet.paste(shown, (left + (side - shown.width) // 2, top + (side - shown.height) // 2))
        for row, text in enumerate(_wrapped(caption, side, draw, font)):
            draw.text((left, top + side + 2 + row * line), text, fill="black", font=font)
    return sheet


def _fitted(image: Image.Image, side: int) -> Image.Image:
    """No larger than the cell; a small one is enlarged by a whole factor, so that its pixels stay sharp."""
    from PIL import Image

    longest = max(image.size)
    if longest > side:
        scale = side / longest
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        return image.resize(size, Image.Resampling.LANCZOS)
    factor = side // longest
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def _wrapped(text: str, width: int, draw: ImageDraw.ImageDraw, font: Any) -> list[str]:
    """The caption in at most two lines of ``width`` pixels, cut with an ellipsis."""

    def fits(piece: str) -> bool:
        return bool(draw.textlength(piece, font=font) <= width)

    lines: list[str] = []
    words = "".join(char if char.isprintable() else " " for char in text).split()
    while words and len(lines) < _LINES:
        line = words.pop(0)
        while words and fits(f"{line} {words[0]}"):
            line += f" {words.pop(0)}"
        last = len(lines) == _LINES - 1
        cut = last and bool(words)
        while line and not fits(line + ("…" if cut else "")):
            line, cut = line[:-1], True
        lines.append(line + ("…" if cut else ""))
    return lines
