"""How a folder can be made whole again without guessing: an index rebuilt from headers, stale files left out.

Decided from headers and indexes alone. Nothing is invented: where a tensor is missing, where two splits are complete,
or where it cannot be told which of two files is the stale one, the repair is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from shardtool.checkpoint.agreement import numbering_problems
from shardtool.checkpoint.compare import compare
from shardtool.checkpoint.folder import WeightsFiles, choose_weights, kind_of, read_pipeline, weights_in
from shardtool.checkpoint.header import Header
from shardtool.checkpoint.index import Index, read_index, render_index
from shardtool.checkpoint.inventory import examine, read_file
from shardtool.checkpoint.links import check_link
from shardtool.checkpoint.names import COMPONENT_STEMS, WeightsName
from shardtool.checkpoint.reading import TensorReader
from shardtool.errors import InputError, Problem, UsageError


@dataclass(frozen=True)
class Repair:
    """What makes one checkpoint of a folder whole: ``drop`` these files, and write ``index`` under ``index_name``.

    ``keep`` are its weights files. ``done`` says in words what the repair does; empty where nothing is wrong.
    """

    name: WeightsName
    keep: tuple[str, ...]
    drop: tuple[str, ...]
    index_name: str | None
    index: bytes | None
    done: tuple[str, ...]

    @property
    def is_needed(self) -> bool:
        return bool(self.done)


def plan_repairs(folder: Path, variant: str | None = None) -> tuple[Repair, ...]:
    """A repair for the ``variant``'s weights in a component folder, or for each there is.

    Raises ``InputError`` where a checkpoint cannot be made whole from what is there, with every reason.
    """
    if variant is not None:
        return (_plan(folder, choose_weights(folder, variant)),)
    found = [files for name, files in weights_in(folder).items() if name.stem in COMPONENT_STEMS]
    return tuple(_plan(folder, files) for files in found or [choose_weights(folder)])


def plan_source(source: str | Path, variant: str | None = None) -> dict[PurePath, tuple[Repair, ...]]:
    """The repairs of a component, or of every component of a pipeline that has weights, by their relative folder.

    Raises ``UsageError`` for a single file, and ``InputError`` as ``plan_repairs`` does.
    """
    source = Path(source)
    kind = kind_of(source)
    if kind == "file":
        raise UsageError(
            f"{source}: is a file; what can be repaired is a folder with shards",
            code="not_a_folder",
            hint=f"name the folder: {source.parent}",
        )
    if kind == "component":
        return {PurePath(): plan_repairs(source, variant)}
    pipeline = read_pipeline(source)
    return {PurePath(name): plan_repairs(pipeline.folder(name), variant) for name in pipeline.with_weights()}


def _plan(folder: Path, found: WeightsFiles) -> Repair:
    seen = _Seen(folder, found)
    shards = seen.chosen_split()
    if shards is None:
        return _keep_single(seen)
    _refuse_absent(seen, shards)
    drop = sorted({*found, *seen.headers} - {found.name.index, *shards})
    done = [f"left out {name}: {_why(name, found)}" for name in drop]
    if found.single in drop and found.single is not None:
        _require_same(seen, shards)
    index, changes = _rebuilt(seen, shards)
    return Repair(found.name, shards, tuple(drop), found.name.index if index else None, index, (*changes, *done))


class _Seen:
    """What a look into the folder gave: indexes and headers as far as they can be read, and what is wrong."""

    def __init__(self, folder: Path, found: WeightsFiles) -> None:
        self.folder = folder
        self.found = found
        self.problems: list[Problem] = []
        self.index = self._read_index()
        names = dict.fromkeys((*found.shards, *(self.index.files if self.index else ())))
        self.headers: dict[str, Header] = {}
        for name in (*names, *([found.single] if found.single else [])):
            try:
                check_link(folder, folder / name)
                self.headers[name] = read_file(folder / name).header
            except InputError as error:
                self.problems.extend(error.as_problems())

    def _read_index(self) -> Index | None:
        for name in self.found.indexes:
            try:
                check_link(self.folder, self.folder / name)
                return read_index(self.folder / name)
            except InputError as error:
                self.problems.extend(error.as_problems())
        return None

    def chosen_split(self) -> tuple[str, ...] | None:
        """The shards that are the checkpoint, or ``None`` where it is the single file."""
        if self.index is not None and self._is_split(self.index.files) and not self._has_gap(self.index):
            return self.index.files
        complete = [files for files in self._numbered() if self._is_split(files)]
        if self.found.single in self.headers and (self.index is None or not complete):
            return None
        if len(complete) == 1:
            return complete[0]
        raise self.refusal(complete)

    def _is_split(self, names: Sequence[str]) -> bool:
        """Whether the files can all be read and hold each tensor once."""
        if not names or not all(name in self.headers for name in names):
            return False
        tensors = [info.name for name in names for info in self.headers[name].tensors]
        return len(tensors) == len(set(tensors))

    def _has_gap(self, index: Index) -> bool:
        return any(problem.code == "numbering_gap" for problem in numbering_problems(index, self.found))

    def _numbered(self) -> Iterator[tuple[str, ...]]:
        """Each set of shards in the folder whose numbers run from 1 to their count."""
        splits: dict[int, dict[int, list[str]]] = {}
        for name, parsed in self.found.shards.items():
            if parsed.number is not None and parsed.count is not None:
                splits.setdefault(parsed.count, {}).setdefault(parsed.number, []).append(name)
        for count, numbers in sorted(splits.items()):
            if len(numbers) == count and all(len(names) == 1 for names in numbers.values()):
                yield tuple(numbers[number][0] for number in sorted(numbers))

    def refusal(self, complete: Sequence[tuple[str, ...]]) -> InputError:
        if len(complete) > 1:
            message = f"{self.folder}: {len(complete)} complete splits, and no index that says which one is meant"
            hint = f"move one of them away: {complete[0][0]} … or {complete[1][0]} …"
            return InputError(message, code="repair_ambiguous", path=self.folder, hint=hint)
        reason = "data is missing: no set of shards is complete, readable and free of duplicates"
        return InputError(
            f"{self.folder}: cannot be repaired: {reason}",
            code="repair_impossible",
            path=self.folder,
            hint="fetch what is missing; `shardtool verify` lists it",
            problems=self.problems,
        )


def _refuse_absent(seen: _Seen, shards: Sequence[str]) -> None:
    """The index may be wrong about where a tensor is, but not about which tensors there are."""
    held = {info.name for name in shards for info in seen.headers[name].tensors}
    listed = seen.index.weight_map if seen.index else {}
    absent = [
        Problem("tensor_absent", f"{seen.folder}: tensor {name!r:.200} is in none of the shards", tensor=name)
        for name in listed
        if name not in held
    ]
    if absent:
        raise InputError(
            f"{seen.folder}: cannot be repaired: the shards lack {len(absent)} of the tensors that the index lists",
            code="repair_impossible",
            path=seen.folder,
            tensor=absent[0].tensor,
            hint="fetch the shards and the index again; if the index alone is wrong, move it away and repair again",
            problems=absent,
        )


def _why(name: str, found: WeightsFiles) -> str:
    if name in found.indexes:
        return "a second or older index"
    return "the same tensors as the shards" if name == found.single else "no part of the checkpoint"


def _require_same(seen: _Seen, shards: Sequence[str]) -> None:
    """A single file beside an index may go only where it holds the same bits: diffusers and transformers differ."""
    single = seen.folder / str(seen.found.single)
    split = examine(seen.folder / seen.found.indexes[0]).checkpoint if seen.found.indexes else None
    other = examine(single).checkpoint
    if split is not None and other is not None and set(shards) == {file.path.name for file in split.files}:
        with TensorReader() as reader:
            if all(pair.kind == "same" for pair in compare(split, other, reader)):
                return
    raise InputError(
        f"{single}: lies beside an index and holds other weights than the shards; which one is stale cannot be told",
        code="repair_ambiguous",
        path=single,
        hint="move the stale one away and repair again; diffusers would load the shards, transformers this file",
    )


def _keep_single(seen: _Seen) -> Repair:
    """The single file is whole: an index that names missing shards, and lone shards, are leftovers of another save."""
    single = seen.found.single
    if single is None or single not in seen.headers:
        raise seen.refusal(())
    held = {info.name for info in seen.headers[single].tensors}
    if seen.index is not None and set(seen.index.weight_map) != held:
        raise InputError(
            f"{seen.folder}: {single} is whole but holds other tensors than the index lists, whose shards are missing",
            code="repair_ambiguous",
            path=seen.folder,
            hint=f"if {single} is the model, move {seen.index.path.name} away",
        )
    drop = sorted(set(seen.found) - {single})
    done = tuple(f"left out {name}: {single} is the whole model" for name in drop)
    return Repair(seen.found.name, (single,), tuple(drop), None, None, done)


def _rebuilt(seen: _Seen, shards: Sequence[str]) -> tuple[bytes | None, tuple[str, ...]]:
    """The index of ``shards``, and why it is written; ``None`` where the one that is there is right."""
    weight_map = {info.name: name for name in shards for info in seen.headers[name].tensors}
    total = sum(info.nbytes for name in shards for info in seen.headers[name].tensors)
    old: Mapping[str, Any] = seen.index.metadata if seen.index else {}
    name = seen.found.name.index
    written = render_index(weight_map, total_size=total, metadata=old)
    if seen.index is None or seen.index.path.name != name:
        return written, (f"wrote {name} from the headers of {len(shards)} shards",)
    moved = sum(seen.index.weight_map.get(tensor) != file for tensor, file in weight_map.items())
    changes = [f"corrected {moved} {'entry' if moved == 1 else 'entries'} of {name}"] if moved else []
    if old.get("total_size") != total:
        changes.append(f"set total_size to {total:,} (was {old.get('total_size')!r:.40})")
    return (written, tuple(changes)) if changes else (None, ())
