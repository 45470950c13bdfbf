"""Damaged in thousands of ways, drawn from a seed: what we accept, the reference accepts, with the same contents.

``FUZZ_INPUTS=100000 pytest tests/test_fuzz.py`` runs as many as are asked for; a minute is enough for those. A failure
names its seed, from which the input is made again.
"""

from __future__ import annotations

import json
import os
import random
import resource
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.header import read_header
from shardtool.checkpoint.inventory import examine
from shardtool.errors import InputError
from tests.corpus.base import INDEX, held, shard_name, weights_file, write_component

INPUTS = int(os.environ.get("FUZZ_INPUTS", "10000"))
MEMORY = 64 << 20
"""Bytes that the whole run may add to the process."""

NUMBERS: list[Any] = [
    0,
    1,
    -1,
    2,
    7,
    8,
    2**31,
    2**32,
    2**62,
    2**63,
    2**64,
    True,
    False,
    1.0,
    8.5,
    None,
    "8",
    [],
    {},
    10**30,
]
DTYPES = ["F32", "F16", "BF16", "U8", "I64", "F4", "F6_E2M3", "F8_E4M3", "C64", "BOOL", "f32", "F33", "", 4, None, []]
NAMES = ["", "a", "__metadata__", "a.b", "../x", "\x1b[2J", "\ud800", "é", "x" * 300]

STRICTER = (
    "twice",
    "no JSON object",
    "must map strings",
    "beyond the range",
    "nested too deeply",
    "digits",
    str(2**63),
)
"""Words of the refusals that are stricter than the reference on purpose; see the head of ``header.py``."""


def seed_files() -> list[bytes]:
    """Small valid files, each different in kind."""

    def made(entries: dict[str, Any], data: bytes, pad: str = "") -> bytes:
        raw = (json.dumps(entries) + pad).encode()
        return struct.pack("<Q", len(raw)) + raw + data

    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    half = {"dtype": "F16", "shape": [2, 2], "data_offsets": [8, 16]}
    return [
        made({}, b""),
        made({"a": entry}, bytes(range(8))),
        made({"__metadata__": {"format": "pt", "k": "v"}, "a": entry, "b.c": half}, bytes(range(16)), "   "),
        made({"b": half, "a": entry, "e": {"dtype": "I64", "shape": [0, 3], "data_offsets": [16, 16]}}, bytes(16)),
        made({"s": {"dtype": "F64", "shape": [], "data_offsets": [0, 8], "more": [1, {"x": None}]}}, bytes(8)),
        made({"q": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}}, b"\x12\x34"),
        weights_file(held(1)),
    ]


def damage_bytes(data: bytes, dice: random.Random) -> bytes:
    """One to three flips, cuts, insertions, repetitions or numbers in odd places."""
    raw = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 3))):
        place, length = dice.randrange(len(raw) + 1), dice.choice((1, 1, 2, 8, 30))
        match dice.randrange(7):
            case 0 if raw:
                raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
            case 1:
                del raw[place : place + length]
            case 2:
                raw[place:place] = dice.randbytes(length)
            case 3:
                raw[place:place] = raw[place : place + length]
            case 4:
                raw[place:place] = dice.choice(
                    (b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"0", b"-", b".", b"e9", b"\0")
                )
            case 5:
                del raw[place:]
            case _:
                raw[:8] = struct.pack(
                    "<Q", max(0, int.from_bytes(raw[:8], "little") + dice.choice((-8, -1, 1, 8, 2**40)))
                )
    return bytes(raw)


def damage_header(data: bytes, dice: random.Random) -> bytes:
    """The header's object with one or two values replaced, removed, added or said twice; the length is right again."""
    length = int.from_bytes(data[:8], "little")
    entries, payload = json.loads(data[8 : 8 + length]), data[8 + length :]
    for _ in range(dice.choice((1, 1, 2))):
        _change(entries, dice)
    text = json.dumps(entries)
    if dice.random() < 0.15 and len(text) > 2:
        text = text[:-1] + ("," if entries else "") + text[1:]  # every key a second time
    if dice.random() < 0.1:
        text = dice.choice((" ", "\n", "\0", "\ufeff", "//")) + text
    raw = text.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(raw)) + raw + payload + bytes(dice.choice((0, 0, 0, 1, 8)))


