"""Where images go: a file, a folder or a template, and never over something that is there unless asked.

A template has fields in braces: ``out/{prompt}-{seed}.png``. ``{{`` and ``}}`` are braces. What a field stands for
holds no separator, so that a prompt cannot lead out of the folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

from shardtool.errors import RefusedError, UsageError
from shardtool.images.settings import Settings

ImageFormat: TypeAlias = Literal["png", "jpg", "webp"]

SUFFIXES: Final[Mapping[str, ImageFormat]] = {".png": "png", ".jpg": "jpg", ".jpeg": "jpg", ".webp": "webp"}
FIELDS: Final = (
    *("prompt", "seed", "index", "model", "steps", "guidance", "scheduler"),
    *("w", "h", "width", "height", "date", "time", "hash"),
)
DEFAULT_TEMPLATE: Final = "{prompt}-{seed}"
_SLUG_BYTES = 60


@dataclass(frozen=True)
class Target:
    """Where images go and in which form. ``output`` is as typed; ``format`` ``None`` is the suffix's, or PNG."""

    output: str | None = None
    format: ImageFormat | None = None
    overwrite: bool = False
    skip_existing: bool = False

    @property
    def to_stdout(self) -> bool:
        return self.output == "-"

    def __post_init__(self) -> None:
        if self.overwrite and self.skip_existing:
            raise UsageError("--overwrite and --skip-existing contradict each other", code="contradiction")
        self.image_format  # noqa: B018 (raises where the format is not known)

    @property
    def image_format(self) -> ImageFormat:
        """Raises ``UsageError`` where ``output`` ends in something else than ``format``, or in no image's suffix."""
        suffix = "" if self.output is None or self.to_stdout or self.is_folder else Path(self.output).suffix.lower()
        if not suffix or "}" in suffix:
            if self.to_stdout and self.format not in (None, "png"):
                raise UsageError("-o - writes PNG only", code="format_invalid", hint="leave out --format")
            return self.format or "png"
        if suffix not in SUFFIXES:
            raise UsageError(
                f"-o {self.output}: {suffix} is no format for images",
                code="format_invalid",
                hint=f"end it in {', '.join(SUFFIXES)}, or in / for a folder",
            )
        if self.format not in (None, SUFFIXES[suffix]):
            raise UsageError(f"-o {self.output} contradicts --format {self.format}", code="contradiction")
        return SUFFIXES[suffix]

    @property
    def is_folder(self) -> bool:
        output = self.output
        return output is not None and (output.endswith(("/", os.sep)) or Path(output).is_dir())

    @property
    def template(self) -> str:
        """The template for one image, without the suffix, with braces of a plain name doubled."""
        if self.output is None:
            return DEFAULT_TEMPLATE
        if self.is_folder:
            return str(Path(_literal(self.output)) / DEFAULT_TEMPLATE)
        stem = str(Path(self.output).with_suffix("")) if Path(self.output).suffix.lower() in SUFFIXES else self.output
        check_template(stem)
        return stem

    @property
    def suffix(self) -> str:
        typed = Path(self.output).suffix if self.output and not self.to_stdout and not self.is_folder else ""
        return typed if typed.lower() in SUFFIXES else f".{self.image_format}"

    @property
    def folder(self) -> Path:
        """The folder of the images, as far as no field decides it: there go the ledger, the grid and the gallery."""
        fixed = self.template.replace("{{", "\0").split("{")[0].replace("\0", "{")
        return Path(fixed if fixed.endswith("/") else os.path.dirname(fixed))  # noqa: PTH120 (keeps "a/" apart from "a")


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def check_template(template: str) -> None:
    """Raises ``UsageError`` for a field that does not exist, or braces that do not pair."""
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UsageError(f"-o {template}: {error}", code="template_invalid", hint="write {{ for a brace") from error
    for _, name, form, conversion in parsed:
        if name is not None and (name not in FIELDS or conversion or not re.fullmatch(r"(0\d)?", form or "")):
            raise UsageError(
                f"-o: there is no field {{{name}{':' + form if form else ''}}}",
                code="template_invalid",
                hint="fields are " + " ".join(f"{{{field}}}" for field in FIELDS),
            )


def slug(text: str) -> str:
    """``text`` as a piece of a file name: letters, digits and ``-``, at most 60 bytes, never empty."""
    plain = re.sub(r"[\W_]+", "-", unicodedata.normalize("NFKC", text).lower()).strip("-")
    return plain.encode("utf-8", "ignore")[:_SLUG_BYTES].decode("utf-8", "ignore").rstrip("-") or "image"


def name_images(
    target: Target, images: Sequence[tuple[int, Settings]], model: str, now: datetime
) -> tuple[Path | None, ...]:
    """A path for each (seed, settings), no path twice; the same names for the same run, whatever exists."""
    if target.to_stdout:
        if len(images) != 1:
            raise UsageError(
                f"-o - writes one image, and this run makes {len(images)}", code="stdout_invalid", hint="name a folder"
            )
        return (None,)
    template = target.template
    if len(images) > 1 and not any(name for _, name, _, _ in string.Formatter().parse(template)):
        template += f"-{{index:0{len(str(len(images)))}}}"
    taken: set[Path] = set()
    paths: list[Path | None] = []
    for index, (seed, settings) in enumerate(images, start=1):
        stem = template.format_map(_fields(index, seed, settings, model, now))
        path, number = Path(stem + target.suffix), 1
        while path in taken:
            number += 1
            path = Path(f"{stem}-{number}{target.suffix}")
        taken.add(path)
        paths.append(path)
    return tuple(paths)


def _fields(index: int, seed: int, settings: Settings, model: str, now: datetime) -> dict[str, str | int]:
    text = repr((seed, sorted(settings.as_json().items(), key=lambda item: item[0])))
    return {
        "prompt": slug(settings.prompt),
        "seed": seed,
        "index": index,
        "model": slug(model),
        "steps": settings.steps,
        "guidance": f"{settings.guidance:g}",
        "scheduler": slug(settings.scheduler or "default"),
        "w": settings.width or 0,
        "h": settings.height or 0,
        "width": settings.width or 0,
        "height": settings.height or 0,
        "date": now.strftime("%Y-%m-%d"),
        "time": now.strftime("%H%M%S"),
        "hash": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8],
    }


def refuse_existing(paths: Sequence[Path]) -> None:
    """Raises ``RefusedError`` where one of them exists, naming the first and how many."""
    there = [path for path in paths if path.exists() or path.is_symlink()]
    if there:
        more = f" (and {len(there) - 1} more)" if len(there) > 1 else ""
        raise RefusedError(
            f"{there[0]} exists{more}",
            code="target_exists",
            path=there[0],
            hint="--overwrite replaces it; --skip-existing keeps it; -o names another place",
        )
