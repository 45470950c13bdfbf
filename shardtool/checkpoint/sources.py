"""The source's files while they are copied from: each opened once, and the same as when its header was read."""

from __future__ import annotations

from types import TracebackType

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.inventory import WeightsFile

_AT_ONCE = 32
"""Files that are kept open; tensors are read in their files' order, so one or two would nearly do."""


class Sources:
    """Open files by origin. Use it in a ``with`` statement, which ends with a last look at every file."""

    def __init__(self, files: tuple[WeightsFile, ...]) -> None:
        self._files = files
        self._open: dict[int, OpenFile] = {}

    def __getitem__(self, origin: int) -> OpenFile:
        """The open file number ``origin``. Raises ``InputError`` if it is not what it was."""
        if origin not in self._open:
            if len(self._open) >= _AT_ONCE:
                self._close(next(iter(self._open)))
            known = self._files[origin]
            file = OpenFile(known.path)
            self._open[origin] = file
            if file.state != known.state:
                raise file.changed("changed since its header was read")
        return self._open[origin]

    def _close(self, origin: int) -> None:
        with self._open.pop(origin) as file:
            file.check_unchanged()

    def __enter__(self) -> Sources:
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
