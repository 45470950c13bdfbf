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


def let_casts_be_silent() -> None:
    """From here on, ``ModelMixin.to(dtype)`` no longer warns of an empty list of modules to keep in fp32.

    diffusers 0.42.1 does so for every model that has none (``self._keep_in_fp32_modules or []`` is never ``None``). The
    warning stays for models that have some.
    """
    logging.getLogger("diffusers.models.modeling_utils").addFilter(_names_modules)


def _names_modules(record: logging.LogRecord) -> bool:
    return "should be kept in float32: []" not in record.getMessage()
