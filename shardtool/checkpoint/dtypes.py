"""The dtypes that headers name: how wide they are, which hold real numbers, and what people call the common ones."""

from __future__ import annotations

from collections.abc import Mapping

DTYPE_BITS: Mapping[str, int] = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8"), 8),
    **dict.fromkeys(("F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}
"""Bits per element of every dtype the format knows. Shapes count logical elements, also below eight bits."""

DTYPES: Mapping[str, str] = {"fp32": "F32", "fp16": "F16", "bf16": "BF16"}
"""The dtypes a model can be loaded in: what people write → what headers call it."""

CASTABLE = frozenset({"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"})
"""The dtypes of real numbers that can be cast to another; the rest is packed, and means nothing without its scales."""


def is_floating(dtype: str) -> bool:
    """Whether a dtype holds real numbers."""
    return dtype.startswith(("F", "BF"))
