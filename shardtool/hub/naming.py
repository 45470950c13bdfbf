"""Put what was found in a temporary folder, laid out for a source on the Hub, into that source's own name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any, TypeVar, cast

from shardtool.checkpoint.header import Header
from shardtool.errors import ShardtoolError

T = TypeVar("T")

PREFIX = "shardtool-hub-"
"""How the names of the temporary folders begin."""

_TEMPORARY = re.compile(f"{re.escape(gettempdir())}/{PREFIX}[^/]+/")


def named_as_on_hub(value: T) -> T:
    """``value`` with every path and text in it that names a file of a temporary folder named as on the Hub."""
    return cast(T, _named(value))


def error_as_on_hub(error: ShardtoolError) -> ShardtoolError:
    message, hint, path = (_named(text) for text in (error.message, error.hint, error.path))
    problems = _named(error.problems)
    return type(error)(message, code=error.code, hint=hint, path=path, tensor=error.tensor, problems=problems)


def _named(value: Any) -> Any:
    match value:
        case str():
            return _TEMPORARY.sub("", value)
        case Path():
            return Path(_TEMPORARY.sub("", str(value)))
        case Header():  # large, and without paths
            return value
        case Mapping():
            return {key: _named(item) for key, item in value.items()}
        case tuple() | list():
            return type(value)(_named(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _named(getattr(value, field.name)) for field in fields(value)})
    return value
