"""Read a checkpoint into new memory, in another dtype or on another device, in threads, during the caller's other work.

Only torch is needed, so it can run while diffusers is being imported. Each thread reads a piece of a file into a small
buffer of its own and casts it from there into its place: a page of the source is in memory once, in the kernel's cache,
and the process's own memory is the result plus the buffers. The result lies in one block of huge pages, because most of
the time of a cast goes into the page faults of new memory (512 of them with small pages for each one with large). On
the way to an accelerator, main memory holds the buffers alone.
"""

from __future__ import annotations

import mmap
import os
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from shardtool.checkpoint.dtypes import CASTABLE
from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.inventory import Checkpoint, StoredTensor
from shardtool.dtypes import TORCH_DTYPES, TORCH_STORED
from shardtool.needs import Dtype
from shardtool.part import Part

PIECE = 2 * 2**20
"""Bytes that a thread reads at once on the CPU: with what becomes of it, it stays in the processor's cache."""

PIECE_TO_DEVICE = 4 * 2**20
"""Bytes that a thread reads at once on the way to an accelerator; not measured."""

_ALIGN = 64


@dataclass(frozen=True)
class _Piece:
    """``count`` elements of a stored tensor, from ``first``, to be written into ``target``."""

    stored: StoredTensor
    file: OpenFile
    target: torch.Tensor
    first: int
    count: int


class Recast:
    """A cast under way. It starts when it is made; when ``progress`` has run out, ``tensors`` holds the result.

    ``tensors`` is stored name → tensor: on the CPU for the floating-point tensors that are stored in another dtype, on
    an accelerator for all floating-point tensors.
    """

    def __init__(
        self, checkpoint: Checkpoint, dtype: torch.dtype, device: str = "cpu", *, threads: int | None = None
    ) -> None:
        self.dtype = dtype
        self.device = torch.device(device)
        self._piece = PIECE if device == "cpu" else PIECE_TO_DEVICE
        self._checkpoint = checkpoint
        floats = _to_be_read(checkpoint, dtype, device)
        self.tensors = (
            _allocate(floats, dtype)
            if device == "cpu"
            else {name: torch.empty(f.info.shape, dtype=dtype, device=device) for name, f in floats.items()}
        )
        with ExitStack() as stack:
            self._files = {file.path: stack.enter_context(OpenFile(file.path)) for file in checkpoint.files}
            self._opened = stack.pop_all()
        self._pieces: queue.SimpleQueue[_Piece] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[int | BaseException] = queue.SimpleQueue()
        self._count = 0
        for piece in self._cut(floats):
            self._pieces.put(piece)
            self._count += 1
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name=f"shardtool-cast-{number}", daemon=True)
            for number in range(threads or min(4, os.cpu_count() or 1))
        ]
        for thread in self._threads:
            thread.start()

    def _cut(self, floats: Mapping[str, StoredTensor]) -> Iterator[_Piece]:
        for name, stored in floats.items():
            step = self._piece // TORCH_STORED[stored.info.dtype].itemsize
            flat, file = self.tensors[name].view(-1), self._files[stored.file.path]
            for first in range(0, stored.info.elements, step):
                count = min(step, stored.info.elements - first)
                yield _Piece(stored, file, flat[first : first + count], first, count)

    def _work(self) -> None:
        torch.set_num_threads(1)  # this thread's own setting: the threads here are the parallelism
        try:
            # From page-locked memory, a GPU fetches the data itself.
            buffer = torch.empty(self._piece, dtype=torch.uint8, pin_memory=self.device.type == "cuda")
            scratch = torch.empty(self._piece // 2 if self.dtype.itemsize == 2 else 0, dtype=torch.float32)
            while not self._stop.is_set():
                piece = self._pieces.get_nowait()
                _cast(piece, buffer, scratch)
                self._done.put(piece.count * TORCH_STORED[piece.stored.info.dtype].itemsize)
        except queue.Empty:
            pass
        except BaseException as error:  # noqa: BLE001 (handed to the thread that waits, which raises it)
            self._done.put(error)

    def progress(self) -> Iterator[int]:
        """Bytes of the source as they are done, until all are. Raises what went wrong in a thread."""
        try:
            while self._count:
                done = self._done.get()
                if isinstance(done, BaseException):
                    raise done
                self._count -= 1
                yield done
            for file in self._checkpoint.files:
                self._files[file.path].check_unchanged(file.state)
        finally:
            self.close()

    def close(self) -> None:
        """Stop the threads and close the files; also for a cast that is not wanted any more."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._opened.close()


def start_recast(part: Part, dtype: Dtype, device: str) -> Recast | None:
    """Start reading the tensors of ``part`` that must change their dtype or device; ``None`` where there are none.

    transformers puts weights on the CPU first whatever it is given, so for its parts nothing is read to accelerators.
    Quantised weights are not ours to cast.
    """
    if part.checkpoint is None or part.quantised or (device != "cpu" and part.library == "transformers"):
        return None
    if not _to_be_read(part.checkpoint, TORCH_DTYPES[dtype], device):
        return None
    return Recast(part.checkpoint, TORCH_DTYPES[dtype], device)


def _to_be_read(checkpoint: Checkpoint, dtype: torch.dtype, device: str) -> dict[str, StoredTensor]:
    return {
        name: stored
        for name, stored in checkpoint.tensors.items()
        if stored.info.dtype in CASTABLE and (device != "cpu" or TORCH_STORED[stored.info.dtype] != dtype)
    }


def _cast(piece: _Piece, buffer: torch.Tensor, scratch: torch.Tensor) -> None:
    kind = TORCH_STORED[piece.stored.info.dtype]
    raw = buffer[: piece.count * kind.itemsize]
    piece.file.read_into(piece.stored.offset + piece.first * kind.itemsize, raw.numpy().data)
    source = raw.view(kind)
    if kind.itemsize == piece.target.dtype.itemsize == 2 and kind != piece.target.dtype:
        # fp16 to bf16 and back is five times slower in one step than through fp32, and rounds the same.
        source = scratch[: piece.count].copy_(source)
    piece.target.copy_(source)


def _allocate(floats: Mapping[str, StoredTensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """A tensor for each, in one block of new memory."""
    places: dict[str, int] = {}
    size = 0
    for name, stored in floats.items():
        places[name] = size
        size += -(-stored.info.elements * dtype.itemsize // _ALIGN) * _ALIGN
    block = _new_memory(max(size, _ALIGN))
    return {
        name: torch.frombuffer(block, dtype=dtype, count=stored.info.elements, offset=places[name]).view(
            stored.info.shape
        )
        if stored.info.elements
        else torch.empty(stored.info.shape, dtype=dtype)
        for name, stored in floats.items()
    }


def _new_memory(size: int) -> mmap.mmap:
    """Private memory of the process, in huge pages where the system has them."""
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return mmap.mmap(-1, size)
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block
