"""What is odd and valid, and must be accepted; warnings are named where there is something to say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.corpus.base import (
    INDEX,
    NAMES,
    SINGLE,
    component,
    held,
    index_of,
    read_index,
    shard_name,
    weights_file,
    with_index,
    write_component,
    write_index,
)
from tests.corpus.case import Case, Make, accept, raw_file, tensor

BITS: Mapping[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
"""Every dtype of the format with its bits, as its documentation has them."""


def _of_every_dtype(dtype: str, bits: int) -> Make:
    return raw_file({"a": tensor(dtype, (2, 4), (0, bits))}, bytes(bits))


def _named(name: str) -> Make:
    return raw_file(json.dumps({name: tensor()}, ensure_ascii=False))


def _unchanged(folder: Path) -> None:
    """Nothing is wrong."""


def _many(folder: Path) -> Path:
    path = folder / "x.safetensors"
    path.write_bytes(weights_file({f"blocks.{number}.weight": 1 for number in range(10_000)}))
    return path


def _renamed_shards(folder: Path) -> None:
    """Names that nobody writes, with an index that knows them."""
    names = ["a.safetensors", "a b.safetensors", "model.safetensors-00001-of-00002.safetensors"]
    for number, name in enumerate(names, 1):
        (folder / shard_name(number)).rename(folder / name)
    write_index(folder, index_of({name: held(number) for number, name in enumerate(names, 1)}))


def _counted_from_zero(folder: Path) -> None:
    names = [f"diffusion_pytorch_model-{number:05d}-of-00003.safetensors" for number in range(3)]
    for number, name in enumerate(names, 1):
        (folder / shard_name(number)).rename(folder / name)
    write_index(folder, index_of({name: held(number) for number, name in enumerate(names, 1)}))


def _old_spelling(folder: Path) -> None:
    names = [f"diffusion_pytorch_model-{number:05d}-of-00003.fp16.safetensors" for number in (1, 2, 3)]
    (folder / INDEX).unlink()
    for number, name in enumerate(names, 1):
        (folder / shard_name(number)).rename(folder / name)
    content = index_of({name: held(number) for number, name in enumerate(names, 1)})
    write_index(folder, content, "diffusion_pytorch_model.safetensors.fp16.index.json")


def _of_another_variant(folder: Path) -> None:
    names = [f"diffusion_pytorch_model.fp16-{number:05d}-of-00003.safetensors" for number in (1, 2, 3)]
    for number, name in enumerate(names, 1):
        (folder / shard_name(number)).rename(folder / name)
    write_index(folder, index_of({name: held(number) for number, name in enumerate(names, 1)}))


def _second_split(folder: Path) -> None:
    """The remains of another save, complete."""
    for number, held_there in ((1, held(1)), (2, {**held(2), **held(3)})):
        (folder / shard_name(number, 2)).write_bytes(weights_file(held_there))


def _one_file(folder: Path) -> None:
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    (folder / SINGLE).write_bytes(weights_file(dict.fromkeys(NAMES, 4)))


def _one_file_of_a_variant(folder: Path) -> None:
    (folder / "diffusion_pytorch_model.fp16.safetensors").write_bytes(weights_file(dict.fromkeys(NAMES, 4)))


def _left_shards(folder: Path) -> None:
    (folder / INDEX).unlink()
    (folder / SINGLE).write_bytes(weights_file(dict.fromkeys(NAMES, 4)))


def _of_file_sizes(folder: Path) -> None:
    content = read_index(folder)
    content["metadata"]["total_size"] = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    write_index(folder, content)


def _swapped(folder: Path) -> None:
    (folder / shard_name(1)).write_bytes(weights_file(held(2)))
    (folder / shard_name(2)).write_bytes(weights_file(held(1)))
    write_index(folder, index_of({shard_name(1): held(2), shard_name(2): held(1), shard_name(3): held(3)}))


def _linked_inside(folder: Path) -> None:
    (folder / "files").mkdir()
    (folder / shard_name(2)).rename(folder / "files" / "two")
    (folder / shard_name(2)).symlink_to("files/two")


def _hub_cache(folder: Path) -> Path:
    """A component as the Hub's cache lays it out: every file is a link into the repo's blobs."""
    repo = folder / "models--org--name"
    made = write_component(repo / "snapshots" / ("a" * 40) / "unet")
    (repo / "blobs").mkdir()
    for number, path in enumerate(sorted(made.iterdir())):
        path.rename(repo / "blobs" / f"{number:064x}")
        path.symlink_to(f"../../../blobs/{number:064x}")
    return made


def _link_to_a_cache(folder: Path) -> Path:
    (folder / "mine").symlink_to(_hub_cache(folder))
    return folder / "mine"


def _link_to_folder(folder: Path) -> Path:
    write_component(folder / "real")
    (folder / "unet").symlink_to("real")
    return folder / "unet"


def _link_to_file(folder: Path) -> Path:
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "real").write_bytes(weights_file(held(1)))
    (folder / "here").mkdir()
    (folder / "here" / "x.safetensors").symlink_to("../elsewhere/real")
    return folder / "here" / "x.safetensors"


def _index_as_source(folder: Path) -> Path:
    return write_component(folder / "unet") / INDEX


def _shard_as_source(folder: Path) -> Path:
    return write_component(folder / "unet") / shard_name(2)


_NAMES: dict[str, str] = {
    "empty": "",
    "ansi": "\x1b[31mred\x1b[0m",
    "clear-screen": "\x1b[2J\x1b[H",
    "title": "\x1b]0;owned\x07",
    "bidi": "a\u202eb",
    "newline": "a\nerror: fake",
    "carriage-return": "a\rb",
    "backspace": "abc\b\b\b",
    "markup": "[bold red]a[/bold red] [/x]",
    "path": "../../etc/passwd",
    "emoji": "🦆.weight",
    "chinese": "权重.weight",
    "combining": "e\u0301\u0301\u0301",
    "nul": "a\0b",
    "dots": "..a...b..",
    "long": "x" * 10_000,
    "like-metadata": "__metadata__ ",
    "percent": "%s %n {0} {name}",
}

CASES: list[Case] = [
    *(accept(f"dtype-{dtype}", _of_every_dtype(dtype, bits)) for dtype, bits in BITS.items()),
    *(accept(f"name-{label}", raw_file(json.dumps({name: tensor()}))) for label, name in _NAMES.items()),
    accept("name-not-escaped", _named("é🦆")),
    accept("no-tensors", raw_file({}, b"")),
    accept("scalar", raw_file({"a": tensor(shape=(), offsets=(0, 4))}, bytes(4))),
    accept("empty-tensor", raw_file({"a": tensor(shape=(0,), offsets=(0, 0))}, b"")),
    accept("empty-tensor-of-large-sides", raw_file({"a": tensor(shape=(0, 2**40), offsets=(0, 0))}, b"")),
    accept(
        "empty-tensor-in-between",
        raw_file({"a": tensor(), "b": tensor(shape=(0,), offsets=(8, 8)), "c": tensor(offsets=(8, 16))}, bytes(16)),
    ),
    accept("forty-sides", raw_file({"a": tensor(shape=(1,) * 40, offsets=(0, 4))}, bytes(4))),
    accept("blank-before", raw_file(" \n\t" + json.dumps({"a": tensor()}))),
    accept("blank-after", raw_file(json.dumps({"a": tensor()}) + " \n\t\r  ")),
    accept("header-of-odd-length", raw_file(json.dumps({"a": tensor()}) + " ")),
    accept("unsorted", raw_file({"b": tensor(offsets=(8, 16)), "a": tensor()}, bytes(16))),
    accept("unaligned-data", raw_file({"a": tensor("U8", (1,), (0, 1)), "b": tensor(offsets=(1, 9))}, bytes(9))),
    accept("more-fields", raw_file({"a": tensor(device="cuda", nested={"x": [1.5, None, -3]})})),
    accept("metadata-empty", raw_file({"__metadata__": {}, "a": tensor()})),
    accept("metadata-of-another-format", raw_file({"__metadata__": {"format": "mlx", "x": "\x1b[2J"}, "a": tensor()})),
    accept("ten-thousand-tensors", _many),
    accept("header-of-a-megabyte", raw_file(json.dumps({"__metadata__": {"x": "y" * 1_000_000}, "a": tensor()}))),
    accept("component", component(_unchanged)),
    accept("component-in-one-file", component(_one_file)),
    accept("component-with-variant-beside", component(_one_file_of_a_variant)),
    accept("shards-of-odd-names", component(_renamed_shards)),
    accept("shards-counted-from-zero", component(_counted_from_zero)),
    accept("shards-swapped", component(_swapped)),
    accept("shards-linked-inside", component(_linked_inside)),
    accept("index-with-more-keys", with_index(lambda c: c.update(weight_map_version=2, x=None))),
    accept("index-metadata-empty", with_index(lambda c: c.update(metadata={}))),
    accept("index-metadata-more", with_index(lambda c: c["metadata"].update(total_parameters=24, x="\x1b[2J"))),
    accept("index-of-file-sizes", component(_of_file_sizes)),
    accept("hub-cache", _hub_cache),
    accept("hub-cache-by-link", _link_to_a_cache),
    accept("folder-by-link", _link_to_folder),
    accept("file-by-link", _link_to_file),
    accept("index-as-source", _index_as_source),
    accept("shard-as-source", _shard_as_source),
    accept("other-files-beside", component(lambda f: [(f / "README.md").write_text("x"), (f / ".git").mkdir()])),
    accept("index-without-metadata", with_index(lambda c: c.pop("metadata")), "index_bare"),
    accept("index-total-size-wrong", with_index(lambda c: c["metadata"].update(total_size=1)), "total_size_wrong"),
    accept("index-total-size-text", with_index(lambda c: c["metadata"].update(total_size="96")), "total_size_wrong"),
    accept("old-spelling-of-a-variant", component(_old_spelling), "legacy_names"),
    accept("index-of-another-variant", component(_of_another_variant), "variant_mixed"),
    accept("second-split-beside", component(_second_split), "shard_unindexed"),
    accept(
        "left-shard-beside",
        component(lambda f: (f / shard_name(4, 9)).write_bytes(weights_file(held(1)))),
        "shard_unindexed",
    ),
    accept("left-shards-beside-a-single-file", component(_left_shards), "shard_unindexed"),
]
