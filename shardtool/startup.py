"""Importing torch, diffusers and transformers without the garbage collector.

The import makes some millions of objects that stay, and the collector looks through them again and again for something
to free: about a fifth of the time until the first picture.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Within the block nothing is collected; what was made in it is not looked at again afterwards."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
