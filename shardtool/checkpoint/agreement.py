"""Where an index, the shards' headers and the files in the folder disagree: every contradiction, as a problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from shardtool.checkpoint.folder import WeightsFiles
from shardtool.checkpoint.header import Header
from shardtool.checkpoint.index import Index, rebuild_hint
from shardtool.checkpoint.names import WeightsName, parse_name
from shardtool.errors import Problem

_AGAIN = "fetch the shards and the index again, from one place"


def index_problems(index: Index, headers: Mapping[str, Header], sizes: Mapping[str, int]) -> Iterable[Problem]:
    """What is wrong between ``index`` and the shards that could be read: file name → header, file name → bytes."""
    holders: dict[str, list[str]] = {}
    for filename, header in headers.items():
        for info in header.tensors:
            holders.setdefault(info.name, []).append(filename)
    yield from _listed(index, headers, holders)
    yield from _held(index, holders)
    if len(headers) == len(index.files):
        yield from _total_size(index, headers, sizes)
    if index.bare:
        message = f"{index.path}: has no metadata, without which diffusers cannot read an index"
        hint = rebuild_hint(index.path.parent)
        yield Problem("index_bare", message, str(index.path), hint=hint, severity="warning")


def _listed(index: Index, headers: Mapping[str, Header], holders: Mapping[str, list[str]]) -> Iterable[Problem]:
    """Tensors of the index that are elsewhere or nowhere; nothing is said of shards that could not be read."""
    path = str(index.path)
    for tensor, name in index.weight_map.items():
        where = holders.get(tensor, [])
        if name not in headers or name in where:
            continue
        if where:
            fault = f"{path}: says tensor {tensor!r:.200} is in {name}, but {where[0]} holds it"
            yield Problem("tensor_misplaced", fault, path, tensor, rebuild_hint(index.path.parent))
        else:
            shard = str(index.path.parent / name)
            fault = f"{shard}: lacks tensor {tensor!r:.200}, which {index.path.name} says it holds"
            yield Problem("tensor_absent", fault, shard, tensor, _AGAIN)


def _held(index: Index, holders: Mapping[str, list[str]]) -> Iterable[Problem]:
    """Tensors of the shards that stand in two of them, or in no line of the index.

    An index that lists others which no shard holds cannot be trusted to be the one of two that is wrong.
    """
    is_all_there = all(tensor in holders for tensor in index.weight_map)
    hint = rebuild_hint(index.path.parent) if is_all_there else _AGAIN
    for tensor, where in holders.items():
        if len(where) > 1:
            shard = str(index.path.parent / where[1])
            fault = f"{shard}: holds tensor {tensor!r:.200}, which {where[0]} holds too"
            yield Problem("tensor_duplicate", fault, shard, tensor, _AGAIN)
        if tensor not in index.weight_map:
            fault = f"{index.path}: does not list tensor {tensor!r:.200}, which {where[0]} holds"
            yield Problem("tensor_unlisted", fault, str(index.path), tensor, hint)


def _total_size(index: Index, headers: Mapping[str, Header], sizes: Mapping[str, int]) -> Iterable[Problem]:
    """``total_size`` is optional and nobody checks it; some writers give the files' sizes instead of the tensors'."""
    total = index.metadata.get("total_size")
    tensors = sum(info.nbytes for header in headers.values() for info in header.tensors)
    if total is not None and (isinstance(total, bool) or total not in (tensors, sum(sizes.values()))):
        message = f"{index.path}: total_size is {total!r:.40}, the tensors have {tensors:,} bytes"
        hint = rebuild_hint(index.path.parent)
        yield Problem("total_size_wrong", message, str(index.path), hint=hint, severity="warning")


def numbering_problems(index: Index, found: WeightsFiles) -> Iterable[Problem]:
    """Shards that the numbers in the names promise and the index does not name; mixed variants and old spellings.

    Names of any other form are legal: the index decides. But ``00001-of-00003`` without ``00003`` is a part of a model.
    """
    path = str(index.path)
    splits: dict[tuple[WeightsName, int], set[int]] = {}
    for filename in index.files:
        parsed = parse_name(filename)
        if parsed and parsed.number is not None and parsed.count is not None and parsed.name.stem == found.name.stem:
            splits.setdefault((parsed.name, parsed.count), set()).add(parsed.number)
    for (name, count), numbers in splits.items():
        lacking = [number for number in range(1, min(count, len(numbers) + 1) + 1) if number not in numbers]
        if lacking and len(numbers) < count:
            names = f"{len(numbers)} of the {count} shards of {name.base}"
            message = f"{path}: names only {names}; {name.shard(lacking[0], count)} is not among them"
            yield Problem("numbering_gap", message, path, hint="the checkpoint is incomplete: fetch it again")
    variants = {name.variant for name, _ in splits}
    if splits and variants != {found.name.variant}:
        named = " and ".join(sorted(variant or "default" for variant in variants))
        wanted = found.name.variant or "default"
        message = f"{path}: the index of the {wanted} weights names shards of: {named}"
        yield Problem("variant_mixed", message, path, hint="make sure that they are from one save", severity="warning")


def beside_problems(folder: Path, found: WeightsFiles, indexed: Iterable[str]) -> Iterable[Problem]:
    """Files of the same name beside the chosen ones: leftovers, which another loader may take instead."""
    indexed = set(indexed)
    if indexed and found.single is not None and found.single not in indexed:
        path = str(folder / found.single)
        message = f"{path}: lies beside an index: diffusers takes the shards, transformers this file"
        hint = "remove the one that is stale, or write both again with `shardtool shard --overwrite`"
        yield Problem("stale_single", message, path, hint=hint)
    for name in sorted(set(found.shards) - indexed):
        what = f"is not in the index {found.indexes[0]}" if indexed else f"lies beside the single file {found.single}"
        hint = "it may be left from another save: remove it, or fetch the checkpoint again"
        message = f"{folder / name}: {what}"
        yield Problem("shard_unindexed", message, str(folder / name), hint=hint, severity="warning")
    for extra in found.indexes[1:]:
        path = str(folder / extra)
        message = f"{path}: a second index of the same weights beside {found.indexes[0]}"
        yield Problem("index_duplicate", message, path, hint="remove the one that is stale")
    yield from _old_spellings(folder, found)


def _old_spellings(folder: Path, found: WeightsFiles) -> Iterable[Problem]:
    indexes = [name for name in found.indexes if (parsed := parse_name(name)) and parsed.legacy]
    old = [*indexes, *(name for name, parsed in found.shards.items() if parsed.legacy)]
    if old:
        path = str(folder / old[0])
        message = f"{path}: an older spelling of the variant in the name ({len(old)} files)"
        hint = f"`shardtool shard {folder} --variant {found.name.variant} --overwrite` writes today's names"
        yield Problem("legacy_names", message, path, hint=hint, severity="warning")
