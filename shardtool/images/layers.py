"""Where the value of an option comes from: flag > replayed image > environment > config file > default.

An option is a field of a dataclass: its name is the flag's (``negative_prompt`` is ``--negative-prompt``,
``SHARDTOOL_NEGATIVE_PROMPT`` and ``negative-prompt`` in the file), its annotation is its type, and its default stands
beside it. The config file is TOML with the options of the command in a table of the command's name::

    [generate]
    steps = 20
    scheduler = "euler-a"
"""

from __future__ import annotations

import difflib
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from shardtool.checkpoint.files import read_whole
from shardtool.checkpoint.strict_json import CONFIG_LIMIT
from shardtool.errors import InputError, ShardtoolError, UsageError

T = TypeVar("T")

PREFIX: Final = "SHARDTOOL_"
_YES = {"1", "true", "yes", "on"}
_NO = {"0", "false", "no", "off"}


@dataclass(frozen=True)
class Layers:
    """The sources of values, the first that has one wins. ``None`` in ``flags`` means that it was not typed.

    ``record`` is what the image (or sidecar) at ``record_path`` was made with, ``environment`` the process's own, and
    ``file`` the command's table of the config file at ``file_path``.
    """

    flags: Mapping[str, Any]
    record: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    file: Mapping[str, Any] = field(default_factory=dict)
    record_path: Path | None = None
    file_path: Path | None = None

    def fill(self, kind: type[T]) -> T:
        """A ``kind`` with every field from the first layer that has it. Raises ``UsageError`` for a wrong value."""
        hints = get_type_hints(kind)
        values = {}
        for option in fields(kind):  # type: ignore[arg-type]
            layer = self._layer_with(option.name)
            if layer == "environment":
                values[option.name] = _convert(self.environment[variable(option.name)], hints[option.name], option.name)
            elif layer is not None:
                values[option.name] = _convert(getattr(self, layer)[option.name], hints[option.name], option.name)
        return kind(**values)

    def blame(self, error: UsageError) -> ShardtoolError:
        """The same error, told of where the value came from if it was not typed: ``InputError`` for a file.

        An error about a value begins with the option's name; others are returned as they are.
        """
        flag, _, rest = error.message.partition(" ")
        name = flag.removeprefix("--").replace("-", "_")
        layer = self._layer_with(name)
        if layer == "environment":
            return UsageError(f"{variable(name)} {rest}", code=error.code, hint=error.hint)
        path = {"record": self.record_path, "file": self.file_path}.get(layer or "")
        if path is None:
            return error
        hint = error.hint and error.hint.removeprefix(f"{flag} ")
        return InputError(f"{path}: {flag.removeprefix('--')} {rest}", code=error.code, path=path, hint=hint)

    def _layer_with(self, name: str) -> Literal["flags", "record", "environment", "file"] | None:
        if self.flags.get(name) is not None:
            return "flags"
        if name in self.record:
            return "record"
        if self.environment.get(variable(name)):
            return "environment"
        return "file" if name in self.file else None


def variable(name: str) -> str:
    """The option's variable of the environment."""
    return PREFIX + name.upper()


def read_config(path: Path, command: str, known: Iterable[str]) -> dict[str, Any]:
    """The table of ``command`` in the config file ``path``, its keys as field names.

    Raises ``InputError`` where the file is missing, no TOML, or has a key that is no option.
    """
    try:
        table = tomllib.loads(read_whole(path, limit=CONFIG_LIMIT, code="config_invalid").decode())
    except (ValueError, RecursionError) as error:  # no text, no TOML, or a number of more than 4300 digits
        raise InputError(f"{path}: not TOML: {error}", code="config_invalid", path=path) from error
    own = table.get(command, {})
    if not isinstance(own, dict) or (command not in table and table):
        raise InputError(
            f"{path}: has no table [{command}]", code="config_invalid", path=path, hint=f"begin it with [{command}]"
        )
    names = set(known)
    values = {}
    for key, value in own.items():
        name = key.replace("-", "_")
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0].replace('_', '-')}?" if near else None
            message = f'{path}: "{key}" is no option of {command}'
            raise InputError(message, code="config_invalid", path=path, hint=hint)
        values[name] = value
    return values


def _convert(value: Any, hint: Any, name: str) -> Any:
    """``value`` (from a flag, a text of the environment, or TOML) as the annotated type."""
    flag = "--" + name.replace("_", "-")
    if get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(one for one in get_args(hint) if one is not type(None))
    if get_origin(hint) is tuple:
        listed = value if isinstance(value, (list, tuple)) else _split(value)
        return tuple(_convert(one, get_args(hint)[0], name) for one in listed)
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        raise UsageError(
            f'{flag} "{value}" is not one of the choices',
            code="choice_invalid",
            hint="write " + ", ".join(get_args(hint)),
        )
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    try:
        return _of_text(value, hint)
    except (TypeError, ValueError) as error:
        words = {int: "a whole number", float: "a number", bool: "yes or no", str: "text", Path: "a path"}
        raise UsageError(f'{flag} "{value}" is not {words[hint]}', code="value_invalid") from error


def _split(value: Any) -> list[Any]:
    """A list in one variable of the environment is written with commas."""
    return [piece for piece in value.split(",") if piece] if isinstance(value, str) else [value]


def _of_text(value: Any, hint: Any) -> Any:
    if hint is bool:
        text = str(value).lower()
        if text not in _YES | _NO:
            raise ValueError
        return text in _YES
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        raise TypeError
    return hint(value)
