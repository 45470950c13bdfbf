"""Kinds of damage done to a real, sharded model: what the table in the documentation is about.

Each kind is applied to a component folder as diffusers or transformers wrote it, in at least three shards.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from shardtool.checkpoint.digests import fingerprint
from tests.corpus.pickle_cases import archive

Apply: TypeAlias = Callable[["Model"], object]


@dataclass(frozen=True)
class Model:
    """A component's folder. ``twin`` is another model of the same class in the same shards, with other values."""

    folder: Path
    twin: Path

    @property
    def index(self) -> Path:
        (found,) = self.folder.glob("*.index.json")
        return found

    @property
    def shards(self) -> list[Path]:
        return sorted(self.folder.glob("*-of-*.safetensors"))

    @property
    def single(self) -> Path:
        return self.folder / self.index.name.removesuffix(".index.json")

    def content(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.index.read_text())
        return found

    def write_index(self, content: Any) -> None:
        self.index.write_text(json.dumps(content))

    def tensors(self, shard: Path) -> dict[str, tuple[dict[str, Any], bytes]]:
        """Name → entry and data of a file."""
        raw = shard.read_bytes()
        start = 8 + int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:start])
        header.pop("__metadata__", None)
        return {
            name: (entry, raw[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]])
            for name, entry in header.items()
        }


