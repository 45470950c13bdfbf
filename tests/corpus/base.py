"""The sound component and pipeline from which the damaged ones are made: small, in shards, with an index."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.corpus.case import Make

INDEX = "diffusion_pytorch_model.safetensors.index.json"
SINGLE = "diffusion_pytorch_model.safetensors"
NAMES = [f"block{number}.{part}" for number in range(3) for part in ("weight", "bias")]
"""Two tensors for each of the three shards."""


def shard_name(number: int, count: int = 3) -> str:
    return f"diffusion_pytorch_model-{number:05d}-of-{count:05d}.safetensors"


def weights_file(tensors: Mapping[str, int], metadata: Mapping[str, str] | None = None) -> bytes:
    """A file with F32 tensors, name → elements, whose values tell the names apart."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata or {"format": "pt"})}
    data = b""
    for name, elements in tensors.items():
        values = struct.pack(f"<{elements}f", *(len(name) + position / 8 for position in range(elements)))
        entries[name] = {"dtype": "F32", "shape": [elements], "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    raw = json.dumps(entries).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def held(number: int) -> dict[str, int]:
    """What shard ``number`` (from 1) holds."""
    return dict.fromkeys(NAMES[2 * number - 2 : 2 * number], 4)


def index_of(shards: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    weight_map = {name: file for file, tensors in shards.items() for name in tensors}
    return {"metadata": {"total_size": 16 * len(weight_map)}, "weight_map": weight_map}


def write_component(folder: Path) -> Path:
    """A sound component in three shards."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"_class_name": "UNet2DConditionModel", "layers_per_block": 2}))
    for number in (1, 2, 3):
        (folder / shard_name(number)).write_bytes(weights_file(held(number)))
    write_index(folder, index_of({shard_name(number): held(number) for number in (1, 2, 3)}))
    return folder


def write_index(folder: Path, content: Any, name: str = INDEX) -> None:
    (folder / name).write_text(json.dumps(content))


def read_index(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / INDEX).read_text())
    return found


def write_pipeline(folder: Path) -> Path:
    """A pipeline of a sound component, a scheduler and a tokenizer."""
    write_component(folder / "unet")
    for name, file in (("scheduler", "scheduler_config.json"), ("tokenizer", "tokenizer_config.json")):
        (folder / name).mkdir()
        (folder / name / file).write_text("{}")
    content = {
        "_class_name": "StableDiffusionXLPipeline",
        "_diffusers_version": "0.42.1",
        "force_zeros_for_empty_prompt": True,
        "feature_extractor": [None, None],
        "scheduler": ["diffusers", "EulerDiscreteScheduler"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"],
    }
    (folder / "model_index.json").write_text(json.dumps(content))
    return folder


def component(change: Callable[[Path], object]) -> Make:
    """A sound component that ``change`` has spoilt. Beside its folder lies one with other weights, ``outside``."""

    def make(folder: Path) -> Path:
        outside = folder / "outside"
        outside.mkdir()
        (outside / "secret.safetensors").write_bytes(weights_file(held(2)))
        unet = write_component(folder / "unet")
        change(unet)
        return unet

    return make


def pipeline(change: Callable[[Path], object]) -> Make:
    """A sound pipeline that ``change`` has spoilt."""

    def make(folder: Path) -> Path:
        made = write_pipeline(folder / "pipeline")
        change(made)
        return made

    return make


def with_index(change: Callable[[dict[str, Any]], object]) -> Make:
    """A sound component with one change to the contents of its index."""

    def spoil(folder: Path) -> None:
        content = read_index(folder)
        change(content)
        write_index(folder, content)

    return component(spoil)


def with_index_text(text: str | bytes) -> Make:
    """A sound component with this instead of its index."""

    def spoil(folder: Path) -> None:
        (folder / INDEX).write_bytes(text.encode() if isinstance(text, str) else text)

    return component(spoil)
