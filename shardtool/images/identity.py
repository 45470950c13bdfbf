"""Which weights made a picture: one fingerprint for each component, however its tensors are sharded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from shardtool.checkpoint.digests import fingerprint, read_digests
from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.inventory import Checkpoint
from shardtool.parts import Part

_BLOCK: Final = 1 << 22
_THREADS: Final = 2


def fingerprints(parts: Mapping[str, Part]) -> dict[str, str]:
    """Component → fingerprint, of those with weights.

    Recorded digests are used where they lie beside the weights; otherwise every tensor is read and hashed.
    """
    with_weights = {name: part.checkpoint for name, part in parts.items() if part.checkpoint is not None}
    with ThreadPoolExecutor(_THREADS, "fingerprint") as pool:
        return dict(zip(with_weights, pool.map(fingerprint_of, with_weights.values()), strict=True))


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
