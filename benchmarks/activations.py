"""How many numbers a run holds at its peak beside the weights, by counting: the real models are run on meta.

    python benchmarks/activations.py

No number is computed and no memory taken: every operation of a real forward pass is made on tensors without data, and
the sizes of the results that are alive at the same time are added up, as eager PyTorch would hold them. Attention is
taken as one operation without an intermediate (what flash and memory-efficient attention do). Workspaces of libraries
and the allocator's rounding are not seen. The figures are what ``shardtool/activations.py`` is fitted to.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import diffusers
import torch
from sdxl_unet import SDXL
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class OneStepAttention(TorchFunctionMode):
    """Attention as one operation: its result is as large as its query."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            return torch.empty_like(args[0] if args else kwargs["query"])
        return func(*args, **(kwargs or {}))


class Alive(TorchDispatchMode):
    """Counts the elements of storages that operations make and that are still referenced."""

    def __init__(self, weights: torch.nn.Module) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._weights = {tensor.untyped_storage()._cdata for tensor in weights.parameters()}
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor)
        self.peak = max(self.peak, self.now)
        return out

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._weights or key in self._seen:
            return
        self._seen.add(key)
        size = storage.nbytes()
        self.now += size
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size


def peak(model: torch.nn.Module, call: Callable[[], Any]) -> int:
    """Numbers alive at the peak, for a model in fp32 (four bytes each)."""
    counter = Alive(model)
    with torch.inference_mode(), OneStepAttention(), counter:
        call()
    return counter.peak // 4


def meta(make: Callable[[], Any]) -> Any:
    with torch.device("meta"):
        return make().eval()


def unet_peak(unet: Any, side: int, batch: int) -> int:
    """For latents of ``side`` × ``side``; 77 tokens of text, and SDXL's conditioning where the UNet has it."""
    config = unet.config
    more: dict[str, Any] = {}
    with torch.device("meta"):
        if config.addition_embed_type == "text_time":
            more["added_cond_kwargs"] = {"text_embeds": torch.empty(batch, 1280), "time_ids": torch.empty(batch, 6)}
        inputs = {
            "sample": torch.empty(batch, 4, side, side),
            "timestep": torch.empty(batch),
            "encoder_hidden_states": torch.empty(batch, 77, config.cross_attention_dim),
        }
        return peak(unet, partial(unet, **inputs, **more))


def vae_peak(vae: Any, side: int, batch: int) -> int:
    """For decoding latents of ``side`` × ``side``."""
    with torch.device("meta"):
        return peak(vae, partial(vae.decode, torch.empty(batch, vae.config.latent_channels, side, side)))


def flux_peak(flux: Any, tokens: int) -> int:
    """For ``tokens`` of picture and 512 of text."""
    with torch.device("meta"):
        inputs = {
            "hidden_states": torch.empty(1, tokens, 64),
            "encoder_hidden_states": torch.empty(1, 512, 4096),
            "pooled_projections": torch.empty(1, 768),
            "timestep": torch.empty(1),
            "guidance": torch.empty(1),
            "img_ids": torch.empty(tokens, 3),
            "txt_ids": torch.empty(512, 3),
        }
        return peak(flux, partial(flux, **inputs))


def sd3_peak(sd3: Any, side: int, batch: int) -> int:
    """For latents of ``side`` × ``side`` and 333 tokens of text."""
    with torch.device("meta"):
        inputs = {
            "hidden_states": torch.empty(batch, 16, side, side),
            "encoder_hidden_states": torch.empty(batch, 333, 4096),
            "pooled_projections": torch.empty(batch, 2048),
            "timestep": torch.empty(batch),
        }
        return peak(sd3, partial(sd3, **inputs))


def sdxl_unet() -> Any:
    return meta(lambda: diffusers.UNet2DConditionModel(**SDXL))


def sd_unet() -> Any:
    return meta(lambda: diffusers.UNet2DConditionModel(cross_attention_dim=768))


def sd_vae() -> Any:
    levels = {"down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4}
    return meta(lambda: diffusers.AutoencoderKL(**levels, block_out_channels=(128, 256, 512, 512), layers_per_block=2))


def main() -> None:
    print(f"{'what':30} {'numbers':>10}  divided by")
    for what, unet in (("SDXL UNet", sdxl_unet()), ("SD 1.x UNet", sd_unet())):
        for side, batch in ((64, 1), (64, 4), (128, 1), (128, 2), (160, 1)):
            show(f"{what} {side}² × {batch}", unet_peak(unet, side, batch), side**2 * batch * 320, "latents × channels")
    vae = sd_vae()
    for side, batch in ((64, 1), (64, 2), (128, 1)):
        show(
            f"VAE decode {side}² × {batch}", vae_peak(vae, side, batch), side**2 * 64 * batch * 128, "pixels × channels"
        )
    flux = meta(lambda: diffusers.FluxTransformer2DModel(num_layers=2, num_single_layers=2, guidance_embeds=True))
    for tokens in (1024, 4096):
        show(f"Flux {tokens} tokens", flux_peak(flux, tokens), (tokens + 512) * 3072, "tokens × channels")
    sd3 = meta(lambda: diffusers.SD3Transformer2DModel(num_layers=2, sample_size=128, pos_embed_max_size=192))
    for side in (64, 128):
        show(f"SD3 {side}² × 2", sd3_peak(sd3, side, 2), (side**2 // 4 + 333) * 2 * 1152, "tokens × channels")


def show(what: str, numbers: int, unit: int, name: str) -> None:
    print(f"{what:30} {numbers / 1e6:8.1f} M  {numbers / unit:6.2f} × {name}")


if __name__ == "__main__":
    main()
