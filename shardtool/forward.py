"""Run a loaded model once on small seeded inputs: do the numbers come out finite, and are they the same elsewhere?"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from shardtool.errors import RunError
from shardtool.families import first_int
from shardtool.foreign_code import failing_as

_TOKENS = 8
_SIDE = 16

Inputs: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Forward:
    """``digest`` is the SHA-256 of the output as float32, ``shape`` its shape, ``seconds`` what it took.

    The same weights give the same digest on the same kind of device, in the same dtype and release of torch.
    """

    digest: str
    shape: tuple[int, ...]
    seconds: float


def run_forward(name: str, model: Any) -> Forward | None:
    """One forward pass of ``model``; ``None`` where no inputs are known for its class.

    Raises ``RunError`` where it fails, or the output is not finite.
    """
    make = _INPUTS.get(type(model).__name__)
    if make is None:
        return None
    generator = torch.Generator().manual_seed(0)
    parameter = next(model.parameters())

    def random(*shape: int) -> torch.Tensor:
        # Drawn on the CPU, so that every device sees the same numbers.
        return torch.randn(shape, generator=generator).to(parameter.device, parameter.dtype)

    config = model.config if isinstance(model.config, Mapping) else model.config.to_dict()

    def failed(reason: str) -> RunError:
        return RunError(
            f"{name}: {type(model).__name__} cannot be run on small inputs: {reason}",
            code="forward_failed",
            hint="its config may want inputs that are not known here: leave out --forward",
        )

    with torch.inference_mode(), _aligned(model), failing_as(failed):
        inputs = make(config, random)
        began = time.perf_counter()
        call = model.decode if "z" in inputs else model
        output = call(**{key: _moved(value, parameter.device) for key, value in inputs.items()})
    result = next(iter(output.values())) if isinstance(output, Mapping) else output[0]
    numbers = result.float().cpu().contiguous()
    seconds = time.perf_counter() - began
    bad = int((~numbers.isfinite()).sum())
    if bad:
        raise RunError(
            f"{name}: {bad:,} of {numbers.numel():,} numbers that it computes are not finite",
            code="not_finite",
            hint="the weights are damaged, or too large for this dtype: try --dtype bf16 or fp32, and verify --deep",
        )
    digest = hashlib.sha256(numbers.view(torch.uint8).numpy()).hexdigest()
    return Forward(digest, tuple(result.shape), seconds)


@contextmanager
def _aligned(model: torch.nn.Module) -> Iterator[None]:
    """Let each module compute with copies of its weights at addresses that are multiples of 64, while it computes.

    Weights that are mapped from a file lie wherever the file has them, and kernels for CPUs add up in another order at
    another alignment: the same weights in other shards would give another digest in the last bits.
    """
    mapped: dict[torch.nn.Parameter, torch.Tensor] = {}

    def align(module: torch.nn.Module, arguments: object) -> None:  # noqa: ARG001 (torch calls it so)
        for parameter in module.parameters(recurse=False):
            if parameter.device.type == "cpu" and parameter.data_ptr() % 64:
                mapped[parameter] = parameter.data
                parameter.data = parameter.data.clone()

    def restore(module: torch.nn.Module, arguments: object, output: object) -> None:  # noqa: ARG001
        for parameter in module.parameters(recurse=False):
            if parameter in mapped:
                parameter.data = mapped.pop(parameter)

    handles = [module.register_forward_pre_hook(align) for module in model.modules()]
    handles += [module.register_forward_hook(restore, always_call=True) for module in model.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _unet(config: Mapping[str, Any], random: Callable[..., torch.Tensor]) -> Inputs:
    width = first_int(config.get("encoder_hid_dim")) or first_int(config["cross_attention_dim"])
    inputs: Inputs = {
        "sample": random(1, config["in_channels"], _SIDE, _SIDE),
        "timestep": torch.tensor(500),
        "encoder_hidden_states": random(1, _TOKENS, width or 1),
    }
    if config.get("addition_embed_type") == "text_time":
        ids, per_id = 6, config["addition_time_embed_dim"]
        pooled = config["projection_class_embeddings_input_dim"] - ids * per_id
        inputs["added_cond_kwargs"] = {"text_embeds": random(1, pooled), "time_ids": random(1, ids)}
    return inputs


def _vae(config: Mapping[str, Any], random: Callable[..., torch.Tensor]) -> Inputs:
    return {"z": random(1, config["latent_channels"], _SIDE // 2, _SIDE // 2)}


def _text(config: Mapping[str, Any], random: Callable[..., torch.Tensor]) -> Inputs:  # noqa: ARG001 (as the others)
    return {"input_ids": torch.arange(1, _TOKENS + 1).reshape(1, _TOKENS)}


def _sd3(config: Mapping[str, Any], random: Callable[..., torch.Tensor]) -> Inputs:
    return {
        "hidden_states": random(1, config["in_channels"], _SIDE, _SIDE),
        "encoder_hidden_states": random(1, _TOKENS, config["joint_attention_dim"]),
        "pooled_projections": random(1, config["pooled_projection_dim"]),
        "timestep": torch.tensor([500]),
    }


def _flux(config: Mapping[str, Any], random: Callable[..., torch.Tensor]) -> Inputs:
    return {
        "hidden_states": random(1, _SIDE, config["in_channels"]),
        "encoder_hidden_states": random(1, _TOKENS, config["joint_attention_dim"]),
        "pooled_projections": random(1, config["pooled_projection_dim"]),
        "timestep": torch.tensor([0.5]),
        "guidance": torch.tensor([3.5]) if config.get("guidance_embeds") else None,
        "img_ids": torch.zeros(_SIDE, 3),
        "txt_ids": torch.zeros(_TOKENS, 3),
    }


def _pixart(config: Mapping[str, Any], random: Callable[..., torch.Tensor]) -> Inputs:
    return {
        "hidden_states": random(1, config["in_channels"], _SIDE, _SIDE),
        "encoder_hidden_states": random(1, _TOKENS, config["caption_channels"]),
        "timestep": torch.tensor([500]),
        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
    }


_INPUTS: Mapping[str, Callable[[Mapping[str, Any], Callable[..., torch.Tensor]], Inputs]] = {
    "UNet2DConditionModel": _unet,
    "AutoencoderKL": _vae,
    "CLIPTextModel": _text,
    "CLIPTextModelWithProjection": _text,
    "T5EncoderModel": _text,
    "SD3Transformer2DModel": _sd3,
    "FluxTransformer2DModel": _flux,
    "PixArtTransformer2DModel": _pixart,
}
