"""Load one component: strictly, once, to where the placement says, and leave nothing behind.

The model is built on meta, its names are matched with the headers, and only then are weights read: mapped where the
dtype stays, cast where it changes. No ``device_map`` is used, so no hook is left, and nothing is left on meta.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import accelerate
import diffusers
import torch
from diffusers.models.modeling_utils import no_init_weights
from safetensors import safe_open

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.inventory import WeightsFile
from shardtool.classes import model_class
from shardtool.errors import RefusedError
from shardtool.events import Advanced, Finished, Listener, Note, Started, ignore
from shardtool.machine import read_inventory
from shardtool.needs import Dtype, count_needs
from shardtool.parts import Part, read_component
from shardtool.placement import Inventory, Placement, Request, plan_placement
from shardtool.quiet import quiet
from shardtool.strict import Match, build_on_meta, match_names, require_fit

TORCH_DTYPES: Mapping[Dtype, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Allowed:
    """Globs of tensor names that may be missing (then they are zeros) or unexpected (then they are left out)."""

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()


STRICT = Allowed()
"""Nothing may be missing, nothing unexpected."""


@dataclass(frozen=True)
class ComponentReport:
    """What was loaded and where it is. ``dtypes`` is bytes by torch's name of the dtype, ``seconds`` the time it took.

    ``renamed`` is how many tensors had another name in the file than in the model.
    """

    name: str
    class_name: str
    library: str
    source: str
    parameters: int
    nbytes: int
    dtypes: Mapping[str, int]
    device: str
    seconds: float
    renamed: int = 0


@dataclass(frozen=True)
class LoadedComponent:
    """A model, ready to run (in evaluation mode), its placement, and what is to be said of it."""

    model: Any
    placement: Placement
    report: ComponentReport


def load_component(
    path: Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    variant: str | None = None,
    inventory: Inventory | None = None,
    force: bool = False,
    allowed: Allowed = STRICT,
    on_event: Listener = ignore,
) -> LoadedComponent:
    """The model in the component folder ``path`` (or the weights file with its ``config.json`` beside it).

    ``device`` and ``dtype`` are as in ``build_pipeline``. Raises ``InputError`` where weights and config are damaged or
    do not fit each other, and ``RefusedError`` where the placement is not possible; both before a weight is read.
    """
    part = read_component(path, variant=variant, on_event=on_event)
    request = Request(device, dtype, offload="none", force=force)
    placement = plan_placement(request, inventory or read_inventory(), count_needs({part.name: part}))
    model, report = load_part(part, placement.device, placement.dtype, allowed=allowed, on_event=on_event)
    return LoadedComponent(model, placement, report)


def load_part(
    part: Part, device: str, dtype: Dtype, *, allowed: Allowed = STRICT, on_event: Listener = ignore
) -> tuple[Any, ComponentReport]:
    """The model of ``part`` on ``device`` in ``dtype``. Raises ``InputError`` where it does not fit its headers."""
    began = time.perf_counter()
    meta = build_on_meta(part)
    match = match_names(part, meta)
    require_fit(part, meta, match, missing=allowed.missing, unexpected=allowed.unexpected)
    return _finish(part, meta, match, device, dtype, began, on_event)


def _finish(
    part: Part, meta: Any, match: Match, device: str, dtype: Dtype, began: float, on_event: Listener
) -> tuple[Any, ComponentReport]:
    task = f"load:{part.name}"
    checkpoint = part.checkpoint
    if checkpoint is None:
        raise AssertionError(part.name)
    on_event(Started(task, f"Loading {part.name}", checkpoint.nbytes))
    weights = dict(_read(part, match, on_event, task))
    for name in match.missing:
        on_event(Note("tensor_missing_allowed", f"{part.name}: {name} is missing and set to zero", warning=True))
        weights[name] = torch.zeros(meta.state_dict()[name].shape, dtype=TORCH_DTYPES[dtype])
    if isinstance(meta, diffusers.ModelMixin):
        model = _fill_diffusers(part, meta, weights, torch.device(device), dtype)
    else:
        model = _load_transformers(part, weights, torch.device(device), dtype)
    on_event(Finished(task))
    check_placed(part.name, model, device)
    renamed = sum(new != old for new, old in match.names.items())
    return model, report_on(part.name, model, str(part.folder), time.perf_counter() - began, renamed)


def _read(part: Part, match: Match, on_event: Listener, task: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors under the names that the loader wants, mapped from their files."""
    targets: dict[str, str] = {}
    for new, old in match.names.items():
        targets.setdefault(old, old if new in match.converted else new)
    for file in part.checkpoint.files if part.checkpoint else ():
        _check_same(file)
        with safe_open(file.path, framework="pt") as opened:
            for info in file.header.tensors:
                if info.name in targets:
                    yield targets[info.name], opened.get_tensor(info.name)
                on_event(Advanced(task, info.nbytes))
        _check_same(file)


