"""How much memory one run of a component takes beside its weights, from its config and the size of the picture.

The figures are counted, not measured on a GPU: ``benchmarks/activations.py`` runs the real models without data and adds
up what is alive at once. It is proportional to pixels × pictures × channels to within 0.1 %, because attention keeps no
table of all pairs in the implementations that torch chooses on CUDA, XPU and CPU (on MPS it may). On a CPU, what a
process really took was 1.26 to 1.40 times the count for a VAE and 0.96 to 1.21 times for a UNet, so the VAE's figure
has a third added for the workspaces of convolutions. ``benchmarks/gpu.py`` compares them with a GPU's own count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardtool.families import first_int, latent_factor
from shardtool.part import Part

UNET = 16
"""Numbers for each latent, picture and channel of the first level, in a UNet without attention there (SDXL)."""
UNET_ATTENTION = 26
"""The same with attention at the first level (Stable Diffusion 1.x and 2.x)."""
TRANSFORMER = 20
"""Numbers for each token, picture and channel of a transformer (15 in Flux, 16 in SD3 at 1024 pixels)."""
VAE = 8
"""Numbers for each pixel, picture and channel of the last level of a VAE's decoder: 6 counted, and workspaces."""
TEXT = 32
"""Numbers for each token and channel of a text encoder."""

_TOKENS = 512
"""The longest text that any of the families takes."""

_ABSURD = 1_000_000
"""No width, size or number of heads of a model is as large; a config that says so counts as saying nothing."""


@dataclass(frozen=True)
class Run:
    """One call of a pipeline: pixels, and pictures at once. ``None`` is the pipeline's own size.

    With ``guidance``, each picture is denoised twice in one batch.
    """

    width: int | None = None
    height: int | None = None
    images: int = 1
    guidance: bool = True


def count_activations(parts: Mapping[str, Part], run: Run) -> dict[str, int]:
    """How many numbers one run of each part holds at its peak; 0 for parts of which nothing is known."""
    factor = latent_factor(_config(parts, "vae"))
    denoiser = _config(parts, "unet") or _config(parts, "transformer")
    own = (_number(denoiser.get("sample_size")) or 128) * factor
    pixels = (run.width or own) * (run.height or own)
    latents, batch = pixels // factor**2, run.images * (2 if run.guidance else 1)
    return {name: _count(part, name, pixels * run.images, latents * batch) for name, part in parts.items()}


def _count(part: Part, name: str, pixels: int, latents: int) -> int:
    config = part.config or {}
    channels = _number(config.get("block_out_channels"))
    if name == "unet":
        blocks = config.get("down_block_types")
        attention = isinstance(blocks, list) and str(next(iter(blocks), "")).startswith("CrossAttn")
        return latents * channels * (UNET_ATTENTION if attention else UNET)
    if name == "vae":
        return pixels * channels * VAE
    if name == "transformer":
        patch = _number(config.get("patch_size")) or 1
        # Flux packs two by two latents into one token itself, and says that its patches are of one.
        patch = 2 if part.class_name == "FluxTransformer2DModel" else patch
        hidden = _number(config.get("num_attention_heads")) * _number(config.get("attention_head_dim"))
        return (latents // patch**2 + _TOKENS) * hidden * TRANSFORMER
    if name.startswith("text_encoder"):
        return _TOKENS * _number(config.get("hidden_size", config.get("d_model"))) * TEXT
    return 0


def _config(parts: Mapping[str, Part], name: str) -> Mapping[str, Any]:
    part = parts.get(name)
    return part.config or {} if part is not None else {}


def _number(value: Any) -> int:
    """A positive number of the config; 0 where it has none that makes sense."""
    found = first_int(value) or 0
    return found if 0 < found < _ABSURD else 0
