"""The settings out of an image: this program's, A1111's, InvokeAI's or ComfyUI's.

Everything in an image is foreign text: sizes are bounded, nothing is executed, and what does not parse is left out.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shardtool.images.comfyui import settings_of_graph
from shardtool.images.files import IPTC
from shardtool.images.foreign_json import json_object
from shardtool.images.inputs import opened_image
from shardtool.images.invokeai import settings_of_invokeai
from shardtool.images.parameters import parse_parameters
from shardtool.images.record import SCHEMA

LARGEST_TEXT: Final = 8_000_000
"""Characters of one piece of metadata; a ComfyUI workflow has some hundred thousand."""

IMAGE_SUFFIXES: Final = (".png", ".jpg", ".jpeg", ".webp")
_RECORD = re.compile(r'shardtool:record="([^"]*)"')
_MARK = re.compile(r'DigitalSourceType(?:="|>)(' + re.escape(IPTC) + r"\w+)")


def read_settings(path: Path) -> dict[str, Any]:
    """What the image at ``path`` says of how it was made.

    ``tool`` is ``"shardtool"``, ``"a1111"``, ``"invokeai"``, ``"comfyui"`` or ``None``; ``settings`` are under this
    program's names, as far as they are known; ``record`` is this program's own JSON, else ``None``; ``ai_mark`` the
    IPTC value. ``format``, ``width`` and ``height`` are the image's own. Raises ``InputError`` where it is no image.
    """
    texts, shape = _texts(path)
    xmp = texts.get("XML:com.adobe.xmp", "")
    mark = _MARK.search(xmp)
    record = _own_record(texts.get("shardtool") or _embedded_record(xmp))
    tool, settings = _settings(texts, record)
    return {
        **shape,
        "tool": tool,
        "settings": settings,
        "record": record,
        "parameters": texts.get("parameters"),
        "ai_mark": mark[1] if mark else None,
    }


def _settings(texts: Mapping[str, str], record: Mapping[str, Any] | None) -> tuple[str | None, dict[str, Any]]:
    if record is not None:
        return "shardtool", {key: value for key, value in record["settings"].items() if value is not None}
    invoke = settings_of_invokeai(texts)
    if invoke is not None:
        return "invokeai", invoke
    if "parameters" in texts:
        return "a1111", parse_parameters(texts["parameters"])
    graph = json_object(texts.get("prompt"))
    if graph is not None and (found := settings_of_graph(graph)) is not None:
        return "comfyui", found
    return None, {}


def _own_record(text: str | None) -> dict[str, Any] | None:
    found = json_object(text)
    if found is None or found.get("schema") != SCHEMA or not isinstance(found.get("settings"), dict):
        return None
    return found


def _embedded_record(xmp: str) -> str | None:
    from xml.sax.saxutils import unescape

    found = _RECORD.search(xmp)
    return unescape(found[1], {"&quot;": '"', "&#10;": "\n", "&#9;": "\t", "&#13;": "\r"}) if found else None


def _texts(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Every piece of text in the image by its key, and the image's format and size."""
    with warnings.catch_warnings(), opened_image(path) as image:
        warnings.simplefilter("ignore")  # damaged EXIF is no news to the user
        if image.format == "PNG":
            image.load()  # text may come after the pixels
        texts = {str(key): value for key, value in image.info.items() if isinstance(value, str)}
        texts |= _binary_texts(image)
        shape = {"format": (image.format or "").lower(), "width": image.width, "height": image.height}
    return {key: text for key, text in texts.items() if len(text) <= LARGEST_TEXT}, shape


def _binary_texts(image: Any) -> dict[str, str]:
    """XMP, and A1111's text in the EXIF ``UserComment``, where JPEG and WebP keep them."""
    texts: dict[str, str] = {}
    xmp = image.info.get("xmp")
    if isinstance(xmp, bytes):
        texts["XML:com.adobe.xmp"] = xmp.decode("utf-8", "replace")
    comment = image.getexif().get_ifd(0x8769).get(0x9286) if image.format in ("JPEG", "WEBP") else None
    if isinstance(comment, bytes):
        code, body = comment[:8], comment[8:]
        if code == b"UNICODE\0":
            # Big-endian by what most tools write; a text of ASCII letters shows which it is.
            texts["parameters"] = body.decode("utf-16-le" if body[1:2] == b"\0" else "utf-16-be", "replace")
        elif code == b"ASCII\0\0\0":
            texts["parameters"] = body.decode("latin-1")
    return texts
