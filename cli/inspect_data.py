"""``inspect --json``: a source's contents as plain data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from shardtool.checkpoint.contents import Contents, Part
from shardtool.checkpoint.summary import summarise
from shardtool.checkpoint.tree import module_tree, rows


def contents_data(text: str, contents: Contents, depth: int) -> dict[str, Any]:
    """One source. A pipeline has ``components``; a component or a file has its figures at the top level."""
    data: dict[str, Any] = {
        "source": text,
        "path": str(contents.path),
        "kind": contents.kind,
        "class": contents.class_name,
        "problems": [problem.as_json() for problem in contents.all_problems],
    }
    if contents.kind != "pipeline":
        return data | _figures(contents.parts[0], depth)
    checkpoints = [part.checkpoint for part in contents.parts if part.checkpoint]
    return data | {
        "parameters": sum(checkpoint.parameters for checkpoint in checkpoints),
        "bytes": sum(checkpoint.nbytes for checkpoint in checkpoints),
        "components": [_component(part, depth) for part in contents.parts],
    }


def _component(part: Part, depth: int) -> dict[str, Any]:
    named = {"name": part.name, "class": part.class_name, "library": part.library}
    return named | (_figures(part, depth) if part.checkpoint or part.resolution else {})


def _figures(part: Part, depth: int) -> dict[str, Any]:
    loads = asdict(part.resolution) if part.resolution else None
    if part.checkpoint is None:
        return {"loads": loads}
    summary = summarise(part.checkpoint)
    return {
        "variant": summary.variant,
        "index": summary.index,
        "tensors": summary.tensors,
        "parameters": summary.parameters,
        "bytes": summary.nbytes,
        "dtypes": dict(summary.dtypes),
        "memory": dict(summary.memory),
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
        "modules": _modules(part, depth) if depth else [],
    }


def _modules(part: Part, depth: int) -> list[dict[str, Any]]:
    assert part.checkpoint is not None  # noqa: S101 (the caller looked)
    root = module_tree((stored.info for stored in part.checkpoint.tensors.values()), depth)
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
