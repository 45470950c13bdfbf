"""Prompts, each with the settings that its line overrides.

A prompts file is either text, one prompt a line::

    # a comment; blank lines are skipped
    a dog running on the grass
    a cat --n blurry --w 64 --h 64 --s 20 --d 7 --l 5

(the short names are those of sd-scripts: negative, width, height, steps, seed, guidance; the long ones are the command
line's), or JSON Lines, one object a line with the same names: ``{"prompt": "a cat", "steps": 20, "seed": "1-4"}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from shardtool.errors import InputError, UsageError
from shardtool.images.seeds import parse_seeds

_SHORT: Final = {"n": "negative_prompt", "w": "width", "h": "height", "s": "steps", "d": "seed", "l": "guidance"}
_TEXT, _INT, _FLOAT = "text", "a whole number", "a number"
_KINDS: Final[Mapping[str, str]] = {
    "prompt_2": _TEXT,
    "negative_prompt": _TEXT,
    "negative_prompt_2": _TEXT,
    "scheduler": _TEXT,
    "image": _TEXT,
    "mask": _TEXT,
    "width": _INT,
    "height": _INT,
    "steps": _INT,
    "count": _INT,
    "guidance": _FLOAT,
    "strength": _FLOAT,
    "seed": "seeds",
}
_OVERRIDE = re.compile(r"(?:^|\s)--([A-Za-z][\w-]*)(?=\s|$)")
_LONGEST = 64 * 1024 * 1024


@dataclass(frozen=True)
class Asked:
    """One prompt, and what its line says of settings, ``seeds`` and ``count``; ``where`` names the line."""

    prompt: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    count: int | None = None
    where: str | None = None


def read_prompts(name: str, read_stdin: Callable[[], bytes]) -> tuple[Asked, ...]:
    """The prompts in the file ``name``, or on standard input if it is ``-``. Raises ``InputError``."""
    shown = "standard input" if name == "-" else name
    try:
        data = read_stdin() if name == "-" else _read(Path(name))
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}", code="file_missing", path=name) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{shown}: not UTF-8 at byte {error.start}", code="prompts_invalid", path=name, hint="save it as UTF-8"
        ) from error
    asked = parse_prompts(text, shown, lines_of_json=name.endswith((".jsonl", ".ndjson", ".json")))
    if not asked:
        raise InputError(f"{shown} holds no prompt", code="prompts_empty", path=name)
    return asked


def _read(path: Path) -> bytes:
    if path.is_dir():
        raise IsADirectoryError(21, "is a folder, not a file of prompts")
    with path.open("rb") as file:
        data = file.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise OSError(27, f"larger than {_LONGEST} bytes, which is no file of prompts")
    return data


def parse_prompts(text: str, shown: str, *, lines_of_json: bool = False) -> tuple[Asked, ...]:
    """The prompts in ``text``; ``shown`` names it in errors. JSON Lines are recognised by their first character."""
    found: list[Asked] = []
    lines_of_json = lines_of_json or text.lstrip().startswith("{")
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.strip()
        if not line or (line.startswith("#") and not lines_of_json):
            continue
        where = f"{shown}, line {number}"
        try:
            found.append(_of_json(line, where) if lines_of_json else _of_text(line, where))
        except UsageError as error:
            # The same check speaks of an option elsewhere; here the file is at fault.
            raise InputError(f"{where}: {error.message}", code=error.code, hint=error.hint) from error
    return tuple(found)


def _of_text(line: str, where: str) -> Asked:
    pieces = _OVERRIDE.split(line)
    prompt, values = pieces[0].strip(), {}
    for key, value in zip(pieces[1::2], pieces[2::2], strict=True):
        values[_name(key, where)] = value.strip()
    return _asked(prompt, values, where)


def _of_json(line: str, where: str) -> Asked:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {error}", code="prompts_invalid") from error
    if isinstance(values, str):
        values = {"prompt": values}
    if not isinstance(values, dict) or not isinstance(values.get("prompt"), str):
        raise InputError(f'{where}: not an object with a text "prompt"', code="prompts_invalid")
    prompt = values.pop("prompt")
    return _asked(prompt, {_name(key, where): value for key, value in values.items()}, where)


def _spelt(name: str) -> str:
    short = next((letter for letter, long in _SHORT.items() if long == name), None)
    return name.replace("_", "-") + (f" ({short})" if short else "")


def _name(key: str, where: str) -> str:
    name = _SHORT.get(key, key.replace("-", "_"))
    if name not in _KINDS:
        raise InputError(
            f'{where}: "{key}" is no setting',
            code="prompts_invalid",
            hint="known are " + ", ".join(_spelt(name) for name in _KINDS),
        )
    return name


def _asked(prompt: str, values: Mapping[str, Any], where: str) -> Asked:
    converted = {name: _convert(name, value, where) for name, value in values.items() if value is not None}
    seeds = converted.pop("seed", ())
    count = converted.pop("count", None)
    return Asked(prompt, converted, seeds, count, where)


def _convert(name: str, value: Any, where: str) -> Any:
    kind = _KINDS[name]
    try:
        if kind == "seeds":
            listed = value if isinstance(value, list) else [value]
            return parse_seeds(",".join(str(one) for one in listed))
        if kind == _TEXT and isinstance(value, str):
            return Path(value) if name in ("image", "mask") else value
        if kind == _INT and not isinstance(value, (bool, float)):
            return int(value)
        if kind == _FLOAT and not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise InputError(f"{where}: {name.replace('_', '-')} is not {kind}: {value!s:.80}", code="prompts_invalid")
