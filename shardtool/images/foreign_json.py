"""JSON out of an image, by whatever program it was written: an object, or nothing."""

from __future__ import annotations

import json
from typing import Any

from shardtool.checkpoint.strict_json import plain


def json_object(text: str | None) -> dict[str, Any] | None:
    """The object in ``text``, with infinities and NaN as text; ``None`` where there is none, or a too deep one."""
    if text is None:
        return None
    try:
        found = plain(json.loads(text))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
