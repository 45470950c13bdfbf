"""What a checkpoint holds, in figures: parameters, bytes, dtypes, shards with their fill, memory at each dtype.

Everything is computed from a ``Checkpoint``, whose headers may have come from a disk or over the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardtool.checkpoint.dtypes import DTYPE_BITS, DTYPES, is_floating
from shardtool.checkpoint.header import TensorInfo
from shardtool.checkpoint.inventory import Checkpoint


@dataclass(frozen=True)
class FileSummary:
    """One file. ``nbytes`` includes its header; ``fill`` is its size as a part (0 … 1) of the largest file's."""

    name: str
    nbytes: int
    tensors: int
    parameters: int
    fill: float


@dataclass(frozen=True)
class Summary:
    """``nbytes`` and ``dtypes`` (name → bytes, largest first) count tensor data; ``memory`` is dtype → bytes.

    Weights that are ``quantised`` (with that method) take what they take in the file, whatever the dtype. ``stem`` is
    what the names of the files begin with, the variant included.
    """

    stem: str
    variant: str | None
    index: str | None
    files: tuple[FileSummary, ...]
    tensors: int
    parameters: int
    nbytes: int
    dtypes: Mapping[str, int]
    memory: Mapping[str, int]
    metadata: Mapping[str, str]
    quantised: str | None = None


def summarise(checkpoint: Checkpoint, quantised: str | None = None) -> Summary:
    """The figures of ``checkpoint``; costs a pass over its headers."""
    infos = [info for file in checkpoint.files for info in file.header.tensors]
    largest = max(file.size for file in checkpoint.files)
    files = tuple(
        FileSummary(
            file.path.name,
            file.size,
            len(file.header.tensors),
            sum(info.elements for info in file.header.tensors),
            file.size / largest,
        )
        for file in checkpoint.files
    )
    memory = {spelt: sum(_bytes_as(info, dtype) for info in infos) for spelt, dtype in DTYPES.items()}
    return Summary(
        stem=checkpoint.name.base,
        variant=checkpoint.name.variant,
        index=checkpoint.index.path.name if checkpoint.index else None,
        files=files,
        tensors=len(infos),
        parameters=checkpoint.parameters,
        nbytes=checkpoint.nbytes,
        dtypes=checkpoint.dtypes,
        memory=dict.fromkeys(DTYPES, checkpoint.nbytes) if quantised else memory,
        metadata=checkpoint.metadata,
        quantised=quantised,
    )


def _bytes_as(info: TensorInfo, dtype: str) -> int:
    """Bytes of a tensor when floats are loaded as ``dtype``; what is no float stays as it is."""
    return info.elements * DTYPE_BITS[dtype] // 8 if is_floating(info.dtype) else info.nbytes
