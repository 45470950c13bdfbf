"""A picture that was stopped half way: latents, the scheduler's memory and the generator, in one safetensors file.

Continued, it comes out as if it had never been stopped. The file holds tensors and JSON only, nothing is unpickled, and
what it sets in the scheduler must be there already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from shardtool.errors import InputError
from shardtool.images.files import write_whole

SCHEMA: Final = "shardtool.latents/1"
SUFFIX: Final = ".latents.safetensors"
_STATE: Final = "scheduler."


@dataclass(frozen=True)
class Kept:
    """The state after ``step`` runs of the UNet: ``scheduler`` is attribute → value, ``record`` what was to be made."""

    step: int
    latents: torch.Tensor
    scheduler: Mapping[str, Any]
    generator: torch.Tensor
    record: Mapping[str, Any]


def state_of(scheduler: Any) -> dict[str, Any]:
    """The attributes that change from step to step: tensors, plain values, and lists of these."""
    return {name: value for name, value in vars(scheduler).items() if name != "_internal_dict" and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(one) for one in value)
    return value is None or isinstance(value, (bool, int, float, str, torch.Tensor))


def restore(scheduler: Any, state: Mapping[str, Any]) -> None:
    """Put ``state`` back, as far as it is of what ``state_of`` takes; nothing else of a scheduler is to be set."""
    known = state_of(scheduler).keys()
    for name, value in state.items():
        if name in known:
            setattr(scheduler, name, value)


@contextmanager
def skipping(unet: torch.nn.Module) -> Iterator[Callable[[], None]]:
    """Within the block, or until the yielded function is called, the UNet answers zeros without computing."""
    mine = "forward" in vars(unet)
    forward = unet.forward

    def nothing(sample: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor]:
        return (torch.zeros_like(sample[:, : unet.config.out_channels]),)  # type: ignore[union-attr]

    def stop() -> None:
        if mine:
            unet.forward = forward
        else:
            vars(unet).pop("forward", None)

    unet.forward = nothing
    try:
        yield stop
    finally:
        stop()


def write_kept(path: Path, kept: Kept) -> None:
    """Write it whole, over an older one of the same picture."""
    tensors = {"latents": kept.latents.contiguous().cpu(), "generator": kept.generator}
    plain: dict[str, Any] = {}
    for name, value in kept.scheduler.items():
        plain[name] = _pack(f"{_STATE}{name}", value, tensors)
    header = {"schema": SCHEMA, "step": kept.step, "scheduler": plain, "record": kept.record}
    write_whole(path, save(tensors, metadata={"shardtool": json.dumps(header)}), overwrite=True)


def _pack(name: str, value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """``value`` as JSON, with a name in place of each tensor."""
    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach().clone().contiguous().cpu()
        return {"tensor": name}
    if isinstance(value, (list, tuple)):
        return [_pack(f"{name}.{number}", one, tensors) for number, one in enumerate(value)]
    return value


def _unpack(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(value, dict):
        return tensors[value["tensor"]]
    if isinstance(value, list):
        return [_unpack(one, tensors) for one in value]
    return value


def read_kept(path: Path) -> Kept:
    """Read it back. Raises ``InputError`` where it is no such file, or damaged."""
    try:
        with safe_open(path, "pt") as file:
            header = json.loads((file.metadata() or {}).get("shardtool", "{}"))
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
        if header.get("schema") != SCHEMA:
            raise ValueError("holds no latents of a picture that was stopped")
        state = {name: _unpack(value, tensors) for name, value in header["scheduler"].items()}
        if type(step := header["step"]) is not int or not isinstance(record := header["record"], dict):
            raise ValueError("says nothing that makes sense of how far its picture has come")
        return Kept(step, tensors["latents"], state, tensors["generator"], record)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        code = "file_missing" if isinstance(error, FileNotFoundError) else "latents_invalid"
        raise InputError(f"{path}: {error}", code=code, path=path) from error
