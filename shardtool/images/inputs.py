"""The images that a picture starts from: read, turned upright, brought to a size the model takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardtool.checkpoint.files import OpenFile
from shardtool.errors import InputError
from shardtool.foreign_code import failing_as
from shardtool.images.settings import Settings

if TYPE_CHECKING:
    from PIL import Image


def read_image(path: Path) -> Image.Image:
    """The image in the file ``path``, decoded whole. Raises ``InputError`` where it is missing or no image."""
    from PIL import ImageOps

    with opened_image(path) as image:
        image.load()
        return ImageOps.exif_transpose(image)


@contextmanager
def opened_image(path: Path) -> Iterator[Image.Image]:
    """The image in the file ``path``; what goes wrong with it in the block becomes an ``InputError`` that names it."""
    from PIL import Image, UnidentifiedImageError

    def invalid(reason: str) -> InputError:
        return InputError(f"{path}: {reason}", code="image_invalid", path=path)

    # A damaged image can end in any error: struct's and zlib's, IndexError, …
    with OpenFile(path) as file, os.fdopen(os.dup(file.fd), "rb") as stream, failing_as(invalid):
        try:
            image = Image.open(stream)
        except UnidentifiedImageError as error:
            raise invalid("no image") from error
        with image:
            yield image


def image_size(path: Path) -> tuple[int, int]:
    """Width and height of the image in the file ``path``, upright. Raises ``InputError`` where it is no image."""
    return read_image(path).size


def load_inputs(settings: Settings) -> dict[str, Any]:
    """The arguments of a pipeline: ``image`` in RGB and, for inpainting, ``mask_image`` in grey (white is redrawn).

    Both are brought to the size of the settings.
    """
    from PIL import Image

    if settings.image is None or settings.width is None or settings.height is None:
        raise ValueError("no image to start from")
    size = (settings.width, settings.height)
    arguments: dict[str, Any] = {"image": read_image(settings.image).convert("RGB")}
    arguments["image"] = arguments["image"].resize(size, Image.Resampling.LANCZOS)
    if settings.mask is not None:
        mask = read_image(settings.mask).convert("L")
        arguments["mask_image"] = mask.resize(size, Image.Resampling.NEAREST)
        arguments |= {"width": size[0], "height": size[1]}
    return arguments
