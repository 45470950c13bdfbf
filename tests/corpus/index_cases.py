"""Indexes that are none, that lead elsewhere, or that contradict the shards."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.corpus.base import (
    INDEX,
    NAMES,
    SINGLE,
    component,
    held,
    index_of,
    shard_name,
    weights_file,
    with_index,
    with_index_text,
    write_index,
)
from tests.corpus.case import Case, Make, reject

_GOOD = json.dumps(index_of({shard_name(number): held(number) for number in (1, 2, 3)}))

_TEXTS: dict[str, tuple[str | bytes, str, tuple[str, ...]]] = {
    "empty": ("", "index_invalid", ("not JSON",)),
    "not-json": ("shards!", "index_invalid", ("not JSON",)),
    "list": ("[]", "index_invalid", ("not a JSON object",)),
    "null": ("null", "index_invalid", ("not a JSON object",)),
    "number": ("3", "index_invalid", ("not a JSON object",)),
    "deep": ("[" * 200_000, "index_invalid", ("nested",)),
    "byte-order-mark": (b"\xef\xbb\xbf" + _GOOD.encode(), "index_invalid", ("not JSON",)),
    "utf-16": (_GOOD.encode("utf-16"), "index_invalid", ("not UTF-8",)),
    "cut": (_GOOD[:-30], "index_invalid", ("not JSON",)),
    "nan": (_GOOD.replace("96", "NaN"), "index_invalid", ("NaN",)),
    "duplicate-tensor": (
        _GOOD.replace('"block1.bias"', '"block1.weight"'),
        "index_invalid",
        ("block1.weight", "twice"),
    ),
    "duplicate-map": (_GOOD[:-1] + ', "weight_map": {}}', "index_invalid", ("weight_map", "twice")),
    "lone-surrogate": (_GOOD.replace("block1.bias", "\\udfff"), "index_invalid", ("surrogate",)),
    "lfs-pointer": ("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "lfs_pointer", ("Git LFS",)),
    "web-page": ("<!DOCTYPE html><html>404</html>", "web_page", ("web page",)),
}

_NAMES: dict[str, tuple[Any, str]] = {
    "parent": ("../outside/secret.safetensors", "not a plain file name"),
    "absolute": ("/etc/hostname.safetensors", "not a plain file name"),
    "below": ("sub/x.safetensors", "not a plain file name"),
    "backslash": ("..\\outside\\secret.safetensors", "not a plain file name"),
    "drive": ("C:x.safetensors", "not a plain file name"),
    "dot": (".", "not a plain file name"),
    "dot-dot": ("..", "not a plain file name"),
    "empty": ("", "not a plain file name"),
    "nul": ("x\0.safetensors", "control"),
    "escape": ("\x1b[2Jx.safetensors", "control"),
    "number": (1, "not text"),
    "null": (None, "not text"),
    "list": ([shard_name(1)], "not text"),
    "object": ({}, "not text"),
    "long": ("x" * 250 + ".safetensors", "255"),
    "pickle": ("diffusion_pytorch_model.bin", "does not end in .safetensors"),
    "dev-zero": ("/dev/zero", "not a plain file name"),
    "url": ("https://example.org/x.safetensors", "not a plain file name"),
}


def _named(name: Any) -> Make:
    return with_index(lambda content: content["weight_map"].update({NAMES[2]: name, NAMES[3]: name}))


def _replaced_by(make: Any) -> Make:
    def spoil(folder: Path) -> None:
        (folder / INDEX).unlink()
        make(folder / INDEX)

    return component(spoil)


def _giant(path: Path) -> None:
    path.write_bytes(b"{")
    os.truncate(path, 100_000_001)


def _second_index(folder: Path) -> None:
    """Both spellings of a variant's index, which contradict each other."""
    (folder / INDEX).unlink()
    names = [shard_name(number).replace("-0000", ".fp16-0000", 1) for number in (1, 2, 3)]
    for number, name in enumerate(names, 1):
        (folder / shard_name(number)).rename(folder / name)
    content = index_of({name: held(number) for number, name in enumerate(names, 1)})
    write_index(folder, content, "diffusion_pytorch_model.safetensors.index.fp16.json")
    content["weight_map"][NAMES[0]] = names[1]
    write_index(folder, content, "diffusion_pytorch_model.safetensors.fp16.index.json")


