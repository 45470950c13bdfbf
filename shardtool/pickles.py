"""Read pickled weights (``.bin``, ``.pt``, ``.ckpt``) without running anything in them.

Heavy: imports torch. Only torch's weights-only unpickler is used, on a memory map, so that a checkpoint of any size
takes little memory. What it refuses, this refuses.
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.header import Header, TensorInfo
from shardtool.checkpoint.index import INDEX_LIMIT, Index
from shardtool.checkpoint.inventory import Checkpoint, WeightsFile
from shardtool.checkpoint.links import check_link
from shardtool.checkpoint.names import WeightsName, parse_name, parse_pickle, plain_name_fault
from shardtool.checkpoint.selection import Content
from shardtool.checkpoint.strict_json import read_json_object
from shardtool.dtypes import TORCH_STORED
from shardtool.errors import REPLACE_FILE, InputError
from shardtool.events import Note

BLOCK = 1 << 20
_STORED_AS = {kind: name for name, kind in TORCH_STORED.items()}


@dataclass
class PickleReader:
    """Reads pickled checkpoints; ``notes`` collects what of them was not taken over."""

    notes: list[Note] = field(default_factory=list)

    def __call__(self, path: Path, name: WeightsName) -> tuple[Checkpoint, Content]:
        """The checkpoint in a pickled file, or the pickled one called ``name`` in a folder.

        Tensors that share all their bytes are kept once, under the first name; the metadata of the checkpoint's index
        says which name stands for which, as huggingface_hub writes it. Raises ``InputError`` where a file is damaged,
        refused by the unpickler, or holds no tensors.
        """
        folder = path if path.is_dir() else path.parent
        index, names = _files(folder, [path.name] if folder == path.parent else _listed(folder, name))
        tensors: dict[str, torch.Tensor] = {}
        ties: dict[str, str] = {}
        files = []
        for filename in names:
            check_link(folder, folder / filename)
            found = self._tensors(folder / filename)
            tied = _ties(found)
            kept = {key: tensor for key, tensor in found.items() if key not in tied}
            files.append(_weights_file(folder / filename, kept))
            tensors |= kept
            ties |= tied
        told = Index(folder / (index or names[0]), dict.fromkeys(tensors, names[0]), ties)
        return Checkpoint(folder, name, tuple(files), told), lambda key: _blocks(tensors[key])

    def _tensors(self, path: Path) -> dict[str, torch.Tensor]:
        content = _load(path)
        inner = content.get("state_dict") if isinstance(content, Mapping) else None
        entries = inner if isinstance(inner, Mapping) else content
        if not isinstance(entries, Mapping):
            raise _fault(path, f"holds one {type(content).__name__}, no mapping of names to tensors")
        tensors = {key: value for key, value in entries.items() if isinstance(value, torch.Tensor)}
        if not tensors or not all(isinstance(key, str) for key in tensors):
            raise _fault(path, "holds no tensors by name")
        for key, tensor in tensors.items():
            if key == "__metadata__" or not _is_text(key):
                raise _fault(path, f"tensor {key!r}: safetensors can hold none of that name")
            if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
                kind = "quantised" if tensor.is_quantized else "on meta" if tensor.is_meta else str(tensor.layout)
                raise _fault(path, f"tensor {key!r} is {kind}: it holds no plain numbers, and safetensors no other")
        others = [str(key) for key in content if key not in tensors and key != "state_dict"]
        if others:
            some = ", ".join(sorted(others)[:5])
            self.notes.append(Note("not_tensors", f"{path.name}: {len(others)} entries are no tensors: {some}"))
        return tensors


def _is_text(key: str) -> bool:
    """Half a surrogate pair is none; pickles can hold it and files cannot."""
    return key.isascii() or key.encode("utf-8", "replace").decode() == key


def _listed(folder: Path, name: WeightsName) -> list[str]:
    """The files of the pickled checkpoint ``name``: its index, or the one file."""
    found = sorted(entry.name for entry in folder.iterdir() if parse_pickle(entry.name) == name)
    indexes = [entry for entry in found if entry.endswith(".json")]
    return indexes[:1] or [entry for entry in found if not _is_shard(entry)][:1] or found


def _is_shard(filename: str) -> bool:
    parsed = parse_name(filename.replace(".bin", ".safetensors", 1))
    return parsed is not None and parsed.is_shard


def _files(folder: Path, found: list[str]) -> tuple[str | None, list[str]]:
    """The index, if there is one, and the files that hold tensors."""
    if not found[0].endswith(".json"):
        if len(found) > 1:
            raise _fault(folder, f"{len(found)} pickled shards without an index")
        return None, found
    path = folder / found[0]
    weight_map = read_json_object(path, code="index_invalid", limit=INDEX_LIMIT).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(f"{path}: has no weight_map", code="index_invalid", path=path)
    for name in set(map(str, weight_map.values())):
        if not name.endswith(".bin") or plain_name_fault(name.removesuffix(".bin") + ".safetensors"):
            raise InputError(f"{path}: {name!r:.120} is no plain name of a shard", code="unsafe_path", path=path)
    return found[0], sorted(set(weight_map.values()))


def _load(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            # Unusual pickle protocols are warned of; what comes out of them is checked here.
            warnings.simplefilter("ignore")
            # Files from before torch 1.6 are no ZIP archives and cannot be mapped.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=_check_zip(path))
    except InputError:
        raise
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path}: is refused by the weights-only unpickler: {_what_it_wants(str(error))}; nothing in it was run",
            code="pickle_refused",
            path=path,
            hint="ask its author for safetensors",
        ) from error
    except Exception as error:  # torch asserts what a file should hold, and zipfile has errors of its own
        raise _fault(path, f"cannot be unpickled ({type(error).__name__})") from error


def _what_it_wants(refusal: str) -> str:
    """What was refused, out of torch's message, the rest of which is advice on how to run it all the same."""
    if found := re.search(r"GLOBAL ([\w.]{1,100})", refusal):
        return f"it asks for {found[1]}, which is no tensor"
    if found := re.search(r"operand (\d+)", refusal):
        return f"pickle operation {found[1]} makes no tensor"
    return "it holds more than tensors"


