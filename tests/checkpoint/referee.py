"""The safetensors package as the referee: it writes what we read and reads what we write."""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from hypothesis import strategies as st
from safetensors import TensorSpec, deserialize, serialize

Tensor = tuple[str, list[int], bytes]
"""dtype as headers call it, shape of logical elements, bytes."""

WRITTEN_AS = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "I32": "int32",
    "U32": "uint32",
    "I64": "int64",
    "U64": "uint64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F4": "float4_e2m1fn_x2",
}
BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6} | {
    dtype: 64 if dtype.endswith("64") else 32 if dtype.endswith("32") else 16 if dtype.endswith("16") else 8
    for dtype in WRITTEN_AS
    if dtype != "F4"
}


def canonical(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> bytes:
    """The file that safetensors itself writes."""
    buffers = {name: ctypes.create_string_buffer(data, max(len(data), 1)) for name, (_, _, data) in tensors.items()}
    specs = {}
    for name, (dtype, shape, data) in tensors.items():
        stored = [*shape[:-1], shape[-1] // 2] if dtype == "F4" else shape
        specs[name] = TensorSpec(
            dtype=WRITTEN_AS[dtype], shape=stored, data_ptr=ctypes.addressof(buffers[name]), data_len=len(data)
        )
    return bytes(serialize(specs, metadata=dict(metadata) if metadata is not None else None))


def by_hand(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None, padding: int = 0) -> bytes:
    """A valid file as other programs write it: tensors in the order given, any padding, any dtype."""
    entries: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    position = 0
    for name, (dtype, shape, data) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + len(data)]}
        position += len(data)
    raw = json.dumps(entries).encode() + b" " * padding
    return len(raw).to_bytes(8, "little") + raw + b"".join(data for _, _, data in tensors.values())


def read(path: Path) -> dict[str, Tensor]:
    """What safetensors finds in a file."""
    found = deserialize(path.read_bytes())
    return {name: (str(entry["dtype"]), list(entry["shape"]), bytes(entry["data"])) for name, entry in found}


def read_folder(folder: Path) -> dict[str, Tensor]:
    """The union of a folder's files, by its index if there is one; no tensor may lie in two files."""
    indexes = list(folder.glob("*.index.json"))
    if not indexes:
        (single,) = folder.glob("*.safetensors")
        return read(single)
    weight_map = json.loads(indexes[0].read_text(encoding="utf-8"))["weight_map"]
    files = sorted(folder.glob("*.safetensors"))
    assert {path.name for path in files} == set(weight_map.values())
    union: dict[str, Tensor] = {}
    for path in files:
        found = read(path)
        assert found, f"{path.name} is empty"
        assert all(weight_map[name] == path.name for name in found)
        assert not union.keys() & found.keys()
        union |= found
    assert union.keys() == weight_map.keys()
    return union


def tree_sums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below ``folder``."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda name: name != "__metadata__"
)


@st.composite
def tensor(draw: st.DrawFn, dtypes: tuple[str, ...]) -> Tensor:
    """A small tensor: scalars, empty ones and odd sides included; below eight bits, whole bytes of elements."""
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(st.lists(st.integers(0, 5), max_size=3))
    if BITS[dtype] < 8:
        shape = [*shape, 4 * draw(st.integers(0, 3))]
    if draw(st.integers(0, 9)) == 0:
        shape = [draw(st.integers(0, 3)), 4 * draw(st.integers(100, 9000))]
    elements = 1
    for side in shape:
        elements *= side
    size = elements * BITS[dtype] // 8
    seed = draw(st.integers(0, 2**32 - 1)).to_bytes(4, "little")
    return dtype, shape, (hashlib.shake_128(seed).digest(size) if size else b"")


def checkpoints(dtypes: tuple[str, ...] = tuple(WRITTEN_AS)) -> st.SearchStrategy[dict[str, Tensor]]:
    return st.dictionaries(names, tensor(dtypes), min_size=1, max_size=20)


metadata = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3)
