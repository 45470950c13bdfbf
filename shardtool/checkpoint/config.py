"""``config.json`` of a component: untrusted text that says which class is built and how large.

The weights bound what a config can honestly ask for: a model of 44 tensors has no ten million layers, and building one
on the meta device never ends. Nor may a config name code to run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardtool.checkpoint.links import check_link
from shardtool.checkpoint.names import CONFIG_NAME
from shardtool.checkpoint.strict_json import read_json_object
from shardtool.errors import InputError, Problem

CODE = "config_invalid"

_COUNTS = re.compile(r"layers|block|depth")
_WIDTHS = re.compile(r"(_channels|_dim|_dims|_size|_heads)$")
_WIDTH_FLOOR = 2**16
"""A width up to this is never called absurd: image and vocabulary sizes have no tensor of their own."""


@dataclass(frozen=True)
class Config:
    """A readable ``config.json``. ``class_name`` is ``None`` where it names no class; ``values`` is all it holds."""

    path: Path
    class_name: str | None
    values: dict[str, Any]


def read_config(folder: Path) -> Config | None:
    """The config of a component folder, or ``None`` where there is none.

    diffusers writes ``_class_name``, transformers ``architectures``. Raises ``InputError`` where the file is damaged.
    """
    path = folder / CONFIG_NAME
    if not os.path.lexists(path):
        return None
    check_link(folder, path)
    values = read_json_object(path, code=CODE)
    return Config(path, _class_name(path, values), values)


def _class_name(path: Path, values: dict[str, Any]) -> str | None:
    name = values.get("_class_name")
    if name is None and values.get("architectures") is not None:
        listed = values["architectures"]
        name = listed[0] if isinstance(listed, list) and listed else listed
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        raise InputError(f"{path}: its class is {name!r:.80}, not the name of a class", code=CODE, path=path)
    return name


def missing_config(folder: Path) -> Problem:
    """That there is no config beside the weights in ``folder``."""
    path = str(folder / CONFIG_NAME)
    message = f"{path}: missing, and without it nobody knows the model's shape"
    return Problem(
        "config_missing", message, path, hint="put the config.json that belongs to these weights beside them"
    )


def config_problems(folder: Path, *, tensors: int, parameters: int) -> list[Problem]:
    """What is wrong with the config beside weights of so many ``tensors`` with so many ``parameters``; 0 if unknown."""
    try:
        config = read_config(folder)
    except InputError as error:
        return [error.as_problem()]
    if config is None:
        return []
    found = list(_code_problems(config))
    if tensors:
        found.extend(_absurd(config, tensors, parameters))
    return found


def _code_problems(config: Config) -> Iterable[Problem]:
    for key, value in config.values.items():
        if "attn_implementation" in key and isinstance(value, str) and "/" in value:
            message = f"{config.path}: {key} is {value!r:.120}: code from the Hub, which is never fetched or run"
            yield Problem("custom_code", message, str(config.path), hint="remove that line to use the weights")
    if config.values.get("auto_map"):
        message = f"{config.path}: has an auto_map, which names Python code; that is not executed"
        yield Problem("custom_code", message, str(config.path), severity="warning")


def _absurd(config: Config, tensors: int, parameters: int) -> Iterable[Problem]:
    for key, number in _numbers(config.values):
        limit = 0
        if _COUNTS.search(key) and not _WIDTHS.search(key):
            limit, of = max(tensors, 64), f"{tensors:,} tensors"
        elif _WIDTHS.search(key):
            limit, of = max(parameters, _WIDTH_FLOOR), f"{parameters:,} parameters"
        if limit and number > limit:
            message = f"{config.path}: {key} is {number:,}, but the weights have only {of}"
            hint = "config and weights are not of one model, or the config was made to exhaust memory"
            yield Problem("config_absurd", message, str(config.path), hint=hint)


def _numbers(values: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Every integer by its key, and the length of every list; lists of numbers count by their sum."""
    for key, value in values.items():
        if type(value) is int:
            yield key, value
        elif isinstance(value, list):
            numbers = [item for item in _flat(value) if type(item) is int]
            yield key, max([len(value), *([sum(numbers)] if _COUNTS.search(key) else numbers)])
        elif isinstance(value, dict):
            yield from _numbers(value)


def _flat(value: list[Any]) -> Iterator[Any]:
    for item in value:
        if isinstance(item, list):
            yield from _flat(item)
        else:
            yield item
