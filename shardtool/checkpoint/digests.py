"""``shardtool.digests.json``: a SHA-256 of every tensor, and one fingerprint of a model however it is sharded.

::

    {"schema": "shardtool.digests/1",
     "checkpoints": {"diffusion_pytorch_model.fp16": {"fingerprint": HEX, "tensors": {TENSOR: HEX}}}}

The file lies beside the weights; a checkpoint is listed under its name without an extension. The fingerprint is the
SHA-256 of one line ``[NAME, DTYPE, SHAPE, DIGEST]`` of ASCII-escaped JSON for each tensor, sorted by name, each ending
in a newline.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shardtool.checkpoint.index import INDEX_LIMIT
from shardtool.checkpoint.links import check_link
from shardtool.checkpoint.names import WeightsName
from shardtool.checkpoint.strict_json import read_json_object
from shardtool.errors import InputError

DIGESTS_NAME = "shardtool.digests.json"
_SCHEMA = "shardtool.digests/1"


def fingerprint(tensors: Iterable[tuple[str, str, Sequence[int]]], digests: Mapping[str, str]) -> str:
    """The identity of a model, in hexadecimal, from its tensors (name, dtype, shape) and their SHA-256 digests."""
    total = hashlib.sha256()
    for name, dtype, shape in sorted(tensors, key=lambda tensor: tensor[0]):
        line = json.dumps([name, dtype, list(shape), digests[name]], separators=(",", ":"))
        total.update(line.encode("ascii") + b"\n")
    return total.hexdigest()


def read_digests(folder: Path, name: WeightsName) -> Mapping[str, str] | None:
    """Tensor → recorded SHA-256 of the checkpoint ``name`` in ``folder``; ``None`` where nothing is recorded.

    Raises ``InputError`` as ``read_entries`` does.
    """
    entry = read_entries(folder).get(name.base)
    return None if entry is None else entry["tensors"]


def read_entries(folder: Path) -> dict[str, dict[str, Any]]:
    """Every checkpoint's entry in the digests file of ``folder``; none where there is no such file.

    Raises ``InputError`` where the file is damaged, or a link that leads out of the folder.
    """
    path = folder / DIGESTS_NAME
    if not path.exists():
        return {}
    check_link(folder, path)
    entries = read_json_object(path, code="digests_invalid", limit=INDEX_LIMIT).get("checkpoints")
    if not isinstance(entries, dict) or not all(_is_entry(entry) for entry in entries.values()):
        raise InputError(
            f"{path}: is no digests file of shardtool",
            code="digests_invalid",
            path=path,
            hint="remove it, and record the digests anew with --digests",
        )
    return entries


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("tensors"), dict):
        return False
    return all(isinstance(digest, str) for digest in entry["tensors"].values())


def make_entry(tensors: Sequence[tuple[str, str, Sequence[int]]], digests: Mapping[str, str]) -> dict[str, Any]:
    """The entry of one checkpoint, from its tensors (name, dtype, shape) and their digests."""
    return {
        "fingerprint": fingerprint(tensors, digests),
        "tensors": {name: digests[name] for name, _, _ in tensors},
    }


def render_entries(entries: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The contents of a digests file."""
    content = {"schema": _SCHEMA, "checkpoints": entries}
    return (json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")
