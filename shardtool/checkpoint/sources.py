"""The source's files while they are copied from: each opened once, and the same as when its header was read."""

from __future__ import annotations

from collections.abc import Sequence

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.inventory import WeightsFile
from shardtool.checkpoint.reading import TensorReader


class Sources(TensorReader):
    """Open files by origin: their number among the checkpoint's ``files``."""

    def __init__(self, files: Sequence[WeightsFile]) -> None:
        super().__init__()
        self._files = files

    def __getitem__(self, origin: int) -> OpenFile:
        """The open file number ``origin``. Raises ``InputError`` if it is not what it was."""
        return self.file(self._files[origin])
