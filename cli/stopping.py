"""Ctrl-C that waits for the step in hand: the first is remembered, the second ends the program at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from .output import Output


@contextmanager
def stopping(out: Output, *, gently: bool) -> Iterator[Callable[[], bool]]:
    """A function that says whether Ctrl-C was pressed, for as long as the block runs.

    Without ``gently``, Ctrl-C raises ``KeyboardInterrupt`` as ever and the function always says no.
    """
    if not gently:
        yield lambda: False
        return
    asked = False

    def remember(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)
        out.say("stopping after this step; Ctrl-C again drops the image")

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
