"""Scores of a trained demo model: is each picture nearest to a training picture of its own concept?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from diffusers import StableDiffusionXLPipeline
from pictures import Pictures, to_network
from PIL import Image
from vae import encode

AT_ONCE = 32


@dataclass(frozen=True)
class Score:
    """How the pictures of some concepts came out.

    OWN_BY_PIXELS and OWN_BY_LATENTS are the shares (0 to 1) of pictures whose nearest training picture, of all
    concepts and views, is one of their own concept. DISTANCE is the mean L1 distance to the nearest own view, in a
    range of 0 to 1. MISSES names what was taken for what, by pixels.
    """

    own_by_pixels: float
    own_by_latents: float
    distance: float
    misses: list[str]


def draw(
    pipeline: StableDiffusionXLPipeline, prompts: Sequence[str], seed: int, steps: int, guidance: float
) -> list[Image.Image]:
    """A picture for each prompt, each with a seed of its own that follows from SEED."""
    images: list[Image.Image] = []
    for start in range(0, len(prompts), AT_ONCE):
        some = list(prompts[start : start + AT_ONCE])
        numbers = range(seed * 1000 + start, seed * 1000 + start + len(some))
        generators = [torch.Generator().manual_seed(number) for number in numbers]
        images += pipeline(some, num_inference_steps=steps, guidance_scale=guidance, generator=generators).images
    return images


def as_tensor(images: Sequence[Image.Image]) -> torch.Tensor:
    """uint8 [N, height, width, 3]."""
    return torch.from_numpy(np.stack([np.asarray(image) for image in images]))


class Referee:
    """Compares pictures with all training pictures, which it encodes once."""

    def __init__(self, pipeline: StableDiffusionXLPipeline, pictures: Pictures) -> None:
        self.vae = pipeline.vae
        self.names = pictures.main_names
        self.views = pictures.views.shape[1]
        self.pixels = to_network(pictures.flat).flatten(1)
        self.latents = encode(self.vae, pictures.flat).flatten(1)

    def score(self, images: Sequence[Image.Image], concepts: Sequence[int]) -> Score:
        """Score IMAGES, of which each is meant to show the concept of that number."""
        made = as_tensor(images)
        pixels, wanted = to_network(made).flatten(1), torch.tensor(concepts)
        by_pixels = self._nearest(pixels, self.pixels)
        by_latents = self._nearest(encode(self.vae, made).flatten(1), self.latents)
        own = self.pixels.unflatten(0, (-1, self.views))[wanted]
        distance = (pixels[:, None] - own).abs().mean(2).amin(1) / 2
        pairs = zip(concepts, by_pixels.tolist(), strict=True)
        return Score(
            own_by_pixels=(by_pixels == wanted).float().mean().item(),
            own_by_latents=(by_latents == wanted).float().mean().item(),
            distance=distance.mean().item(),
            misses=[f"{self.names[meant]}->{self.names[seen]}" for meant, seen in pairs if meant != seen],
        )

    def _nearest(self, made: torch.Tensor, references: torch.Tensor) -> torch.Tensor:
        """The concept of the nearest reference [views of N concepts, features] for each row of MADE."""
        return torch.cdist(made, references).argmin(1) // self.views


@torch.no_grad()
def reconstruct(pipeline: StableDiffusionXLPipeline, pictures: Pictures) -> tuple[torch.Tensor, float, float]:
    """The VAE alone: its pictures of the plain views, their mean L1 distance (range 0 to 1) and PSNR in dB."""
    plain = pictures.views[:, 0]
    made = torch.cat([pipeline.vae.decode(part).sample for part in encode(pipeline.vae, plain).split(64)])
    error = (made.clamp(-1, 1) - to_network(plain)) / 2
    return made, error.abs().mean().item(), -10 * torch.log10((error**2).mean()).item()