def write(path: Path, tensors: dict[str, tuple[dict[str, Any], bytes]], *, twice: bool = False) -> None:
    """Write a file from entries and data; ``twice`` repeats every name in the header."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (entry, content) in tensors.items():
        header[name] = {**entry, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header)
    if twice:
        repeated = json.dumps({name: entry for name, entry in header.items() if name != "__metadata__"})
        text = text[:-1] + "," + repeated[1:]
    raw = text.encode()
    raw += b" " * (-len(raw) % 8)
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)


def victim(model: Model) -> tuple[Path, str]:
    """The shard that suffers, and a tensor in it."""
    shard = model.shards[1]
    return shard, sorted(model.tensors(shard))[0]


def _in_place_of_the_shard(make: Callable[[Path], object]) -> Apply:
    def apply(model: Model) -> None:
        shard, _ = victim(model)
        shard.unlink()
        make(shard)

    return apply


def _shard_bytes(change: Callable[[bytes], bytes]) -> Apply:
    return lambda model: victim(model)[0].write_bytes(change(victim(model)[0].read_bytes()))


def _holding(data: bytes) -> Apply:
    return lambda model: victim(model)[0].write_bytes(data)


def _index(change: Callable[[dict[str, Any], Model], object]) -> Apply:
    def apply(model: Model) -> None:
        content = model.content()
        change(content, model)
        model.write_index(content)

    return apply


def _tensor_absent(model: Model) -> None:
    shard, name = victim(model)
    tensors = model.tensors(shard)
    del tensors[name]
    write(shard, tensors)


def _tensor_nowhere(model: Model) -> None:
    _tensor_absent_name = victim(model)[1]
    _tensor_absent(model)
    _index(lambda content, _: content["weight_map"].pop(_tensor_absent_name))(model)


def _tensor_twice(model: Model) -> None:
    _, name = victim(model)
    entry, data = model.tensors(victim(model)[0])[name]
    last = model.shards[-1]
    write(last, {**model.tensors(last), name: (entry, b"\0\0\x80\x3f" * (len(data) // 4))})


def _unexpected(model: Model) -> None:
    shard, _ = victim(model)
    write(shard, {**model.tensors(shard), "lora_extra.weight": ({"dtype": "F32", "shape": [1]}, bytes(4))})
    _index(lambda content, _: content["weight_map"].update({"lora_extra.weight": shard.name}))(model)


def _other_shape(model: Model) -> None:
    shard, name = victim(model)
    tensors = model.tensors(shard)
    tensors[name] = ({"dtype": "F32", "shape": [1, 1, 7]}, bytes(28))
    write(shard, tensors)


def _gap(model: Model) -> None:
    last = model.shards[-1]
    _index(
        lambda content, _: content.update(
            weight_map={name: file for name, file in content["weight_map"].items() if file != last.name}
        )
    )(model)
    last.unlink()


def _stale_single(model: Model) -> None:
    twin = Model(model.twin, model.twin)
    write(model.single, {name: found for shard in twin.shards for name, found in twin.tensors(shard).items()})


def _second_split(model: Model) -> None:
    for number, shard in enumerate(sorted(model.twin.glob("*-of-*.safetensors")), 1):
        stem = shard.name.partition("-0")[0]
        (model.folder / f"{stem}-{number:05d}-of-00099.safetensors").write_bytes(shard.read_bytes())


def _duplicate_names(model: Model) -> None:
    shard, _ = victim(model)
    write(shard, model.tensors(shard), twice=True)


def _value(pattern: bytes | None) -> Apply:
    """The first number of a tensor becomes NaN, or has its highest bit of the exponent flipped."""

    def apply(model: Model) -> None:
        shard, name = victim(model)
        tensors = model.tensors(shard)
        entry, data = tensors[name]
        changed = pattern if pattern is not None else bytes([*data[:3], data[3] ^ 0x40])
        tensors[name] = (entry, changed + data[4:])
        write(shard, tensors)

    return apply


def _recorded(apply: Apply) -> Apply:
    """With the digests recorded before the damage."""

    def recorded(model: Model) -> None:
        from hashlib import sha256

        digests = {
            name: sha256(data).hexdigest() for shard in model.shards for name, (_, data) in model.tensors(shard).items()
        }
        forms = [
            (name, entry["dtype"], entry["shape"])
            for shard in model.shards
            for name, (entry, _) in model.tensors(shard).items()
        ]
        entry = {"fingerprint": fingerprint(forms, digests), "tensors": digests}
        stem = model.single.name.removesuffix(".safetensors")
        content = {"schema": "shardtool.digests/1", "checkpoints": {stem: entry}}
        (model.folder / "shardtool.digests.json").write_text(json.dumps(content))
        apply(model)

    return recorded


def _only_a_pickle(model: Model) -> None:
    name = {"model": "pytorch_model.bin"}.get(model.single.stem, "diffusion_pytorch_model.bin")
    for path in [model.index, *model.shards]:
        path.unlink()
    (model.folder / name).write_bytes(archive(model.folder.parent))


def _layers(model: Model) -> None:
    config = json.loads((model.folder / "config.json").read_text())
    key = "layers_per_block" if "layers_per_block" in config else "num_hidden_layers"
    config[key] = 10_000_000
    (model.folder / "config.json").write_text(json.dumps(config))


def _named(name: Callable[[Model], str]) -> Apply:
    """The index sends all the tensors of a shard, which is gone, to ``name``."""

    def apply(model: Model) -> None:
        shard, _ = victim(model)
        content = model.content()
        for tensor in model.tensors(shard):
            content["weight_map"][tensor] = name(model)
        model.write_index(content)
        shard.unlink()

    return apply


def _outside(model: Model) -> Path:
    return model.twin / victim(Model(model.twin, model.twin))[0].name


@dataclass(frozen=True)
class Damage:
    """``deep``: only the data shows it."""

    label: str
    apply: Apply
    deep: bool = False


KINDS: list[Damage] = [
    Damage("a shard is missing", lambda m: victim(m)[0].unlink()),
    Damage("a shard is cut short", _shard_bytes(lambda raw: raw[:-100])),
    Damage("bytes follow a shard's data", _shard_bytes(lambda raw: raw + b"PK\x03\x04")),
    Damage("a shard is empty", _holding(b"")),
    Damage(
        "a shard is a Git LFS pointer",
        _holding(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 99\n"),
    ),
    Damage("a shard is a web page", _holding(b"<!DOCTYPE html><html>Not found</html>")),
    Damage("a shard is a pickle", lambda m: victim(m)[0].write_bytes(archive(m.folder.parent))),
    Damage("a shard's header names tensors twice", _duplicate_names),
    Damage("a shard lacks a tensor that the index lists", _tensor_absent),
    Damage("a tensor is in neither shards nor index", _tensor_nowhere),
    Damage("a tensor is in two shards, with different values", _tensor_twice),
    Damage("a tensor is in a shard but not in the index", _index(lambda c, m: c["weight_map"].pop(victim(m)[1]))),
    Damage(
        "the index names the wrong shard for a tensor",
        _index(lambda c, m: c["weight_map"].update({victim(m)[1]: m.shards[0].name})),
    ),
    Damage("a tensor that the model does not have", _unexpected),
    Damage("a tensor of another shape than the model's", _other_shape),
    Damage("the last shard is missing from folder and index", _gap),
    Damage("the index has an empty weight_map", _index(lambda c, _: c.update(weight_map={}))),
    Damage("the index has no weight_map", _index(lambda c, _: c.pop("weight_map"))),
    Damage("the index is not JSON", lambda m: m.index.write_text("{")),
    Damage("the index has no metadata", _index(lambda c, _: c.pop("metadata"))),
    Damage("the index is missing", lambda m: m.index.unlink()),
    Damage("total_size is wrong", _index(lambda c, _: c["metadata"].update(total_size=1))),
    Damage("a single file of another save beside the index", _stale_single),
    Damage("another complete split beside the shards", _second_split),
    Damage("a shard name leads out: `../…`", _named(lambda m: os.path.relpath(_outside(m), m.folder))),
    Damage("a shard name is absolute", _named(lambda m: str(_outside(m)))),
    Damage(
        "a shard is a link to another folder",
        lambda m: [(shard := victim(m)[0]).unlink(), shard.symlink_to(_outside(m))],
    ),
    Damage("a shard is a dangling link", _in_place_of_the_shard(lambda path: path.symlink_to("gone"))),
    Damage("a shard is a pipe", _in_place_of_the_shard(os.mkfifo)),
    Damage("a shard is a link to /dev/zero", _in_place_of_the_shard(lambda path: path.symlink_to("/dev/zero"))),
    Damage("only a pickle that runs code", _only_a_pickle),
    Damage("config.json is not JSON", lambda m: (m.folder / "config.json").write_text("{")),
    Damage("config.json asks for ten million layers", _layers),
    Damage("a weight is NaN", _value(struct.pack("<f", float("nan"))), deep=True),
    Damage("a bit is flipped, nothing recorded", _value(None), deep=True),
    Damage("a bit is flipped, digests recorded", _recorded(_value(None)), deep=True),
    Damage(
        "a shard of another save, digests recorded",
        _recorded(lambda m: victim(m)[0].write_bytes(_outside(m).read_bytes())),
        deep=True,
    ),
]
