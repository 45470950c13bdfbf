"""Load one component: strictly, once, to where the placement says, and leave nothing behind.

The model is built on meta, its names are matched with the headers, and only then are weights read: mapped where the
dtype stays, cast where it changes. No ``device_map`` is used, so no hook is left, and nothing is left on meta.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import accelerate
import diffusers
import torch
from diffusers.models.modeling_utils import no_init_weights
from safetensors import safe_open

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.inventory import WeightsFile
from shardtool.classes import library_config, model_class
from shardtool.dtypes import TORCH_DTYPES
from shardtool.events import Advanced, Finished, Listener, Note, Started, ignore
from shardtool.load_plan import STRICT, Allowed
from shardtool.matching import Match, match_names
from shardtool.meta_model import build_on_meta
from shardtool.needs import Dtype
from shardtool.part import Part
from shardtool.placed import check_dtypes, check_placed
from shardtool.quantised import load_quantised
from shardtool.quiet import let_casts_be_silent, quiet
from shardtool.recast import Recast, start_recast
from shardtool.strict import require_fit


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


def load_part(
    part: Part,
    device: str,
    dtype: Dtype,
    *,
    allowed: Allowed = STRICT,
    recast: Recast | None = None,
    on_event: Listener = ignore,
) -> tuple[Any, ComponentReport]:
    """The model of ``part`` on ``device`` in ``dtype``; ``recast`` is a cast of it that is already under way.

    Raises ``InputError`` where the model that its config describes is not what its headers hold, and for a quantised
    one as ``load_quantised``.
    """
    if part.quantised:
        return _load_quantised(part, device, dtype, on_event)
    began = time.perf_counter()
    try:
        meta = build_on_meta(part)
        match = match_names(part, meta)
        require_fit(part, meta, match, missing=allowed.missing, unexpected=allowed.unexpected)
        recast = recast or start_recast(part, dtype, device)
        model = _load(part, meta, match, device, dtype, recast, on_event)
    finally:
        if recast is not None:
            recast.close()
    check_placed(part.name, model, device)
    check_dtypes(model, dtype)
    renamed = sum(new != old for new, old in match.names.items())
    return model, report_on(part.name, model, str(part.folder), time.perf_counter() - began, renamed)


def _load_quantised(part: Part, device: str, dtype: Dtype, on_event: Listener) -> tuple[Any, ComponentReport]:
    began = time.perf_counter()
    task, checkpoint = f"load:{part.name}", part.checkpoint
    if checkpoint is None:
        raise AssertionError(part.name)
    on_event(Started(task, f"Loading {part.name}", checkpoint.nbytes))
    for file in checkpoint.files:
        _check_same(file)
    model = load_quantised(part, checkpoint, device, dtype)
    for file in checkpoint.files:
        _check_same(file)
    check_placed(part.name, model, device)
    on_event(Advanced(task, checkpoint.nbytes))
    on_event(Finished(task))
    report = report_on(part.name, model, str(part.folder), time.perf_counter() - began)
    # Its tensors tell the size of what they stand for.
    stored = {"parameters": model.num_parameters(), "nbytes": checkpoint.nbytes, "dtypes": checkpoint.dtypes}
    return model, replace(report, **stored)


def _load(
    part: Part, meta: Any, match: Match, device: str, dtype: Dtype, recast: Recast | None, on_event: Listener
) -> Any:
    task = f"load:{part.name}"
    on_event(Started(task, f"Loading {part.name}", part.checkpoint.nbytes if part.checkpoint else None))
    ready: dict[str, torch.Tensor] = {}
    if recast is not None:
        for nbytes in recast.progress():
            on_event(Advanced(task, nbytes))
        unwanted = _unwanted_casts(meta, match, dtype)
        ready = {name: tensor for name, tensor in recast.tensors.items() if name not in unwanted}
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in _read(part, match, ready):
        weights[name] = _placed(meta, name, tensor, torch.device(device), dtype)
        on_event(Advanced(task, 0 if recast is not None else tensor.nbytes))
    for name in match.missing:
        on_event(Note("tensor_missing_allowed", f"{part.name}: {name} is missing and set to zero", warning=True))
        weights[name] = torch.zeros(meta.state_dict()[name].shape, dtype=TORCH_DTYPES[dtype], device=device)
    if isinstance(meta, diffusers.ModelMixin):
        model = _fill_diffusers(part, meta, weights, torch.device(device))
    else:
        model = _load_transformers(part, weights, torch.device(device), dtype)
    on_event(Finished(task))
    return model


def _read(part: Part, match: Match, ready: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors under the names that the loader wants: from ``ready`` (by stored name), else mapped from files."""
    targets: dict[str, str] = {}
    for new, old in match.names.items():
        targets.setdefault(old, old if new in match.converted else new)
    for file in part.checkpoint.files if part.checkpoint else ():
        names = [info.name for info in file.header.tensors if info.name in targets]
        yield from ((targets[name], ready[name]) for name in names if name in ready)
        if all(name in ready for name in names):
            continue
        _check_same(file)
        with safe_open(file.path, framework="pt") as opened:
            yield from ((targets[name], opened.get_tensor(name)) for name in names if name not in ready)
        _check_same(file)


def _check_same(file: WeightsFile) -> None:
    with OpenFile(file.path) as opened:
        opened.check_unchanged(file.state)


def _unwanted_casts(meta: Any, match: Match, dtype: Dtype) -> set[str]:
    """Stored names that the class keeps in a wider dtype than ``dtype``, so that their cast is not wanted."""
    if dtype == "fp32":
        return set()
    if not isinstance(meta, diffusers.ModelMixin):
        # transformers decides by patterns of its own; where it has some for this dtype, it gets the tensors as stored.
        return set(match.names.values()) if meta._get_dtype_plan(TORCH_DTYPES[dtype]) else set()
    kept = kept_in_fp32(meta)
    return {old for new, old in match.names.items() if kept & set(new.split("."))}


def _placed(meta: Any, name: str, tensor: torch.Tensor, device: torch.device, dtype: Dtype) -> torch.Tensor:
    """``tensor`` where and in what the model wants it. transformers casts by rules of its own, and on the CPU."""
    if not isinstance(meta, diffusers.ModelMixin):
        return tensor
    if not tensor.is_floating_point():
        return tensor.to(device)
    return tensor.to(device, torch.float32 if kept_in_fp32(meta) & set(name.split(".")) else TORCH_DTYPES[dtype])


def _fill_diffusers(part: Part, meta: Any, weights: dict[str, torch.Tensor], device: torch.device) -> Any:
    """Put the weights into a diffusers model; its constructor has run on meta."""
    model = meta
    if hidden_buffers(meta):
        # Buffers that no file holds (tables of positions) are computed by the constructor, so not on meta.
        with quiet(), no_init_weights(), accelerate.init_empty_weights(include_buffers=False):
            model = model_class(part).from_config(dict(part.config or {}))
    model.load_state_dict(weights, strict=True, assign=True)
    model.register_to_config(_name_or_path=str(part.folder))
    if device.type != "cpu":
        for module in model.modules():
            for name, buffer in module._buffers.items():
                module._buffers[name] = None if buffer is None else buffer.to(device)
    let_casts_be_silent()
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
        config = library_config(part)
        model = found.from_pretrained(None, config=config, state_dict=weights, dtype=TORCH_DTYPES[dtype])
        model.name_or_path = config.name_or_path = str(part.folder)
        return model.to(device).eval()


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
