"""Read what was written through a new file descriptor, and compare it with what should be there, bit for bit."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.job import Output
from shardtool.checkpoint.layout import FilePlan
from shardtool.checkpoint.move import blocks_of
from shardtool.checkpoint.sources import Sources
from shardtool.errors import RunError
from shardtool.events import Advanced, Listener

TASK = "verify"


def check_written(
    folder: Path, output: Output, sources: Sources, digests: Mapping[str, str], on_event: Listener
) -> None:
    """Compare the files of ``output`` in ``folder`` with the source's bytes, or with ``digests`` where they are given.

    Raises ``RunError`` naming the first tensor that differs.
    """
    for name, plan in zip(output.filenames, output.files, strict=True):
        with OpenFile(folder / name) as file:
            _forget(file)
            if file.size != plan.size or file.read_at(0, len(plan.header)) != plan.header:
                raise _differs(folder / name, None)
            _check_data(file, plan, sources, digests, on_event)


def _check_data(
    file: OpenFile, plan: FilePlan, sources: Sources, digests: Mapping[str, str], on_event: Listener
) -> None:
    position = len(plan.header)
    for item in plan.items:
        blocks = blocks_of(file, position, item.nbytes)
        position += item.nbytes
        if item.name in digests:
            found = hashlib.sha256()
            for block in blocks:
                found.update(block)
                on_event(Advanced(TASK, len(block)))
            same = found.hexdigest() == digests[item.name]
        else:
            same = item.offset is not None
            for block, expected in zip(
                blocks, blocks_of(sources[item.origin], item.offset or 0, item.nbytes), strict=True
            ):
                same = same and block == expected
                on_event(Advanced(TASK, len(block)))
        if not same:
            raise _differs(file.path, item.name)


def _forget(file: OpenFile) -> None:
    """Let what is read come from the disk, not from memory, as far as it is on the disk already."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _differs(path: Path, tensor: str | None) -> RunError:
    what = (
        "its size or its header is not what was written"
        if tensor is None
        else f"tensor {tensor!r} differs from the source"
    )
    return RunError(
        f"{path.name}: {what} when read again; nothing was published",
        code="written_differs",
        path=path,
        tensor=tensor,
        hint="the disk or the memory may be failing: try another disk with -o",
    )
