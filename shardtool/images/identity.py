"""Which model made a picture: one fingerprint for each component.

That of weights is the same however the tensors are sharded; that of a scheduler or a tokenizer is of its files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from shardtool.checkpoint.digests import fingerprint, read_digests
from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.inventory import Checkpoint
from shardtool.checkpoint.needed import TEXTS
from shardtool.part import Part
from shardtool.parts import PipelineParts

_BLOCK: Final = 1 << 22
_THREADS: Final = 2


_SAYS_NOTHING: Final = ("transformers_version", "dtype", "torch_dtype")
"""Keys of a config that change no pixel: who wrote it, and in which dtype, which is the run's."""


def config_digests(parts: PipelineParts) -> dict[str, str]:
    """Component → SHA-256 over its class and config, and ``pipeline`` → that of the pipeline's class and settings."""
    found = {name: _digest(part.class_name, part.config or {}) for name, part in parts.parts.items()}
    return {"pipeline": _digest(parts.class_name, parts.settings), **found}


def _digest(class_name: str, config: Mapping[str, Any]) -> str:
    said = {key: value for key, value in config.items() if not key.startswith("_") and key not in _SAYS_NOTHING}
    return hashlib.sha256(json.dumps([class_name, said], sort_keys=True).encode()).hexdigest()


def fingerprints(parts: Mapping[str, Part]) -> dict[str, str]:
    """Component → fingerprint.

    Recorded digests are used where they lie beside the weights; otherwise every tensor is read and hashed.
    """
    with ThreadPoolExecutor(_THREADS, "fingerprint") as pool:
        return dict(zip(parts, pool.map(_fingerprint, parts.values()), strict=True))


def _fingerprint(part: Part) -> str:
    return _of_settings(part.folder) if part.checkpoint is None else fingerprint_of(part.checkpoint)


def _of_settings(folder: Path) -> str:
    paths = sorted(path for path in folder.iterdir() if path.name.endswith(TEXTS) and path.is_file())
    return hashlib.sha256("".join(f"{hash_file(path)}  {path.name}\n" for path in paths).encode()).hexdigest()


def fingerprint_of(checkpoint: Checkpoint) -> str:
    """The identity of one checkpoint: see ``shardtool.checkpoint.digests``."""
    tensors = [(name, stored.info.dtype, stored.info.shape) for name, stored in checkpoint.tensors.items()]
    recorded = read_digests(checkpoint.folder, checkpoint.name)
    if recorded is not None and set(recorded) == set(checkpoint.tensors):
        return fingerprint(tensors, recorded)
    digests: dict[str, str] = {}
    buffer = memoryview(bytearray(_BLOCK))
    for file in checkpoint.files:
        with OpenFile(file.path) as opened:
            for info in file.header.tensors:
                digests[info.name] = _hash_range(opened, file.header.data_start + info.start, info.nbytes, buffer)
    return fingerprint(tensors, digests)


def _hash_range(opened: OpenFile, offset: int, length: int, buffer: memoryview) -> str:
    digest = hashlib.sha256()
    while length:
        block = buffer[: min(length, len(buffer))]
        opened.read_into(offset, block)
        digest.update(block)
        offset, length = offset + len(block), length - len(block)
    return digest.hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 of a whole file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
