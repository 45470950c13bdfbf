"""JSON that means one thing only: UTF-8, no duplicate keys, no NaN, bounded in size and depth.

``json.loads`` guesses UTF-16 and UTF-32, keeps the last of two equal keys and takes ``NaN``; two readers of such a file
see two different models. See RFC 8259 §4 and §8.1, and finding 7 of the Trail of Bits review of safetensors (2023).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite, isinf
from pathlib import Path
from typing import Any, NoReturn

from shardtool.checkpoint.files import read_whole
from shardtool.checkpoint.foreign import SNIFF, recognise
from shardtool.errors import REPLACE_FILE, InputError

CONFIG_LIMIT = 4_000_000
"""Bytes a ``config.json`` or ``model_index.json`` may have; real ones have a few thousand."""

MAX_DEPTH = 128
"""Levels of objects and lists, as in the format's own parser; Python's own limit depends on its version."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class DuplicateKeyError(ValueError):
    """The same key twice in one JSON object."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key!r:.200} stands there twice")
        self.key = key


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKeyError(key)
            seen.add(key)
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _integer(text: str) -> int:
    if text == "-0":  # an integer to some readers, a float to others
        raise ValueError("-0 is no integer")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"{text:.20} is beyond the range of numbers")
    return number


def parse_json_object(data: bytes) -> dict[str, Any]:
    """The JSON object in ``data``. Raises ``ValueError`` saying in a few words why it is none."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte {error.start})") from error
    try:
        found = json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_constant, parse_int=_integer, parse_float=_finite
        )
    except DuplicateKeyError:
        raise
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg.removesuffix(' at')} at character {error.pos})") from error
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:  # NaN, or a number of more than 4300 digits
        raise ValueError(f"not acceptable JSON ({error})") from error
    if not isinstance(found, dict):
        raise ValueError(f"not a JSON object, but {type(found).__name__}")
    _refuse_depth(found)
    if _SURROGATE.search(text):
        _refuse_lone_surrogates(found)
    return found


def plain(value: Any, levels: int = MAX_DEPTH) -> Any:
    """``value`` as JSON holds it: infinities and NaN as text, because it has no such numbers (RFC 8259 §6).

    diffusers writes them as ``-Infinity`` into the configs of some schedulers, and readers other than Python's refuse
    the file. Raises ``ValueError`` where it is deeper than ``levels``.
    """
    if isinstance(value, float):
        return value if isfinite(value) else json.dumps(value)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if not levels:
        raise _too_deep()
    if isinstance(value, Mapping):
        return {key: plain(item, levels - 1) for key, item in value.items()}
    return [plain(item, levels - 1) for item in value]


def _refuse_depth(found: dict[str, Any]) -> None:
    level: list[Any] = [found]
    for _ in range(MAX_DEPTH):
        inside = (child for outer in level for child in (outer.values() if isinstance(outer, dict) else outer))
        level = [child for child in inside if isinstance(child, dict | list)]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError("not acceptable JSON (nested too deeply)")


def _refuse_lone_surrogates(found: dict[str, Any]) -> None:
    try:
        json.dumps(found, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("not acceptable JSON (a lone surrogate in a string)") from error


def read_json_object(path: Path, *, code: str, limit: int = CONFIG_LIMIT, hint: str = REPLACE_FILE) -> dict[str, Any]:
    """The JSON object in the file ``path``, of at most ``limit`` bytes.

    Raises ``InputError``: with ``code`` and ``hint`` where the contents are at fault, else what ``OpenFile`` raises.
    """
    data = read_whole(path, limit=limit, code=code)
    try:
        return parse_json_object(data)
    except ValueError as error:
        if foreign := recognise(data[:SNIFF], str(path)):
            raise InputError.of_all([foreign]) from error
        raise InputError(f"{path}: {error}", code=code, path=path, hint=hint) from error
