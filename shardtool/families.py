"""The families of text-to-image pipelines, as far as their parts can be told from their configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

Family: TypeAlias = Literal["sd", "sdxl", "sd3", "flux", "pixart"]

_PREFIXES: tuple[tuple[str, Family], ...] = (
    ("StableDiffusionXL", "sdxl"),
    ("StableDiffusion3", "sd3"),
    ("StableDiffusion", "sd"),
    ("Flux", "flux"),
    ("PixArt", "pixart"),
)
_OTHER = ("Flux2",)
"""Classes that begin like a family and are another."""


def family_of(class_name: str) -> Family | None:
    """The family of a diffusers pipeline class; ``None`` for one whose parts are not known here."""
    if class_name.startswith(_OTHER):
        return None
    for prefix, family in _PREFIXES:
        if class_name.startswith(prefix):
            return family
    return None


def first_int(value: Any) -> int | None:
    """A config's number that may also stand as a list with one entry for each block (all alike, or nested)."""
    while isinstance(value, list) and value:
        value = value[0]
    return value if type(value) is int else None


_LEVELS = 16
"""No VAE has more levels; a config that says so counts as saying nothing."""


def latent_factor(vae: Mapping[str, Any]) -> int:
    """How many pixels a latent is wide: the VAE of that config halves at each level but the last."""
    levels = vae.get("block_out_channels")
    return 2 ** (len(levels) - 1) if isinstance(levels, list) and 0 < len(levels) <= _LEVELS else 8


def looks_like(config: Mapping[str, Any]) -> str | None:
    """What model a UNet's config belongs to, by its widths; ``None`` if it is none of the well-known ones."""
    width = first_int(config.get("cross_attention_dim"))
    pooled = config.get("projection_class_embeddings_input_dim")
    extra = config.get("addition_embed_type") == "text_time"
    known: dict[tuple[int | None, bool, Any], str] = {
        (768, False, None): "Stable Diffusion 1.x",
        (1024, False, None): "Stable Diffusion 2.x",
        (2048, True, 2816): "Stable Diffusion XL",
        (1280, True, 2560): "the refiner of Stable Diffusion XL",
        (160, True, 192): "the embedded demo model",
    }
    name = known.get((width, extra, pooled if extra else None))
    if name is not None and config.get("in_channels") == 9:
        return f"{name}, for inpainting"
    return name
