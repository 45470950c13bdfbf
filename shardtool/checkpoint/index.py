"""``*.safetensors.index.json``: which shard holds which tensor.

The file has no specification. diffusers, transformers and huggingface_hub write
``{"metadata": {"total_size": BYTES}, "weight_map": {TENSOR: FILE}}``; diffusers fails without ``metadata``, and nobody
checks ``total_size``. It is what decides which files are loaded, whatever else lies in the folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from shardtool.checkpoint.names import plain_name_fault
from shardtool.checkpoint.strict_json import read_json_object
from shardtool.errors import InputError, Problem

INDEX_LIMIT = 100_000_000
"""Bytes an index may have."""


@dataclass(frozen=True)
class Index:
    """A valid index: ``weight_map`` is tensor → plain file name, in the file's order; ``metadata`` is kept as found.

    ``bare``: the file has no ``metadata`` at all, not even an empty one.
    """

    path: Path
    weight_map: Mapping[str, str]
    metadata: Mapping[str, Any]
    bare: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """The shards' names, sorted."""
        return tuple(sorted(set(self.weight_map.values())))


def read_index(path: Path) -> Index:
    """Read and check an index; no shard is opened. Raises ``InputError`` with every problem found."""
    hint = f"{rebuild_hint(path.parent)}, or fetch it again"
    found = read_json_object(path, code="index_invalid", limit=INDEX_LIMIT, hint=hint)
    weight_map, metadata = found.get("weight_map"), found.get("metadata", {})
    problems = []
    if not isinstance(metadata, dict):
        problems.append(_fault(path, "its metadata is no JSON object"))
        metadata = {}
    if not isinstance(weight_map, dict):
        what = "has no weight_map" if weight_map is None else "its weight_map is no JSON object"
        problems.append(_fault(path, what))
        weight_map = {}
    elif not weight_map:
        problems.append(_fault(path, "its weight_map is empty, so it names no weights at all"))
    problems.extend(_name_problems(path, weight_map))
    if problems:
        raise InputError.of_all(problems)
    return Index(path, weight_map, metadata, bare="metadata" not in found)


def shards_of(path: Path) -> tuple[str, ...]:
    """The shards that the index ``path`` names, sorted; none where it is damaged, which ``examine`` tells."""
    try:
        return read_index(path).files
    except InputError:
        return ()


def rebuild_hint(folder: Path) -> str:
    """What to type where an index is at fault and its shards are not."""
    return f"rebuild the index with `shardtool repair {quote(str(folder))}`"


def _fault(path: Path, fault: str) -> Problem:
    hint = f"{rebuild_hint(path.parent)}, or fetch it again"
    return Problem("index_invalid", f"{path}: {fault}", str(path), hint=hint)


def _name_problems(path: Path, weight_map: Mapping[str, Any]) -> list[Problem]:
    """One problem for each bad shard name, with the first tensor that carries it."""
    faults: dict[str, Problem] = {}
    for tensor, name in weight_map.items():
        fault = plain_name_fault(name)
        if fault is not None and repr(name) not in faults:
            message = f"{path}: the shard name {name!r:.120} of tensor {tensor!r} {fault}"
            hint = "a shard lies beside its index; do not use this checkpoint unless you know who made it"
            faults[repr(name)] = Problem("unsafe_path", message, str(path), tensor, hint)
    return list(faults.values())


def render_index(weight_map: Mapping[str, str], *, total_size: int, metadata: Mapping[str, Any]) -> bytes:
    """The index file as diffusers writes it: keys sorted, two blanks, a final newline. ``total_size`` is in bytes."""
    content = {"metadata": {**metadata, "total_size": total_size}, "weight_map": dict(weight_map)}
    return (json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")
