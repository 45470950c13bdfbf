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

from shardtool.errors import InputError, UsageError

T = TypeVar("T")

PREFIX: Final = "SHARDTOOL_"
_YES = {"1", "true", "yes", "on"}
_NO = {"0", "false", "no", "off"}


@dataclass(frozen=True)
class Layers:
    """The sources of values, the first that has one wins. ``None`` in ``flags`` means that it was not typed.

    ``environment`` is the process's own; ``file`` the command's table of a config file.
    """

    flags: Mapping[str, Any]
    record: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    file: Mapping[str, Any] = field(default_factory=dict)

    def fill(self, kind: type[T]) -> T:
        """A ``kind`` with every field from the first layer that has it. Raises ``UsageError`` for a wrong value."""
        hints = get_type_hints(kind)
        values = {}
        for option in fields(kind):  # type: ignore[arg-type]
            found, value, where = self._find(option.name)
            if found:
                values[option.name] = _convert(value, hints[option.name], where)
        return kind(**values)

    def _find(self, name: str) -> tuple[bool, Any, str]:
        flag = "--" + name.replace("_", "-")
        if self.flags.get(name) is not None:
            return True, self.flags[name], flag
        if name in self.record:
            return True, self.record[name], f"{name} of the replayed image"
        variable = PREFIX + name.upper()
        if self.environment.get(variable):
            return True, self.environment[variable], variable
        if name in self.file:
            return True, self.file[name], f"{flag[2:]} in the config file"
        return False, None, flag


def read_config(path: Path, command: str, known: Iterable[str]) -> dict[str, Any]:
    """The table of ``command`` in the config file ``path``, its keys as field names.

    Raises ``InputError`` where the file is missing or no TOML, and ``UsageError`` for a key that is no option.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--config {path}: {error.strerror or error}", code="file_missing", path=path) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"--config {path}: not TOML: {error}", code="config_invalid", path=path) from error
    own = table.get(command, {})
    if not isinstance(own, dict) or (command not in table and table):
        raise UsageError(
            f"--config {path} has no table [{command}]", code="config_invalid", hint=f"begin it with [{command}]"
        )
    names = set(known)
    values = {}
    for key, value in own.items():
        name = key.replace("-", "_")
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0].replace('_', '-')}?" if near else None
            raise UsageError(f'--config {path}: "{key}" is no option of {command}', code="config_invalid", hint=hint)
        values[name] = value
    return values


def _convert(value: Any, hint: Any, where: str) -> Any:
    """``value`` (from a flag, a text of the environment, or TOML) as the annotated type."""
    if get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(one for one in get_args(hint) if one is not type(None))
    if get_origin(hint) is tuple:
        listed = value if isinstance(value, (list, tuple)) else _split(value)
        return tuple(_convert(one, get_args(hint)[0], where) for one in listed)
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        raise UsageError(
            f'{where}: "{value}" is not one of the choices',
            code="choice_invalid",
            hint="write " + ", ".join(get_args(hint)),
        )
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    try:
        return _of_text(value, hint)
    except (TypeError, ValueError) as error:
        words = {int: "a whole number", float: "a number", bool: "yes or no", str: "text", Path: "a path"}
        raise UsageError(f'{where}: "{value}" is not {words[hint]}', code="value_invalid") from error


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
