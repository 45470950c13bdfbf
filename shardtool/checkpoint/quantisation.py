"""Which quantisation a config names, and what is known of each method. Nothing is imported for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardtool.errors import RefusedError


@dataclass(frozen=True)
class Method:
    """``module`` is what its quantiser is imported as and ``package`` what pip calls it; ``None`` where the libraries
    need no other. With ``fixed_dtype`` its weights take numbers of the dtype that they were made for, and no others."""

    module: str | None = None
    package: str | None = None
    fixed_dtype: bool = False


METHODS: Mapping[str, Method] = {
    "bitsandbytes": Method("bitsandbytes", "bitsandbytes"),
    "torchao": Method("torchao", "torchao", fixed_dtype=True),
    "quanto": Method("optimum.quanto", "optimum-quanto", fixed_dtype=True),
    "bitnet": Method(),
}
"""The methods that are loaded. Of the others that diffusers 0.42 and transformers 5.24 know, several fetch code from
the Hub to compute with (``nunchaku_lite``, ``gguf``, ``fp8``, ``mxfp4`` …), because a ``config.json`` names them."""


def method_of(config: Mapping[str, Any]) -> str | None:
    """The method that weights beside ``config`` are quantised with, as it calls it; ``None`` where they are not."""
    return next((_name(found) for found in _entries(config)), None)


def known_method(name: str, config_path: Path) -> Method:
    """What is known of the method that the config names. Raises ``RefusedError`` where it is none that is loaded."""
    if name not in METHODS:
        raise RefusedError(
            f"{config_path}: is quantised with {name}, which is not loaded here",
            code="quantised",
            path=config_path,
            hint=f"use the weights that it was made from; loaded are those of {', '.join(METHODS)}",
        )
    return METHODS[name]


def _entries(config: Mapping[str, Any]) -> Iterator[Any]:
    """Every ``quantization_config``: transformers goes by the one of a model's text part too."""
    for key, value in config.items():
        if key == "quantization_config" and value is not None:
            yield value
        elif isinstance(value, Mapping):
            yield from _entries(value)


def _name(entry: Any) -> str:
    if not isinstance(entry, Mapping):
        return "an unnamed method"
    if entry.get("load_in_4bit") or entry.get("load_in_8bit"):
        return "bitsandbytes"  # both libraries take it so, whatever else it says
    return str(entry.get("quant_method") or "an unnamed method")[:80]
