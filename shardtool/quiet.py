"""Keep diffusers, transformers and accelerate from printing while they work for us, and give their settings back."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import diffusers.utils.logging
import transformers.utils.logging

_LIBRARIES = ("diffusers", "transformers", "accelerate", "torch", "huggingface_hub")


@contextmanager
def quiet() -> Iterator[None]:
    """Within the block the libraries draw no bars, log nothing below an error and warn of nothing.

    What they would warn of (unused keys, missing keys, a config's unknown entries) is checked by shardtool itself.
    """
    loggers = [logging.getLogger(name) for name in _LIBRARIES]
    levels = [logger.level for logger in loggers]
    bars = [(module, module._tqdm_active) for module in (diffusers.utils.logging, transformers.utils.logging)]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        for module, _ in bars:
            module._tqdm_active = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        for module, active in bars:
            module._tqdm_active = active
