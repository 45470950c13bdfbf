"""The images that a picture starts from: read, turned upright, brought to a size the model takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardtool.errors import InputError
from shardtool.images.settings import Settings

if TYPE_CHECKING:
    from PIL import Image


def read_image(path: Path) -> Image.Image:
    """The image in the file ``path``, decoded whole. Raises ``InputError`` where it is missing or no image."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            image.load()
            return ImageOps.exif_transpose(image)
    except UnidentifiedImageError as error:
        raise InputError(f"{path}: no image", code="image_invalid", path=path) from error
    except OSError as error:
        code = "file_missing" if isinstance(error, FileNotFoundError) else "image_invalid"
        raise InputError(f"{path}: {error.strerror or error}", code=code, path=path) from error
    except (ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: {error}", code="image_invalid", path=path) from error


def load_inputs(settings: Settings, multiple: int) -> dict[str, Any]:
    """The arguments of a pipeline: ``image`` in RGB and, for inpainting, ``mask_image`` in grey (white is redrawn).

    Both have the size asked for, by default the image's own, rounded down to a ``multiple``.
    """
    from PIL import Image

    if settings.image is None:
        raise ValueError("no image to start from")
    image = read_image(settings.image).convert("RGB")
    sides = (settings.width or image.width, settings.height or image.height)
    size = (max(sides[0] // multiple, 1) * multiple, max(sides[1] // multiple, 1) * multiple)
    arguments: dict[str, Any] = {"image": image.resize(size, Image.Resampling.LANCZOS)}
    if settings.mask is not None:
        mask = read_image(settings.mask).convert("L")
        arguments["mask_image"] = mask.resize(size, Image.Resampling.NEAREST)
        arguments |= {"width": size[0], "height": size[1]}
    return arguments
