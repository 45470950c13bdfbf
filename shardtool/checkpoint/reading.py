"""Read the data of tensors block by block, whatever files they lie in, with memory for one block."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.inventory import StoredTensor, WeightsFile

BLOCK = 1 << 20
"""Bytes of one read: it fits the caches of a core, and larger reads are no faster."""

_OPEN_FILES = 128


class TensorReader:
    """Opens files as they are needed and keeps them open. Use it in a ``with`` statement, from one thread."""

    def __init__(self) -> None:
        self._files: OrderedDict[Path, OpenFile] = OrderedDict()

    def file(self, weights: WeightsFile) -> OpenFile:
        """The open file. Raises ``InputError`` if it is not the one whose header was read."""
        found = self._files.get(weights.path)
        if found is None:
            found = OpenFile(weights.path)
            self._files[weights.path] = found
            found.check_unchanged(weights.state)
            if len(self._files) > _OPEN_FILES:
                self._files.popitem(last=False)[1].close()
        return found

    def blocks(self, tensor: StoredTensor, size: int = BLOCK) -> Iterator[bytes]:
        """The tensor's data in pieces of ``size`` bytes, the last one shorter."""
        file = self.file(tensor.file)
        for done in range(0, tensor.info.nbytes, size):
            yield file.read_at(tensor.offset + done, min(size, tensor.info.nbytes - done))

    def check_unchanged(self) -> None:
        """Raises ``InputError`` if one of the open files changed while it was read."""
        for file in self._files.values():
            file.check_unchanged()

    def __enter__(self) -> TensorReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
