"""Read all the data of a checkpoint, on several threads, and say what is wrong with the values.

numpy's loops, SHA-256 and reads all let other threads run, so threads are enough. Each has a buffer of one block;
whatever the size of the checkpoint, that is the memory taken.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.inventory import Checkpoint, StoredTensor
from shardtool.errors import REPLACE_FILE, Problem
from shardtool.events import Advanced, Finished, Listener, Started, ignore
from shardtool.values import Count, count_block

BLOCK = 1 << 20
"""Bytes read and judged at a time: few enough to be in a cache still when they are judged."""

PIECE = 1 << 25
"""Bytes that a thread takes at once: of one tensor, or of several small ones."""

ZEROS = 1 << 20
"""Bytes in blocks of nothing but zeros from which on a tensor is worth a warning."""


def default_workers() -> int:
    """As many threads as there are cores for this process, at most eight: disks are slower than that."""
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


@dataclass(frozen=True)
class _Piece:
    tensor: StoredTensor
    start: int
    length: int
    digest: str | None


def scan(
    checkpoint: Checkpoint,
    *,
    digests: Mapping[str, str] | None = None,
    workers: int | None = None,
    on_event: Listener = ignore,
) -> tuple[Problem, ...]:
    """NaN and infinite values, booleans that are none, long runs of zeros, and data that breaks its SHA-256.

    ``digests`` maps tensor names to what was recorded, in hexadecimal. Raises ``InputError`` where a file cannot be
    read or changes meanwhile.
    """
    on_event(Started("read", f"reading {checkpoint.name.base}", checkpoint.nbytes))
    counts: dict[str, Count] = {}
    broken: set[str] = set()
    with ExitStack() as stack:
        files = {file.path: stack.enter_context(OpenFile(file.path)) for file in checkpoint.files}
        for weights in checkpoint.files:
            files[weights.path].check_unchanged(weights.state)
        with ThreadPoolExecutor(workers or default_workers()) as pool:
            portions = list(_portions(_pieces(checkpoint, digests or {})))
            buffer = _Buffer()
            judged = pool.map(lambda portion: [_judge(piece, files, buffer) for piece in portion], portions)
            for portion, found in zip(portions, judged, strict=True):
                for piece, (count, intact) in zip(portion, found, strict=True):
                    name = piece.tensor.info.name
                    counts[name] = counts.get(name, Count()) + count
                    if not intact:
                        broken.add(name)
                on_event(Advanced("read", sum(piece.length for piece in portion)))
        for file in files.values():
            file.check_unchanged()
    on_event(Finished("read"))
    return tuple(_problems(checkpoint, counts, broken))


def _pieces(checkpoint: Checkpoint, digests: Mapping[str, str]) -> Iterator[_Piece]:
    """The data in pieces. A tensor with a digest is one piece: it is hashed from start to end."""
    for name, tensor in checkpoint.tensors.items():
        digest = digests.get(name)
        size = tensor.info.nbytes if digest is not None else PIECE
        for start in range(0, tensor.info.nbytes, max(size, 1)):
            yield _Piece(tensor, start, min(size, tensor.info.nbytes - start), digest)


def _portions(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Pieces enough to be worth handing to a thread: most tensors are small."""
    portion: list[_Piece] = []
    size = 0
    for piece in pieces:
        portion.append(piece)
        size += piece.length
        if size >= PIECE:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


class _Buffer(threading.local):
    """One block for each thread: a fresh one for each piece would cost as much as the judging."""

    def __init__(self) -> None:
        self.block = np.empty(BLOCK, np.uint8)


def _judge(piece: _Piece, files: Mapping[Path, OpenFile], buffer: _Buffer) -> tuple[Count, bool]:
    count, digest = Count(), hashlib.sha256() if piece.digest is not None else None
    file, offset = files[piece.tensor.file.path], piece.tensor.offset + piece.start
    for done in range(0, piece.length, BLOCK):
        block = buffer.block[: min(BLOCK, piece.length - done)]
        file.read_into(offset + done, block.data)
        count_block(block, piece.tensor.info.dtype, count)
        if digest is not None:
            digest.update(block.data)
    return count, digest is None or digest.hexdigest() == piece.digest


def _problems(checkpoint: Checkpoint, counts: Mapping[str, Count], broken: set[str]) -> Iterator[Problem]:
    for name, tensor in checkpoint.tensors.items():
        path, count = str(tensor.file.path), counts.get(name, Count())
        where = f"{path}: tensor {name!r:.200}"
        if name in broken:
            message = f"{where}: its bytes are not those that were recorded (SHA-256)"
            yield Problem("digest_mismatch", message, path, name, REPLACE_FILE)
        if count.is_bad:
            code = "bool_invalid" if count.not_bool else "not_finite"
            yield Problem(code, f"{where}: {_described(count, tensor.info.elements)}", path, name)
        if count.zero_bytes >= ZEROS:
            message = f"{where}: {count.zero_bytes:,} of its {tensor.info.nbytes:,} bytes are blocks of zeros"
            hint = "a download with holes looks like this; so does a layer that was never trained"
            yield Problem("zeros", message, path, name, hint, severity="warning")


def _described(count: Count, elements: int) -> str:
    faults = [
        f"{number:,} {what}"
        for number, what in ((count.nan, "NaN"), (count.infinite, "infinite"), (count.not_bool, "neither 0 nor 1"))
        if number
    ]
    return f"{' and '.join(faults)} of {elements:,} values"
