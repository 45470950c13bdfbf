"""What a run has finished, in the folder of its images, so that the next run goes on where a killed one stopped.

One JSON object a line, ``{"key": …, "path": …, "pixel_sha256": …}``, appended after the image itself is in place. The
key stands for everything the pixels depend on (``Job.key``), so a changed prompt or model is a new image. A line that
a killed run left unfinished is ignored; images are written whole or not at all, so what the ledger names is whole.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shardtool.images.settings import Job

LEDGER_NAME: Final = ".shardtool-run.jsonl"


@dataclass(frozen=True)
class Entry:
    """A finished image; ``path`` is relative to the ledger's folder."""

    key: str
    path: str
    pixel_sha256: str


@dataclass(frozen=True)
class Ledger:
    """The ledger of the images in ``folder``."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / LEDGER_NAME

    def read(self) -> dict[str, Entry]:
        """The finished images by key; the last line of a key counts."""
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return {}
        return {entry.key: entry for line in lines if (entry := _parse(line)) is not None}

    def add(self, entry: Entry) -> None:
        """Append one line in one write, so that several processes may share a ledger."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": entry.key, "path": entry.path, "pixel_sha256": entry.pixel_sha256}) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(handle, self._mend(handle) + line.encode())
        finally:
            os.close(handle)

    def _mend(self, handle: int) -> bytes:
        """A line break, where a killed run left a line without one."""
        size = os.fstat(handle).st_size
        if not size:
            return b""
        with self.path.open("rb") as file:
            file.seek(size - 1)
            return b"" if file.read(1) == b"\n" else b"\n"

    def entry_for(self, job: Job, key: str, pixel_sha256: str) -> Entry:
        return Entry(key, os.path.relpath(job.path or "", self.folder), pixel_sha256)


def _parse(line: str) -> Entry | None:
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    values = [value for name in ("key", "path", "pixel_sha256") if isinstance(value := found.get(name), str)]
    return Entry(*values) if len(values) == 3 else None
