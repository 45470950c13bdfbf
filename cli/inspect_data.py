"""``inspect --json``: a source's contents as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from shardtool.checkpoint.contents import Contents, Part
from shardtool.checkpoint.inventory import Checkpoint, StoredTensor
from shardtool.checkpoint.summary import summarise
from shardtool.checkpoint.tree import module_tree, natural_key, rows


class SortKey(StrEnum):
    """How a list of tensors is sorted."""

    NAME = "name"
    SIZE = "size"
    SHARD = "shard"


@dataclass(frozen=True)
class Shown:
    """What of a source is shown. ``filters`` are globs of tensor names, none means all; ``details`` concern images."""

    depth: int
    tensors: bool = False
    filters: tuple[str, ...] = ()
    sort: SortKey = SortKey.NAME
    metadata: bool = False
    details: bool = False

    @property
    def lists(self) -> bool:
        """Whether something is asked for that cannot stand side by side."""
        return self.tensors or self.metadata


def listed_tensors(checkpoint: Checkpoint, shown: Shown) -> Sequence[StoredTensor]:
    """The tensors that are asked for, sorted; ``shard`` is file by file in the order of the data."""
    chosen = [
        stored
        for name, stored in checkpoint.tensors.items()
        if not shown.filters or any(fnmatchcase(name, pattern) for pattern in shown.filters)
    ]
    if shown.sort is SortKey.NAME:
        return sorted(chosen, key=lambda stored: natural_key(stored.info.name))
    if shown.sort is SortKey.SIZE:
        return sorted(chosen, key=lambda stored: -stored.info.nbytes)
    return chosen


def contents_data(text: str, contents: Contents, shown: Shown) -> dict[str, Any]:
    """One source. A pipeline has ``components``; a component or a file has its figures at the top level."""
    data: dict[str, Any] = {
        "source": text,
        "path": str(contents.path),
        "kind": contents.kind,
        "class": contents.class_name,
        "problems": [problem.as_json() for problem in contents.problems],
    }
    if contents.kind != "pipeline":
        return data | _figures(contents.parts[0], shown)
    checkpoints = [part.checkpoint for part in contents.parts if part.checkpoint]
    return data | {
        "parameters": sum(checkpoint.parameters for checkpoint in checkpoints),
        "bytes": sum(checkpoint.nbytes for checkpoint in checkpoints),
        "components": [_component(part, shown) for part in contents.parts],
    }


def _component(part: Part, shown: Shown) -> dict[str, Any]:
    named = {"name": part.name, "class": part.class_name, "library": part.library}
    return named | (_figures(part, shown) if part.checkpoint or part.resolution else {})


def _figures(part: Part, shown: Shown) -> dict[str, Any]:
    loads = asdict(part.resolution) if part.resolution else None
    if part.checkpoint is None:
        return {"files": _damaged_files(part), "loads": loads}
    summary = summarise(part.checkpoint, part.quantised)
    return {
        "variant": summary.variant,
        "index": summary.index,
        "index_metadata": dict(part.checkpoint.index.metadata) if part.checkpoint.index else None,
        "tensors": summary.tensors,
        "parameters": summary.parameters,
        "bytes": summary.nbytes,
        "dtypes": dict(summary.dtypes),
        "memory": dict(summary.memory),
        "quantised": summary.quantised,
        "files": [
            {
                "name": file.name,
                "bytes": file.nbytes,
                "tensors": file.tensors,
                "parameters": file.parameters,
                "fill": round(file.fill, 4),
            }
            for file in summary.files
        ],
        "metadata": dict(summary.metadata),
        "loads": loads,
        "modules": _modules(part.checkpoint, shown.depth) if shown.depth else [],
        "tensor_list": _tensors(part.checkpoint, shown) if shown.tensors else None,
    }


def _damaged_files(part: Part) -> list[dict[str, Any]]:
    """The files of weights that do not make up a checkpoint, without figures where one is missing or unreadable."""
    return [
        {
            "name": name,
            "bytes": file.size if file else None,
            "tensors": len(file.header.tensors) if file else None,
            "parameters": sum(info.elements for info in file.header.tensors) if file else None,
            "fill": None,
        }
        for name, file in part.files.items()
    ]


def _tensors(checkpoint: Checkpoint, shown: Shown) -> list[dict[str, Any]]:
    return [
        {
            "name": stored.info.name,
            "dtype": stored.info.dtype,
            "shape": list(stored.info.shape),
            "bytes": stored.info.nbytes,
            "file": stored.file.path.name,
            "offset": stored.offset,
        }
        for stored in listed_tensors(checkpoint, shown)
    ]


def _modules(checkpoint: Checkpoint, depth: int) -> list[dict[str, Any]]:
    root = module_tree((stored.info for stored in checkpoint.tensors.values()), depth)
    path: list[str] = []
    found = []
    for level, _, module in rows(root):
        path[level:] = [module.name]
        found.append(
            {
                "module": ".".join(path),
                "alike": module.alike,
                "tensors": module.tensors,
                "parameters": module.parameters,
                "bytes": module.nbytes,
                "dtypes": sorted(module.dtypes),
            }
        )
    return found
