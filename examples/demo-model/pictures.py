"""The training pictures: four views of each concept, and sheets of pictures to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

VIEWS = ((1.0, 0, False), (1.0, 0, True), (0.88, 2, False), (0.88, 2, True))  # scale, largest shift, mirrored
VIEW_ODDS = torch.tensor([0.45, 0.25, 0.18, 0.12])


@dataclass(frozen=True)
class Pictures:
    """NAMES of each of the N concepts, main one first, and their VIEWS, uint8 [N, len(VIEWS), height, width, 3]."""

    names: list[list[str]]
    views: torch.Tensor

    @property
    def flat(self) -> torch.Tensor:
        """All views, one after the other: uint8 [N * len(VIEWS), height, width, 3]."""
        return self.views.flatten(0, 1)

    @property
    def main_names(self) -> list[str]:
        """One name for each concept."""
        return [several[0] for several in self.names]


def load_pictures(path: Path) -> Pictures:
    """The pictures that prepare.py wrote. The views are the same in every run."""
    with np.load(path) as data:
        names = [words.split("|") for words in data["words"].tolist()]
        images = data["images"]
    rng = np.random.default_rng(0)
    return Pictures(names, torch.from_numpy(np.stack([views_of(image, rng) for image in images])))


def views_of(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The views of one IMAGE, uint8 [len(VIEWS), size, size, 3]: moved a little on white, made smaller, mirrored."""
    size = image.shape[0]
    views = []
    for scale, shift, mirrored in VIEWS:
        side = round(size * scale)
        corner = tuple(int((size - side) // 2 + rng.integers(-shift, shift + 1)) for _ in "xy")
        page = Image.new("RGB", (size, size), "white")
        page.paste(Image.fromarray(image).resize((side, side), Image.Resampling.LANCZOS), corner)
        pixels = np.asarray(page)
        views.append(pixels[:, ::-1] if mirrored else pixels)
    return np.stack(views)


def to_network(pictures: torch.Tensor) -> torch.Tensor:
    """uint8 [B, height, width, 3] as the VAE takes it: float32 [B, 3, height, width] from -1 to 1."""
    return pictures.permute(0, 3, 1, 2).float() / 127.5 - 1


def from_network(pictures: torch.Tensor) -> list[Image.Image]:
    """The way back."""
    scaled = ((pictures / 2 + 0.5).clamp(0, 1) * 255).byte()
    return [Image.fromarray(picture.permute(1, 2, 0).numpy()) for picture in scaled]


def sheet(images: Sequence[Image.Image], columns: int, scale: int = 1) -> Image.Image:
    """IMAGES of one size on one page, row by row."""
    side = images[0].width + 2
    page = Image.new("RGB", (columns * side, -(-len(images) // columns) * side), "grey")
    for number, image in enumerate(images):
        page.paste(image, (number % columns * side, number // columns * side))
    return page.resize((page.width * scale, page.height * scale), Image.Resampling.NEAREST)
