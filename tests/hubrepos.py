"""Small repos for the Hub of the tests: weights as diffusers names them, in one file or in shards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

STEM = "diffusion_pytorch_model"
SHARDS = [f"{STEM}-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
INDEX = f"{STEM}.safetensors.index.json"


def add_weights(folder: Path, variant: str | None = None, shards: int = 1, side: int = 16) -> dict[str, str]:
    """Weights as diffusers names them, each shard with two tensors of ``side`` × ``side``; gives the weight map."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"_class_name": "UNet2DConditionModel"}))
    base = STEM if variant is None else f"{STEM}.{variant}"
    weight_map: dict[str, str] = {}
    for number in range(shards):
        name = f"{base}-{number + 1:05d}-of-{shards:05d}.safetensors" if shards > 1 else f"{base}.safetensors"
        made = {f"block.{number}.{part}": np.full((side, side), number + 1, np.float32) for part in ("weight", "bias")}
        save_file(made, folder / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(made, name)
    if shards > 1:
        ending = "json" if variant is None else f"{variant}.json"
        content = {"metadata": {"total_size": shards * 8 * side * side}, "weight_map": weight_map}
        (folder / f"{STEM}.safetensors.index.{ending}").write_text(json.dumps(content))
    return weight_map


def files_of(folder: Path) -> dict[str, bytes]:
    """The files below a folder, by path."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