def _check_zip(path: Path) -> bool:
    """Whether the file is a ZIP archive. Raises ``InputError`` where it would unpack to more than it is."""
    with OpenFile(path) as file:
        size = file.size
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries) or sum(e.file_size for e in entries) > size:
        raise _fault(path, "is a compressed archive, which torch never writes")
    return True


def _ties(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Dropped name → kept name, for tensors that are the very same bytes in the same shape."""
    first: dict[tuple[Any, ...], str] = {}
    ties = {}
    for name in sorted(tensors):
        tensor = tensors[name]
        identity = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()) if tensor.numel() else name
        kept = first.setdefault((identity,), name)
        if kept != name:
            ties[name] = kept
    return ties


def _weights_file(path: Path, tensors: Mapping[str, torch.Tensor]) -> WeightsFile:
    """The file with a header as safetensors would have it."""
    infos, position = [], 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _STORED_AS:
            raise _fault(path, f"tensor {name!r} is {tensor.dtype}: safetensors has no such dtype")
        nbytes = tensor.numel() * tensor.element_size()
        infos.append(TensorInfo(name, _STORED_AS[tensor.dtype], tuple(tensor.shape), position, position + nbytes))
        position += nbytes
    with OpenFile(path) as file:
        return WeightsFile(path, file.state, Header(tuple(infos), {}, data_start=0))


def _blocks(tensor: torch.Tensor) -> Iterator[memoryview]:
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data
    for done in range(0, len(data), BLOCK):
        yield data[done : done + BLOCK]


def _fault(path: Path, fault: str) -> InputError:
    return InputError(f"{path}: {fault}", code="pickle_invalid", path=path, hint=REPLACE_FILE)
