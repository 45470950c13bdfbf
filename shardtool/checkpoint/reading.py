"""Read the data of tensors, whatever files they lie in: each file as it was when its header was read, to the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.inventory import StoredTensor, WeightsFile

BLOCK = 1 << 20
"""Bytes of one read: it fits the caches of a core, and larger reads are no faster."""

_AT_ONCE = 32
"""Files that are kept open; tensors are read in their files' order, so two or three would nearly do."""


class TensorReader:
    """Opens files as they are needed. Use it from one thread, in a ``with`` statement.

    The statement ends with a last look at every file: it raises ``InputError`` if one has changed.
    """

    def __init__(self) -> None:
        self._open: dict[Path, OpenFile] = {}

    def file(self, weights: WeightsFile) -> OpenFile:
        """The open file. Raises ``InputError`` if it is not the one whose header was read."""
        file = self._open.pop(weights.path, None)
        if file is None:
            if len(self._open) >= _AT_ONCE:
                self._close(next(iter(self._open)))
            file = OpenFile(weights.path)
        self._open[weights.path] = file  # now the last one to be closed: somebody may be in the middle of it
        if file.state != weights.state:
            raise file.changed("changed since its header was read")
        return file

    def blocks(self, tensor: StoredTensor, size: int = BLOCK) -> Iterator[bytes]:
        """The tensor's data in pieces of ``size`` bytes, the last one shorter; two tensors may be read in turns."""
        file = self.file(tensor.file)
        for done in range(0, tensor.info.nbytes, size):
            yield file.read_at(tensor.offset + done, min(size, tensor.info.nbytes - done))

    def _close(self, path: Path) -> None:
        with self._open.pop(path) as file:
            file.check_unchanged()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while error is None and self._open:
                self._close(next(iter(self._open)))
        finally:
            for file in self._open.values():
                file.close()
