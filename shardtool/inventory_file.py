"""An inventory as JSON, so that a plan can be made for another machine.

::

    {"accelerators": [{"kind": "cuda", "index": 0, "name": "NVIDIA L4", "total": "24GB", "free": "23GB", "bf16": true}],
     "cpu_total": "64GB", "cpu_free": "60GB", "cpu_bf16": false, "local_rank": null}

``shardtool load … --dry-run --json`` prints the machine's own in this form (``data.inventory``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shardtool.checkpoint.strict_json import read_json_object
from shardtool.devices import Accelerator, Inventory
from shardtool.errors import InputError, UsageError
from shardtool.sizes import LIMIT, parse_size

_KINDS = ("cuda", "mps", "xpu")


def read_inventory_file(path: Path) -> Inventory:
    """The inventory in the file ``path``; sizes are bytes or ``"24GB"``. Raises ``InputError`` where it is none."""
    content = read_json_object(path, code="inventory_invalid")
    try:
        return Inventory(
            _accelerators(_list(content, "accelerators")),
            cpu_total=_size(content, "cpu_total"),
            cpu_free=_size(content, "cpu_free"),
            cpu_bf16=_flag(content, "cpu_bf16", default=False),
            local_rank=_rank(content.get("local_rank")),
        )
    except (ValueError, UsageError) as error:
        raise InputError(
            f"{path}: {error}",
            code="inventory_invalid",
            path=path,
            hint="`shardtool load demo --dry-run --json` prints this machine's inventory as an example",
        ) from error


def inventory_json(inventory: Inventory) -> dict[str, Any]:
    """The inventory in the form that ``read_inventory_file`` reads."""
    return asdict(inventory)


def _list(content: Mapping[str, Any], key: str) -> list[Any]:
    found = content.get(key, [])
    if not isinstance(found, list):
        raise ValueError(f"{key} is no list")
    return found


def _accelerators(entries: list[Any]) -> tuple[Accelerator, ...]:
    found = tuple(_accelerator(entry, number) for number, entry in enumerate(entries))
    names = [accelerator.device for accelerator in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{twice} is there more than once")
    return found


def _accelerator(entry: Any, number: int) -> Accelerator:
    if not isinstance(entry, dict):
        raise ValueError(f"accelerator {number} is no JSON object")
    kind, index, name = entry.get("kind"), entry.get("index", number), entry.get("name", "")
    if kind not in _KINDS:
        raise ValueError(f"accelerator {number} is of kind {kind!r:.40}, not one of {', '.join(_KINDS)}")
    if type(index) is not int or index < 0 or not isinstance(name, str):
        raise ValueError(f"accelerator {number}: index must be a number and name a text")
    total = _size(entry, "total")
    free = _size(entry, "free") if "free" in entry else total
    return Accelerator(kind, index, name or kind, total, free, _flag(entry, "bf16", default=True))


def _size(content: Mapping[str, Any], key: str) -> int:
    value = content.get(key)
    if type(value) is int and 0 <= value < LIMIT:
        return value
    if isinstance(value, str):
        return parse_size(value, what=key)
    raise ValueError(f'{key} is {value!r:.40}, not bytes or a size such as "24GB"')


def _flag(content: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = content.get(key, default)
    if not isinstance(value, bool):
        raise ValueError(f"{key} is {value!r:.40}, not true or false")
    return value


def _rank(value: Any) -> int | None:
    if value is None or (type(value) is int and value >= 0):
        return value
    raise ValueError(f"local_rank is {value!r:.40}, not a number")