def _check_same(file: WeightsFile) -> None:
    with OpenFile(file.path) as opened:
        opened.check_unchanged(file.state)


def _fill_diffusers(part: Part, meta: Any, weights: dict[str, torch.Tensor], device: torch.device, dtype: Dtype) -> Any:
    """Put the weights into a diffusers model, cast as its own loader casts them (modules kept in fp32 included)."""
    model = meta
    if hidden_buffers(meta):
        # Buffers that no file holds (tables of positions) are computed by the constructor, so not on meta.
        with quiet(), no_init_weights(), accelerate.init_empty_weights(include_buffers=False):
            model = model_class(part).from_config(dict(part.config or {}))
    kept = kept_in_fp32(model)
    for name, tensor in weights.items():
        wanted = torch.float32 if kept & set(name.split(".")) else TORCH_DTYPES[dtype]
        weights[name] = tensor.to(device, wanted if tensor.is_floating_point() else tensor.dtype)
    model.load_state_dict(weights, strict=True, assign=True)
    model.register_to_config(_name_or_path=str(part.folder))
    if device.type != "cpu":
        for module in model.modules():
            for name, buffer in module._buffers.items():
                module._buffers[name] = None if buffer is None else buffer.to(device)
    return model.eval()


def hidden_buffers(model: torch.nn.Module) -> list[str]:
    """The buffers that are in no checkpoint."""
    stored = model.state_dict().keys()
    return [name for name, _ in model.named_buffers() if name not in stored]


def kept_in_fp32(model: Any) -> set[str]:
    """Names of modules that a diffusers class keeps in fp32 whatever the dtype."""
    kept = model._keep_in_fp32_modules or []
    return {kept} if isinstance(kept, str) else set(kept)


def _load_transformers(part: Part, weights: dict[str, torch.Tensor], device: torch.device, dtype: Dtype) -> Any:
    found = model_class(part)
    with quiet():
        config = found.config_class.from_pretrained(part.folder, local_files_only=True)
        model = found.from_pretrained(None, config=config, state_dict=weights, dtype=TORCH_DTYPES[dtype])
        model.name_or_path = config.name_or_path = str(part.folder)
        return model.to(device).eval()


def check_placed(name: str, model: torch.nn.Module, device: str) -> None:
    """Raises ``RefusedError`` if ``model`` carries hooks or is not wholly on ``device``: then it cannot be moved."""
    hooked = next((key or name for key, module in model.named_modules() if hasattr(module, "_hf_hook")), None)
    if hooked is not None:
        raise RefusedError(
            f"{name}: carries accelerate hooks (at {hooked}), so it moves its weights itself and cannot be placed",
            code="hooked_component",
            hint="load it without device_map and without offload; shardtool places the whole pipeline once",
        )
    for key, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.device != _full(torch.device(device)):
            raise RefusedError(
                f"{name}: {key} is on {tensor.device}, and the pipeline on {device}",
                code="component_elsewhere",
                tensor=key,
                hint=f'move it with .to("{device}"), or give the pipeline its device',
            )


def _full(device: torch.device) -> torch.device:
    """``cuda`` and ``mps`` with the index that tensors there report."""
    return torch.empty(0, device=device).device


def report_on(name: str, model: torch.nn.Module, source: str, seconds: float, renamed: int = 0) -> ComponentReport:
    """What there is to say of a loaded model."""
    dtypes: dict[str, int] = {}
    for tensor in {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}.values():
        kind = str(tensor.dtype).removeprefix("torch.")
        dtypes[kind] = dtypes.get(kind, 0) + tensor.nbytes
    return ComponentReport(
        name=name,
        class_name=type(model).__name__,
        library=type(model).__module__.partition(".")[0],
        source=source,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        nbytes=sum(dtypes.values()),
        dtypes=dtypes,
        device=str(next(model.parameters()).device),
        seconds=seconds,
        renamed=renamed,
    )
