"""Shards that are missing, are not what their name says, or lead elsewhere."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

from tests.corpus.base import INDEX, component, held, shard_name, weights_file, with_index
from tests.corpus.case import Case, Make, reject

_SECOND = shard_name(2)


def _replaced_by(make: Callable[[Path], object]) -> Make:
    """The second shard is removed, and ``make`` puts something else in its place."""

    def spoil(folder: Path) -> None:
        (folder / _SECOND).unlink()
        make(folder / _SECOND)

    return component(spoil)


def _holding(data: bytes) -> Make:
    return _replaced_by(lambda path: path.write_bytes(data))


def _changed(change: Callable[[bytes], bytes]) -> Make:
    return component(lambda folder: (folder / _SECOND).write_bytes(change((folder / _SECOND).read_bytes())))


def _link(target: str) -> Make:
    return _replaced_by(lambda path: path.symlink_to(target))


def _socket(path: Path) -> None:
    # A socket's address is short, a test's folder is not.
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def _outside_by_hard_names(folder: Path) -> None:
    """A link chain: inside first, then out."""
    (folder / _SECOND).unlink()
    (folder / "step").symlink_to("../outside/secret.safetensors")
    (folder / _SECOND).symlink_to("step")


def _no_index(*kept: int) -> Make:
    def spoil(folder: Path) -> None:
        (folder / INDEX).unlink()
        for number in (1, 2, 3):
            if number not in kept:
                (folder / shard_name(number)).unlink()

    return component(spoil)


def _in_a_cache(target: str) -> Make:
    """A snapshot of the Hub's cache in which one shard leads to ``target`` instead of its blob."""

    def make(folder: Path) -> Path:
        made = _link("replaced")(folder / "models--o--r" / "snapshots" / ("a" * 40))
        (folder / "secret.safetensors").write_bytes(weights_file(held(2)))
        (made / _SECOND).unlink()
        (made / _SECOND).symlink_to(target)
        return made

    return make


def _prepared(make: Make, *folders: str) -> Make:
    def prepared(folder: Path) -> Path:
        (folder / Path(*folders)).mkdir(parents=True)
        return make(folder)

    return prepared


CASES: list[Case] = [
    reject("shard-missing", component(lambda f: (f / _SECOND).unlink()), "shard_missing", _SECOND, "no such file"),
    reject(
        "shards-all-missing",
        component(lambda f: [(f / shard_name(n)).unlink() for n in (1, 2, 3)]),
        "shard_missing",
        shard_name(1),
        shard_name(3),
    ),
    reject(
        "shard-misspelt",
        with_index(lambda c: c["weight_map"].update(dict.fromkeys(c["weight_map"], "gone.safetensors"))),
        "shard_missing",
        "gone.safetensors",
    ),
    reject("shard-empty", _holding(b""), "truncated", _SECOND, "0 bytes"),
    reject("shard-cut-in-header", _changed(lambda raw: raw[:40]), "truncated", _SECOND),
    reject("shard-cut-in-data", _changed(lambda raw: raw[:-5]), "truncated", _SECOND),
    reject("shard-longer", _changed(lambda raw: raw + b"\0"), "trailing_bytes", _SECOND),
    reject(
        "shard-zeroed-at-the-start",
        _changed(lambda raw: bytes(100) + raw[100:]),
        "header_invalid not_safetensors",
        _SECOND,
    ),
    reject("shard-of-zeros", _changed(lambda raw: bytes(len(raw))), "not_safetensors", _SECOND, "zeros"),
    reject(
        "shard-lfs-pointer",
        _holding(b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n"),
        "lfs_pointer",
        _SECOND,
        "Git LFS",
        "git lfs pull",
    ),
    reject(
        "shard-web-page",
        _holding(b"<!DOCTYPE html><html><body>Not found</body></html>"),
        "web_page",
        _SECOND,
        "web page",
    ),
    reject("shard-html", _holding(b"  <html><body>Log in</body></html>"), "web_page", _SECOND, "web page"),
    reject("shard-json-error", _holding(b'{"error": "Repository not found"}'), "not_safetensors", _SECOND),
    reject("shard-png", _holding(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(64)), "not_safetensors", _SECOND, "picture"),
    reject("shard-gguf", _holding(b"GGUF\3\0\0\0" + bytes(64)), "gguf", _SECOND, "GGUF"),
    reject("shard-text", _holding(b"404: Not Found"), "not_safetensors", _SECOND),
    reject("shard-is-folder", _replaced_by(Path.mkdir), "not_a_file", _SECOND, "folder"),
    reject("shard-is-pipe", _replaced_by(os.mkfifo), "not_a_file", _SECOND, "pipe"),
    reject("shard-is-socket", _replaced_by(_socket), "unreadable not_a_file", _SECOND),
    reject("shard-is-dev-zero", _link("/dev/zero"), "link_outside", _SECOND, "/dev/zero"),
    reject("shard-is-dev-null", _link("/dev/null"), "link_outside", _SECOND, "/dev/null"),
    reject("shard-is-proc", _link("/proc/self/environ"), "link_outside", _SECOND),
    reject("shard-is-dangling", _link("gone"), "dangling_link", _SECOND, "gone"),
    reject("shard-is-loop", _link(_SECOND), "unreadable", _SECOND),
    reject(
        "shard-link-outside",
        _link("../outside/secret.safetensors"),
        "link_outside",
        _SECOND,
        "secret.safetensors",
        "SHARDTOOL_FOLLOW_LINKS=1",
    ),
    reject("shard-link-outside-by-two", component(_outside_by_hard_names), "link_outside", _SECOND),
    reject("shard-link-twice-the-same", _link(shard_name(1)), "tensor_absent tensor_duplicate", _SECOND),
    reject(
        "cache-link-out-of-blobs",
        _prepared(_in_a_cache("../../../../secret.safetensors"), "models--o--r", "snapshots", "a" * 40),
        "link_outside",
        _SECOND,
    ),
    reject(
        "cache-blob-missing",
        _prepared(_in_a_cache("../../../blobs/0123"), "models--o--r", "snapshots", "a" * 40),
        "dangling_link",
        _SECOND,
        "blobs/0123",
    ),
    reject("shards-without-index", _no_index(1, 2, 3), "index_missing", "3 shards", INDEX, "shardtool repair"),
    reject("shard-alone-without-index", _no_index(2), "index_missing", _SECOND),
]
