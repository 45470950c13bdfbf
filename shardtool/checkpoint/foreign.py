"""Recognise, by its first bytes, what lies where weights should be: a Git LFS pointer, a web page, a pickle, GGUF …"""

from __future__ import annotations

import codecs
from pathlib import Path

from shardtool.checkpoint.files import OpenFile
from shardtool.errors import REPLACE_FILE, Problem

SNIFF = 64
"""Bytes of the start of a file that are enough to tell."""

_IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")

_KINDS: tuple[tuple[bytes, str, str, str], ...] = (
    (
        b"version https://git-lfs",
        "lfs_pointer",
        "is a Git LFS pointer, not the file itself",
        "run `git lfs pull` in that folder, or download the file itself",
    ),
    (
        b"<!doctype",
        "web_page",
        "is a web page, not the file itself",
        "download the file itself, logged in if it is gated",
    ),
    (
        b"<html",
        "web_page",
        "is a web page, not the file itself",
        "download the file itself, logged in if it is gated",
    ),
    (b"GGUF", "gguf", "is a GGUF file", "gguf-split splits and merges those"),
    (
        b"PK\x03\x04",
        "pickle",
        "is a ZIP archive (a PyTorch pickle or a DDUF), not safetensors",
        "convert a pickle with `shardtool shard FILE --allow-pickle`; unpack a DDUF first",
    ),
    *(
        (
            bytes((0x80, protocol)),
            "pickle",
            "is a Python pickle, not safetensors",
            "convert it with `shardtool shard FILE --allow-pickle`",
        )
        for protocol in (2, 3, 4, 5)
    ),
    *(
        (magic, "not_safetensors", "is a picture, not safetensors", "`shardtool inspect` tells how a picture was made")
        for magic in _IMAGES
    ),
)


def recognise(start: bytes, path: str) -> Problem | None:
    """What the first ``SNIFF`` bytes show the file to be, or ``None`` where they show nothing known."""
    plain = start.lstrip()
    for magic, code, what, hint in _KINDS:
        if plain[: len(magic)].lower() == magic.lower():
            return Problem(code, f"{path}: {what}", path, hint=hint)
    if start and not start.strip(b"\0"):
        return Problem(
            "not_safetensors",
            f"{path}: begins with zeros: an empty hull of a download",
            path,
            hint=REPLACE_FILE,
        )
    return None


def text_problem(start: bytes, path: str) -> Problem | None:
    """That ``start``, with which a file of weights begins, is text in UTF-8; a header's length holds zeros.

    It may end within a character. Fewer bytes than a length has may be the beginning of anything.
    """
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return None
    if len(start) < 8 or not all(char.isprintable() or char.isspace() for char in text):
        return None
    hint = "a checkpoint is a .safetensors file, its .safetensors.index.json, or a folder that holds them"
    return Problem("not_safetensors", f"{path}: is a text file, not safetensors", path, hint=hint)


def is_image(path: Path) -> bool:
    """Whether ``path`` is a file that begins as PNG, JPEG or WebP pictures do."""
    if not path.is_file():
        return False
    with OpenFile(path) as file:
        start = file.read_at(0, min(file.size, SNIFF))
    return start.startswith(_IMAGES) or (start[:4] == b"RIFF" and start[8:12] == b"WEBP")
