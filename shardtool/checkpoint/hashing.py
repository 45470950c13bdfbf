"""SHA-256 of each tensor while its bytes pass through, on a thread of its own."""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType

AHEAD = 32
"""Blocks that may wait for the thread; what passes through is 256 KiB each, so this bounds the memory."""


class Hasher:
    """Takes the tensors' bytes in order, block by block, and gives the digests. Use it in a ``with`` statement."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        self._blocks: queue.Queue[tuple[str, bytes | memoryview | None] | None] = queue.Queue(AHEAD)
        self._dropped = False
        self._thread = threading.Thread(target=self._work, name="shardtool-sha256", daemon=True)

    def begin(self, tensors: Iterable[tuple[str, int]]) -> Feed:
        """What to feed with the bytes of these tensors (name, bytes), one after another without a gap."""
        return Feed(self, tensors)

    def put(self, name: str, block: bytes | memoryview | None) -> None:
        """Bytes of the tensor ``name``; ``None`` after its last ones."""
        self._blocks.put((name, block))

    def _work(self) -> None:
        digest = hashlib.sha256()
        while (entry := self._next()) is not None:
            name, block = entry
            if block is not None:
                digest.update(block)
            else:
                self.digests[name] = digest.hexdigest()
                digest = hashlib.sha256()

    def _next(self) -> tuple[str, bytes | memoryview | None] | None:
        while not self._dropped:
            # A signal in the other thread's put() can lose the word that there is something.
            with suppress(queue.Empty):
                return self._blocks.get(timeout=0.2)
        return None

    def __enter__(self) -> Hasher:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Waits until everything that was put in is hashed, unless the block failed: then nobody wants it."""
        if kind is None:
            self._blocks.put(None)
            self._thread.join()
        else:
            self._dropped = True
            # Interrupted in put(), the queue's lock can be held for ever; the thread then ends with the process.
            self._thread.join(timeout=1)


class Feed:
    """Cuts a stream of bytes at the ends of the tensors."""

    def __init__(self, hasher: Hasher, tensors: Iterable[tuple[str, int]]) -> None:
        self._hasher = hasher
        self._tensors = iter(tensors)
        self._name: str | None = None
        self._left = 0
        self._next()

    def _next(self) -> None:
        """Go on to the next tensor that has bytes; those without any are complete at once."""
        for name, nbytes in self._tensors:
            self._name, self._left = name, nbytes
            if nbytes:
                return
            self._hasher.put(name, None)
        self._name = None

    def __call__(self, block: bytes | memoryview) -> None:
        rest = memoryview(block)
        while rest and self._name is not None:
            part, rest = rest[: self._left], rest[self._left :]
            self._hasher.put(self._name, part)
            self._left -= len(part)
            if not self._left:
                self._hasher.put(self._name, None)
                self._next()
