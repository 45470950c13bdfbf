"""Latents to a picture: checked for numbers that are none, decoded once more in fp32 where that helps."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

from shardtool.errors import RunError


@dataclass(frozen=True)
class Decoded:
    """A picture in RGB; ``retried`` says that the VAE gave NaN or a blank image and was run again in fp32."""

    image: Image.Image
    retried: bool = False

    @property
    def pixel_sha256(self) -> str:
        """SHA-256 of the RGB bytes, row by row: the same whatever file they are put in."""
        return hashlib.sha256(self.image.tobytes()).hexdigest()


def decode(pipe: Any, latents: torch.Tensor) -> Decoded:
    """The picture of ``latents`` (1, channels, height, width), as diffusers' pipelines decode it (0.42.1).

    Raises ``RunError`` where it is NaN or one colour all over, in fp32 too.
    """
    share = _share_not_finite(latents)
    if share:
        raise _nan(f"{share:.0%} of the latents are NaN or infinite")
    vae = pipe.vae
    dtype = vae.dtype
    upcast = dtype == torch.float16 and getattr(vae.config, "force_upcast", False)
    image = _decode(pipe, latents, torch.float32 if upcast else dtype)
    fault = _fault(image)
    if fault is None:
        return Decoded(_picture(pipe, image))
    if upcast or dtype == torch.float32:
        raise _nan(fault)
    image = _decode(pipe, latents, torch.float32)
    again = _fault(image)
    if again is not None:
        raise _nan(f"{again}, decoded in fp32 too")
    return Decoded(_picture(pipe, image), retried=True)


def _decode(pipe: Any, latents: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What the VAE makes of ``latents`` in ``dtype``; (1, 3, height, width), about -1 to 1."""
    vae = pipe.vae
    before = vae.dtype
    if before != dtype:
        vae.to(dtype=dtype)
    try:
        latents = latents.to(dtype)
        config = vae.config
        mean, std = getattr(config, "latents_mean", None), getattr(config, "latents_std", None)
        if mean is not None and std is not None:
            shaped = [torch.tensor(one).view(1, -1, 1, 1).to(latents.device, dtype) for one in (mean, std)]
            latents = latents * shaped[1] / config.scaling_factor + shaped[0]
        else:
            latents = latents / config.scaling_factor
        decoded: torch.Tensor = vae.decode(latents, return_dict=False)[0]
        return decoded
    finally:
        if before != dtype:
            vae.to(dtype=before)


def _picture(pipe: Any, image: torch.Tensor) -> Image.Image:
    if getattr(pipe, "watermark", None) is not None:
        image = pipe.watermark.apply_watermark(image)
    made: Image.Image = pipe.image_processor.postprocess(image.detach(), output_type="pil")[0]
    return made


def _fault(image: torch.Tensor) -> str | None:
    share = _share_not_finite(image)
    if share:
        return f"{share:.0%} of the values are NaN or infinite"
    flat = image.detach().float().clamp(-1, 1).mul(127.5).round()
    if bool((flat.amax(dim=(0, 2, 3)) == flat.amin(dim=(0, 2, 3))).all()):
        return "the image is one colour all over"
    return None


def _share_not_finite(tensor: torch.Tensor) -> float:
    finite = torch.isfinite(tensor)
    return 0.0 if bool(finite.all()) else 1 - finite.float().mean().item()


def _nan(fault: str) -> RunError:
    return RunError(fault, code="nan_image", hint="try --dtype fp32 or bf16, or another --vae")


def preview(pipe: Any, latents: torch.Tensor, side: int = 32) -> Image.Image:
    """A cheap look at ``latents``: decoded after they are averaged to at most ``side`` latent pixels a side."""
    height, width = latents.shape[-2:]
    factor = -(-max(height, width) // side)
    if factor > 1:
        size = (max(1, height // factor), max(1, width // factor))
        latents = torch.nn.functional.adaptive_avg_pool2d(latents, size)
    upcast = pipe.vae.dtype == torch.float16 and getattr(pipe.vae.config, "force_upcast", False)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an early preview may be anything
        image = _decode(pipe, latents, torch.float32 if upcast else pipe.vae.dtype)
        made: Image.Image = pipe.image_processor.postprocess(image, output_type="pil")[0]
    return made
