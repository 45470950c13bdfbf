"""One HTML page to look through a run: every image inside it, no other file, no script from elsewhere.

The page allows itself nothing but its own inline style and script and the embedded images (its Content-Security-Policy
says so), and every prompt is escaped: a prompt is foreign text. What it looks like is ``gallery.html``.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

GALLERY_NAME: Final = "gallery.html"

_TYPES: Final = {"png": "image/png", "jpg": "image/jpeg", "webp": "image/webp"}
_SMALL: Final = 256
"""Pixels; a narrower image is enlarged without smoothing."""


@dataclass(frozen=True)
class Shown:
    """An image of the gallery: its file's name, format and bytes, and what is said of it."""

    name: str
    kind: str
    data: bytes
    width: int
    facts: Mapping[str, Any]


def render_gallery(title: str, images: Sequence[Shown]) -> str:
    """The page. ``facts`` of each image are shown when it is opened; ``prompt`` and ``seed`` below its thumbnail."""
    facts = [{key: str(value) for key, value in image.facts.items() if value is not None} for image in images]
    pieces = {
        "title": html.escape(title),
        "count": str(len(images)),
        "figures": "\n".join(_figure(number, image) for number, image in enumerate(images)),
        # "<" could end the script element, or begin a comment in it.
        "records": json.dumps(facts, ensure_ascii=True).replace("<", "\\u003c"),
    }
    template = Path(__file__).with_name("gallery.html").read_text(encoding="utf-8")
    # In one pass, so that nothing is looked for in what was filled in.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: pieces[found[1]], template)


def _figure(number: int, image: Shown) -> str:
    source = f"data:{_TYPES[image.kind]};base64,{base64.b64encode(image.data).decode()}"
    prompt = html.escape(str(image.facts.get("prompt", "")))
    small = ' class="small"' if image.width < _SMALL else ""
    return (
        f'<figure data-index="{number}"><button type="button"><img src="{source}" alt="{prompt}"{small}></button>'
        f"<figcaption>{prompt} <small>seed {html.escape(str(image.facts.get('seed', '')))} · "
        f"{html.escape(image.name)}</small></figcaption></figure>"
    )
