"""LoRAs, added into the weights of a built pipeline: W + scale · alpha / rank · B · A.

Merged weights run as fast as the model alone and need no other library. Read are the names of diffusers, of PEFT and of
sd-scripts (those of the original SDXL blocks too). A tensor that fits no module is an error: a LoRA that is half
applied gives a picture that nobody asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open

from shardtool.checkpoint.strict_json import parse_json_object
from shardtool.errors import REPLACE_FILE, InputError, RefusedError
from shardtool.events import Advanced, Finished, Listener, Started, ignore
from shardtool.images.resolve import LoraFile
from shardtool.pipeline import BuiltPipeline

_DOTTED: Final = re.compile(
    r"(?P<component>unet|text_encoder_2|text_encoder)\.(?P<module>.+?)"
    r"(?:\.lora_A|\.lora_B|\.lora\.down|\.lora\.up|_lora\.down|_lora\.up|\.lora_linear_layer\.down|\.lora_linear_layer\.up"
    r"|\.alpha)(?:\.default)?(?:\.weight)?"
)
_FLAT: Final = re.compile(
    r"lora_(?P<component>unet|te1|te2|te)_(?P<module>\w+)\.(?:lora_down\.weight|lora_up\.weight|alpha)"
)
_FLAT_COMPONENTS: Final = {"unet": "unet", "te": "text_encoder", "te1": "text_encoder", "te2": "text_encoder_2"}


@dataclass
class _Pair:
    """The two matrices of one module; ``alpha`` is ``None`` where the file gives none, then it is the rank."""

    down: torch.Tensor | None = None
    up: torch.Tensor | None = None
    alpha: float | None = None
    keys: list[str] = field(default_factory=list)


def add_loras(built: BuiltPipeline, loras: tuple[LoraFile, ...], *, on_event: Listener = ignore) -> None:
    """Add each of ``loras``, in their order.

    Raises ``InputError`` where one does not fit the model, ``RefusedError`` where nothing can be added to its weights:
    offloaded piece by piece, or quantised.
    """
    if not loras:
        return
    if built.placement.offload in ("group", "sequential"):
        raise RefusedError(
            f"--lora cannot be combined with --offload {built.placement.offload}, which keeps weights away",
            code="lora_offload",
            hint="use --offload model or none",
        )
    on_event(Started("lora", "Adding LoRAs", len(loras), "files"))
    for lora in loras:
        _add(built.pipe, lora)
        on_event(Advanced("lora"))
    on_event(Finished("lora"))


def _add(pipe: Any, lora: LoraFile) -> None:
    tensors, settings = _read(lora)
    modules = {name: _modules(pipe, name) for name in ("unet", "text_encoder", "text_encoder_2")}
    flat = {component: {_flat(name): name for name in names} for component, names in modules.items()}
    pairs: dict[tuple[str, str], _Pair] = {}
    strays: list[str] = []
    for key, tensor in _sgm_renamed(tensors, pipe.unet.config).items():
        place = _place(key, modules, flat)
        if place is None:
            strays.append(key)
        else:
            _collect(pairs.setdefault(place, _Pair()), key, tensor)
    strays += [key for pair in pairs.values() if pair.down is None or pair.up is None for key in pair.keys]
    if strays or not pairs:
        example = f", {strays[0]} for one" if strays else ""
        raise InputError(
            f"{lora.path}: {len(strays)} of {len(tensors)} tensors fit no module of this model{example}",
            code="lora_unfit",
            path=lora.path,
            tensor=strays[0] if strays else None,
            hint="is it a LoRA, and for this kind of model?",
        )
    for component in dict.fromkeys(component for component, _ in pairs):
        _check_plain(lora, pipe, component)
    for (component, name), pair in pairs.items():
        alpha = pair.alpha if pair.alpha is not None else _configured_alpha(settings, component, name)
        _merge(lora, modules[component][name], name, pair, alpha)


def _check_plain(lora: LoraFile, pipe: Any, component: str) -> None:
    if getattr(getattr(pipe, component), "hf_quantizer", None) is not None:
        raise RefusedError(
            f"{lora.path}: changes the {component}, whose weights are quantised, so that nothing can be added to them",
            code="lora_quantised",
            path=lora.path,
            hint="use the weights that it was quantised from, or leave out --lora",
        )


def _read(lora: LoraFile) -> tuple[dict[str, torch.Tensor], Mapping[str, Any]]:
    """The tensors, and what PEFT's ``LoraConfig`` says, which diffusers keeps in the file's metadata."""
    try:
        with safe_open(lora.path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
            metadata = file.metadata() or {}
        return tensors, parse_json_object(metadata.get("lora_adapter_metadata", "{}").encode())
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{lora.path}: {error}", code="lora_invalid", path=lora.path) from error


def _modules(pipe: Any, component: str) -> dict[str, torch.nn.Module]:
    """The modules of a component that have a weight."""
    model = getattr(pipe, component, None)
    named = model.named_modules() if model is not None else ()
    return {name: module for name, module in named if isinstance(getattr(module, "weight", None), torch.Tensor)}


def _sgm_renamed(tensors: dict[str, torch.Tensor], config: Any) -> dict[str, torch.Tensor]:
    """Names of the original SDXL blocks (``input_blocks_4_1``) as diffusers has them."""
    if not all(key.startswith("lora_") for key in tensors):
        return tensors
    from diffusers.loaders.lora_conversion_utils import _maybe_map_sgm_blocks_to_diffusers

    renamed: dict[str, torch.Tensor] = _maybe_map_sgm_blocks_to_diffusers(dict(tensors), config)
    return renamed


def _place(
    key: str, modules: Mapping[str, Mapping[str, torch.nn.Module]], flat: Mapping[str, Mapping[str, str]]
) -> tuple[str, str] | None:
    """(component, module) that a tensor is for, if the model has it; ``flat`` is ``_flat`` name → name of each."""
    if found := _FLAT.fullmatch(key):
        component = _FLAT_COMPONENTS[found["component"]]
        name = flat[component].get(found["module"].removeprefix("text_model_"))
        return None if name is None else (component, name)
    if found := _DOTTED.fullmatch(key):
        for name in _spellings(found["module"]):
            if name in modules[found["component"]]:
                return found["component"], name
    return None


def _flat(name: str) -> str:
    return name.removeprefix("text_model.").replace(".", "_")


def _spellings(module: str) -> Iterator[str]:
    """How a module may be called now: old LoRAs hang on attention processors, new CLIPs have no ``text_model``."""
    yield module
    plain = module.replace(".processor.", ".")
    yield plain
    yield re.sub(r"\.to_out$", ".to_out.0", plain)
    yield module.removeprefix("text_model.")
    yield f"text_model.{module}"


def _collect(pair: _Pair, key: str, tensor: torch.Tensor) -> None:
    pair.keys.append(key)
    if key.endswith("alpha"):
        pair.alpha = float(tensor) if tensor.numel() == 1 else math.nan  # which is told when it is used
    elif "lora_A" in key or "down" in key.rsplit("lora", 1)[-1]:
        pair.down = tensor
    else:
        pair.up = tensor


def _configured_alpha(settings: Mapping[str, Any], component: str, name: str) -> float | None:
    patterns = settings.get(f"{component}.alpha_pattern")
    value = patterns.get(name) if isinstance(patterns, dict) else None
    value = value if value is not None else settings.get(f"{component}.lora_alpha")
    return float(value) if isinstance(value, (int, float)) else None


def _merge(lora: LoraFile, module: torch.nn.Module, name: str, pair: _Pair, alpha: float | None) -> None:
    weight, down, up = module.weight, pair.down, pair.up
    if not isinstance(weight, torch.Tensor) or down is None or up is None:
        raise TypeError(name)
    if not _makes(tuple(up.shape), tuple(down.shape), tuple(weight.shape)):
        raise InputError(
            f"{lora.path}: {name}: up {tuple(up.shape)} and down {tuple(down.shape)} do not make a weight of "
            f"{tuple(weight.shape)}",
            code="lora_unfit",
            path=lora.path,
            tensor=pair.keys[0],
            hint="is it a LoRA for this model?",
        )
    factor = lora.scale * (alpha if alpha is not None else len(down)) / len(down)
    with torch.no_grad():
        delta = factor * (up.flatten(1).float() @ down.flatten(1).float())
        if not bool(torch.isfinite(delta).all()):
            raise InputError(
                f"{lora.path}: {name}: what it adds is NaN or infinite",
                code="lora_invalid",
                path=lora.path,
                tensor=pair.keys[0],
                hint=REPLACE_FILE,
            )
        weight.copy_((weight.float() + delta.reshape(weight.shape).to(weight.device)).to(weight.dtype))


def _makes(up: tuple[int, ...], down: tuple[int, ...], weight: tuple[int, ...]) -> bool:
    """Whether (out, rank, …) times (rank, in, …) has the shape of ``weight``; asked before anything is multiplied."""
    if len(up) < 2 or len(down) < 2 or not up[1] == down[0] > 0 or math.prod(up[2:]) != 1:
        return False
    return up[0] == weight[0] and math.prod(down[1:]) == math.prod(weight[1:])
