"""The contact sheet holds every image and a caption."""

from __future__ import annotations

import pytest
from PIL import Image

from shardtool.images.contact import contact_sheet

COLOURS = ["#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4"]


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_every_image_is_on_the_sheet(number: int) -> None:
    images = [(Image.new("RGB", (64, 48), colour), "a caption") for colour in COLOURS[:number]]
    sheet = contact_sheet(images)
    counted = {colour: count for count, colour in sheet.getcolors(1 << 24) or []}
    for image, _ in images:
        assert counted[image.getpixel((0, 0))] == 128 * 96  # enlarged by a whole factor, nothing cut


def test_a_large_image_is_brought_down_and_a_long_caption_is_cut() -> None:
    sheet = contact_sheet([(Image.new("RGB", (1024, 2048), "red"), "word " * 200 + "x" * 500)])
    assert sheet.width <= 600
    assert sheet.height <= 700


def test_captions_differ() -> None:
    plain = Image.new("RGB", (64, 64))
    assert contact_sheet([(plain, "one")]).tobytes() != contact_sheet([(plain, "two\x1b[31m")]).tobytes()
