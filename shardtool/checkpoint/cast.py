"""Change the dtype of floating-point tensors on the way: what is decided without knowing how it is computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from shardtool.checkpoint.dtypes import CASTABLE, DTYPE_BITS
from shardtool.checkpoint.inventory import Checkpoint
from shardtool.checkpoint.layout import Item
from shardtool.checkpoint.strict_json import read_json_object
from shardtool.errors import RefusedError

_TORCH_NAMES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}
_QUANTISED = ("quantization_config", "quantization")

Blocks: TypeAlias = Iterator[bytes | memoryview]
Convert: TypeAlias = Callable[[str, str, str, Blocks], Blocks]
"""Converts the blocks of the tensor of that name, from that dtype, to that dtype. No block ends within a number."""


@dataclass(frozen=True)
class Cast:
    """To ``dtype``, as headers call it, by ``convert``. Integers and booleans stay as they are.

    ``check`` is called at the end, and raises if too much was lost.
    """

    dtype: str
    convert: Convert
    check: Callable[[], None]

    def applies(self, item: Item) -> bool:
        return item.dtype in CASTABLE and item.dtype != self.dtype

    def items(self, items: Sequence[Item]) -> list[Item]:
        """The items as they will be; those that change are made on the way."""
        return [self._item(item) if self.applies(item) else item for item in items]

    def _item(self, item: Item) -> Item:
        elements = item.nbytes * 8 // DTYPE_BITS[item.dtype]
        return replace(item, dtype=self.dtype, nbytes=elements * DTYPE_BITS[self.dtype] // 8, offset=None)


def check_castable(checkpoint: Checkpoint, config: Mapping[str, object]) -> None:
    """Raises ``RefusedError`` for quantised weights: their numbers mean nothing without their scales."""
    packed = next((dtype for dtype in checkpoint.dtypes if dtype in ("F4", "F6_E2M3", "F6_E3M2", "F8_E8M0")), None)
    key = next((key for key in _QUANTISED if config.get(key)), None)
    if packed is None and key is None:
        return
    why = f"holds {packed} tensors" if packed else f"its config has a {key}"
    raise RefusedError(
        f"{checkpoint.folder}: is quantised ({why}), which --dtype would destroy",
        code="quantised",
        path=checkpoint.folder,
        hint="leave out --dtype: the bytes are then copied as they are",
    )


def cast_config(path: Path, dtype: str) -> bytes | None:
    """The ``config.json`` at ``path`` with ``dtype``, as headers call it, where it names one; else ``None``.

    transformers loads weights in the dtype that the config names, whatever they are stored in.
    """
    values = read_json_object(path, code="config_invalid")
    named = [key for key in ("dtype", "torch_dtype") if isinstance(values.get(key), str)]
    if not named:
        return None
    content = {**values, **dict.fromkeys(named, _TORCH_NAMES[dtype])}
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