def _change(entries: dict[str, Any], dice: random.Random) -> None:
    name = dice.choice([*entries, dice.choice(NAMES)])
    entry = entries.get(name)
    match dice.randrange(6):
        case 0:
            entries.pop(name, None)
        case 1:
            entries[name] = dice.choice([None, [], "x", {}, {"k": 1}, {"k": "v"}, ["F32", [2], [0, 8]]])
        case 2 if isinstance(entry, dict) and entry:
            entry[dice.choice(list(entry))] = dice.choice([*NUMBERS, *DTYPES])
        case 3 if isinstance(entry, dict) and entry:
            entry.pop(dice.choice(list(entry)))
        case 4 if isinstance(entry, dict) and isinstance(entry.get("shape"), list):
            entry["shape"].insert(0, dice.choice(NUMBERS))
        case _ if isinstance(entry, dict) and isinstance(entry.get("data_offsets"), list) and entry["data_offsets"]:
            entry["data_offsets"][dice.randrange(len(entry["data_offsets"]))] = dice.choice(NUMBERS)


def put(path: Path, data: bytes) -> None:
    """Replace a file's contents without emptying it first: ext4 would write such a file to the disk at once."""
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(data)
        file.truncate()


def ours(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    with OpenFile(path) as file:
        header = read_header(file)
        return {
            info.name: (info.dtype, list(info.shape), file.read_at(header.data_start + info.start, info.nbytes))
            for info in header.tensors
        }


def reference(data: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    return {
        name: (found["dtype"], found["shape"], bytes(found["data"])) for name, found in safetensors.deserialize(data)
    }


def inputs(count: int) -> Iterator[tuple[int, random.Random]]:
    for seed in range(count):
        yield seed, random.Random(seed)


@pytest.fixture
def memory_is_bounded() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MEMORY


@pytest.mark.usefixtures("memory_is_bounded")
def test_what_we_accept_the_reference_accepts_with_equal_contents(tmp_path: Path) -> None:
    seeds, path = seed_files(), tmp_path / "x.safetensors"
    ways: list[Callable[[bytes, random.Random], bytes]] = [damage_bytes, damage_header]
    outcomes: Counter[str] = Counter()
    for seed, dice in inputs(INPUTS):
        data = dice.choice(ways)(dice.choice(seeds), dice)
        put(path, data)
        try:
            found = ours(path)
        except InputError as error:
            outcomes[judge_refusal(seed, data, error)] += 1
        else:
            assert found == reference(data), f"seed {seed}"
            outcomes["accepted"] += 1
    print(dict(outcomes))
    assert min(outcomes[outcome] for outcome in ("accepted", "refused", "stricter")) > INPUTS / 200


def judge_refusal(seed: int, data: bytes, error: InputError) -> str:
    """Every refusal names the file in one line; only the documented ones are stricter than the reference."""
    for problem in error.problems or [error.as_problem()]:
        assert "x.safetensors" in problem.message, f"seed {seed}"
        assert len(problem.message) < 2000, f"seed {seed}"
    try:
        reference(data)
    except (safetensors.SafetensorError, TypeError, OverflowError):
        return "refused"
    assert any(word in error.message for word in STRICTER), f"seed {seed}: {error.message}"
    return "stricter"


def damage_index(folder: Path, dice: random.Random) -> None:
    content: Any = json.loads((folder / INDEX).read_text())
    weight_map = content["weight_map"]
    others = [
        shard_name(1),
        shard_name(2),
        shard_name(3),
        shard_name(4),
        "../x.safetensors",
        "/dev/zero",
        "",
        ".",
        7,
        None,
        [],
    ]
    for _ in range(dice.choice((0, 1, 1, 2))):
        name = dice.choice([*weight_map, dice.choice(NAMES)])
        match dice.randrange(4):
            case 0:
                weight_map.pop(name, None)
            case 1:
                weight_map[name] = dice.choice(others)
            case 2:
                content["metadata"] = dice.choice([None, [], {}, {"total_size": dice.choice(NUMBERS)}])
            case _:
                content[dice.choice(["weight_map", "metadata", "more"])] = dice.choice([weight_map, [], {}, None, 3])
    raw = json.dumps(content).encode("utf-8", "surrogatepass")
    put(folder / INDEX, damage_bytes(raw, dice) if dice.random() < 0.3 else raw)


@pytest.mark.usefixtures("memory_is_bounded")
def test_an_index_we_accept_says_exactly_where_every_tensor_is(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    good = (folder / INDEX).read_bytes()
    held_there = {tensor: shard_name(number) for number in (1, 2, 3) for tensor in held(number)}
    accepted = 0
    for seed, dice in inputs(INPUTS // 10):
        put(folder / INDEX, good)
        damage_index(folder, dice)
        found = examine(folder)
        if found.errors:
            assert all(problem.path for problem in found.errors), f"seed {seed}"
        else:
            assert json.loads((folder / INDEX).read_bytes())["weight_map"] == held_there, f"seed {seed}"
            accepted += 1
    assert 0 < accepted < INPUTS // 10