def _gap(folder: Path) -> None:
    (folder / shard_name(3)).unlink()
    write_index(folder, index_of({shard_name(number): held(number) for number in (1, 2)}))


def _of_two_saves(folder: Path) -> None:
    """Shards 1 and 2 of three, and the last of two."""
    (folder / shard_name(3)).rename(folder / shard_name(2, 2))
    names = {shard_name(1): held(1), shard_name(2): held(2), shard_name(2, 2): held(3)}
    write_index(folder, index_of(names))


def _twice(folder: Path) -> None:
    (folder / shard_name(3)).write_bytes(weights_file({**held(3), NAMES[0]: 4}))


def _lacks(folder: Path) -> None:
    (folder / shard_name(2)).write_bytes(weights_file({NAMES[2]: 4}))


CASES: list[Case] = [
    *(
        reject(f"index-{name}", with_index_text(text), code, INDEX, *words)
        for name, (text, code, words) in _TEXTS.items()
    ),
    *(
        reject(f"index-names-{name}", _named(value), "unsafe_path", INDEX, NAMES[2], words)
        for name, (value, words) in _NAMES.items()
    ),
    reject("index-without-map", with_index(lambda c: c.pop("weight_map")), "index_invalid", "no weight_map"),
    reject("index-map-null", with_index(lambda c: c.update(weight_map=None)), "index_invalid", "no weight_map"),
    reject("index-map-list", with_index(lambda c: c.update(weight_map=[])), "index_invalid", "no JSON object"),
    reject("index-map-empty", with_index(lambda c: c.update(weight_map={})), "index_invalid", "empty"),
    reject("index-metadata-list", with_index(lambda c: c.update(metadata=[])), "index_invalid", "metadata"),
    reject("index-metadata-text", with_index(lambda c: c.update(metadata="x")), "index_invalid", "metadata"),
    reject("index-is-folder", _replaced_by(Path.mkdir), "not_a_file", INDEX, "folder"),
    reject("index-is-pipe", _replaced_by(os.mkfifo), "not_a_file", INDEX, "pipe"),
    reject("index-is-device", _replaced_by(lambda p: p.symlink_to("/dev/zero")), "link_outside", INDEX, "/dev/zero"),
    reject("index-is-dangling", _replaced_by(lambda p: p.symlink_to("gone.json")), "dangling_link", INDEX, "gone.json"),
    reject("index-is-loop", _replaced_by(lambda p: p.symlink_to(p.name)), "unreadable", INDEX),
    reject("index-of-100-MB", _replaced_by(_giant), "index_invalid", "100,000,001"),
    reject("index-twice", component(_second_index), "index_duplicate tensor_misplaced", "second index"),
    reject("tensor-absent", component(_lacks), "tensor_absent", NAMES[3], shard_name(2)),
    reject(
        "tensor-nowhere", with_index(lambda c: c["weight_map"].update(ghost=shard_name(1))), "tensor_absent", "ghost"
    ),
    reject("tensor-unlisted", with_index(lambda c: c["weight_map"].pop(NAMES[3])), "tensor_unlisted", NAMES[3]),
    reject(
        "tensor-misplaced",
        with_index(lambda c: c["weight_map"].update({NAMES[0]: shard_name(3)})),
        "tensor_misplaced",
        NAMES[0],
        shard_name(3),
        shard_name(1),
    ),
    reject("tensor-twice", component(_twice), "tensor_duplicate", NAMES[0], shard_name(1), shard_name(3)),
    reject("numbering-gap", component(_gap), "numbering_gap", "2 of the 3", shard_name(3)),
    reject("shards-of-two-saves", component(_of_two_saves), "numbering_gap", "2 of the 3", shard_name(3)),
    reject(
        "stale-single-file",
        component(lambda f: (f / SINGLE).write_bytes(weights_file(held(1)))),
        "stale_single",
        SINGLE,
    ),
    reject(
        "names-of-another-model",
        with_index(lambda c: c.update(weight_map={f"other{n}": shard_name(n) for n in (1, 2, 3)})),
        "tensor_absent tensor_unlisted",
        "other1",
        NAMES[0],
    ),
]
