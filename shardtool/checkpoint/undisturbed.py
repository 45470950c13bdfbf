"""Hold Ctrl-C and SIGTERM back for the few moments in which a result changes hands or is cleaned up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that arrive inside the block are delivered after it; the last one of each kind.

    Handlers are exchanged instead of masking signals, as any other thread would receive a masked one. Outside the main
    thread there is nothing to do: Python runs handlers in the main thread alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def remember(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        arrived.append(signum)

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for signum in dict.fromkeys(arrived):
            signal.raise_signal(signum)
