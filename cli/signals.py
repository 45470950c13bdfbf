"""Ctrl-C and SIGTERM as exceptions, so that what is half-written is cleaned up.

Not in the middle of an import: torch and its like then lose the exception, leave modules half made, or abort. So the
signal is held back until the import is over.
"""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

_AGAIN = 0.05
"""Seconds until a signal that came during an import is looked at again."""

_PATIENCE = 15.0
"""Seconds after which it is let through all the same: the import hangs."""

_arrived: dict[int, float] = {}


class Terminated(SystemExit):
    """SIGTERM."""

    def __init__(self) -> None:
        super().__init__(143)


def watch() -> None:
    """From now on, signals raise ``KeyboardInterrupt`` and ``Terminated`` in the main thread."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(signum) is not signal.SIG_IGN:  # the caller's wish, nohup's for instance
            signal.signal(signum, _on_signal)


def unwatch() -> None:
    """From now on a signal ends the process at once and without a word: there is nothing left to clean up."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL)


def _on_signal(signum: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    if _is_import(frame) and now - _arrived.setdefault(signum, now) < _PATIENCE:
        main = threading.main_thread().ident
        again = threading.Timer(_AGAIN, signal.pthread_kill, (main, signum))
        again.daemon = True
        again.start()
        return
    _arrived.pop(signum, None)
    if signum == signal.SIGINT:
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends it twice, and the second must not stop the cleaning
    raise Terminated


def _is_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
