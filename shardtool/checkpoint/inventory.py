"""A checkpoint as one table: every tensor with its file, dtype, shape and range, sharded or not.

Only headers and the index are read. ``examine`` reports everything that is wrong, ``read_checkpoint`` refuses unless
nothing is: the union of the shards, the index and the files in the folder must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from shardtool.checkpoint.files import FileState, OpenFile
from shardtool.checkpoint.folder import WeightsFiles, choose_weights
from shardtool.checkpoint.header import Header, TensorInfo, read_header
from shardtool.checkpoint.index import Index, read_index
from shardtool.checkpoint.names import WeightsName, parse_name
from shardtool.errors import InputError, Problem


@dataclass(frozen=True)
class WeightsFile:
    """One ``.safetensors`` file: where it is, what it was like when its header was read, and that header."""

    path: Path
    state: FileState
    header: Header

    @property
    def size(self) -> int:
        """Bytes, header included."""
        return self.state.size


@dataclass(frozen=True)
class StoredTensor:
    """A tensor and the file that holds it."""

    info: TensorInfo
    file: WeightsFile

    @property
    def offset(self) -> int:
        """Where its data begins, in bytes from the start of the file."""
        return self.file.header.data_start + self.info.start


@dataclass(frozen=True)
class Checkpoint:
    """The weights of one component. ``files`` are in the order of their shards; ``index`` is ``None`` for one file."""

    folder: Path
    name: WeightsName
    files: tuple[WeightsFile, ...]
    index: Index | None

    @cached_property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """Every tensor by name, file by file in the order of its data."""
        return {info.name: StoredTensor(info, file) for file in self.files for info in file.header.tensors}

    @cached_property
    def metadata(self) -> Mapping[str, str]:
        """``__metadata__`` of all the files; where they differ, the first file's value."""
        merged: dict[str, str] = {}
        for file in self.files:
            for key, value in file.header.metadata.items():
                merged.setdefault(key, value)
        return merged

    @property
    def nbytes(self) -> int:
        """Bytes of tensor data, headers not counted."""
        return sum(info.nbytes for file in self.files for info in file.header.tensors)

    @property
    def parameters(self) -> int:
        """How many numbers the tensors hold."""
        return sum(info.elements for file in self.files for info in file.header.tensors)

    @property
    def dtypes(self) -> Mapping[str, int]:
        """Bytes by dtype, largest first."""
        sizes: Counter[str] = Counter()
        for file in self.files:
            for info in file.header.tensors:
                sizes[info.dtype] += info.nbytes
        return dict(sizes.most_common())


@dataclass(frozen=True)
class Examination:
    """What was found: ``checkpoint`` is ``None`` where too much is wrong to build the table."""

    checkpoint: Checkpoint | None
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")


def read_checkpoint(source: Path, variant: str | None = None) -> Checkpoint:
    """The checkpoint in a component folder, a ``.safetensors`` file or an index file.

    Raises ``InputError`` with every problem found, unless the headers, the index and the folder agree.
    """
    found = examine(source, variant)
    if found.errors:
        raise InputError.of_all(found.errors)
    if found.checkpoint is None:  # examine() gives a checkpoint or says why not
        raise AssertionError(source)
    return found.checkpoint


def examine(source: Path, variant: str | None = None) -> Examination:
    """Like ``read_checkpoint``, but what is wrong with the weights comes back as a list.

    Raises ``InputError`` only where there is nothing to examine: no such path, no such variant.
    """
    if source.is_dir():
        return _examine_set(source, choose_weights(source, variant))
    parsed = parse_name(source.name)
    if parsed is not None and parsed.is_index:
        return _examine_indexed(source.parent, WeightsFiles(parsed.name, indexes=(source.name,)))
    name = parsed.name if parsed is not None and not parsed.is_shard else WeightsName(source.stem)
    files, problems = _read_files(source.parent, [source.name])
    return Examination(Checkpoint(source.parent, name, files, None) if files else None, tuple(problems))


def _examine_set(folder: Path, found: WeightsFiles) -> Examination:
    if found.indexes:
        return _examine_indexed(folder, found)
    if found.single is not None:
        files, problems = _read_files(folder, [found.single])
        problems.extend(_unindexed(folder, found, indexed=()))
        return Examination(Checkpoint(folder, found.name, files, None) if files else None, tuple(problems))
    names = ", ".join(list(found.shards)[:3])
    problem = Problem(
        "index_missing",
        f"{folder}: {len(found.shards)} shards ({names} …) without the index {found.name.index}",
        str(folder),
        hint=f"rebuild it with `shardtool repair {folder}`, or fetch {found.name.index} too",
    )
    return Examination(None, (problem,))


def _examine_indexed(folder: Path, found: WeightsFiles) -> Examination:
    try:
        index = read_index(folder / found.indexes[0])
    except InputError as error:
        return Examination(None, error.problems or (error.as_problem(),))
    files, problems = _read_files(folder, _in_shard_order(index.files))
    problems.extend(_index_problems(index, files))
    problems.extend(_unindexed(folder, found, index.files))
    for extra in found.indexes[1:]:
        message = f"{folder / extra}: a second index of the same weights beside {found.indexes[0]}"
        problems.append(Problem("index_duplicate", message, str(folder / extra), hint="remove the one that is stale"))
    complete = len(files) == len(index.files)
    return Examination(Checkpoint(folder, found.name, files, index) if complete else None, tuple(problems))


def _in_shard_order(names: Iterable[str]) -> list[str]:
    def order(name: str) -> tuple[int, str]:
        parsed = parse_name(name)
        return (parsed.number if parsed and parsed.number else 0, name)

    return sorted(names, key=order)


def _read_files(folder: Path, names: Sequence[str]) -> tuple[tuple[WeightsFile, ...], list[Problem]]:
    """The files that can be read, and what is wrong with the others."""
    files: list[WeightsFile] = []
    problems: list[Problem] = []
    for name in names:
        try:
            with OpenFile(folder / name) as file:
                files.append(WeightsFile(file.path, file.state, read_header(file)))
        except InputError as error:
            missing = error.code == "file_missing"
            problems.extend([_shard_missing(error)] if missing else error.problems or [error.as_problem()])
    return tuple(files), problems


def _shard_missing(error: InputError) -> Problem:
    hint = "the download or copy is incomplete: fetch that file"
    return Problem("shard_missing", error.message, error.path, hint=hint)


def _index_problems(index: Index, files: Sequence[WeightsFile]) -> Iterable[Problem]:
    """Where the index and the shards' headers disagree."""
    holders: dict[str, list[str]] = {}
    for file in files:
        for info in file.header.tensors:
            holders.setdefault(info.name, []).append(file.path.name)
    read = {file.path.name for file in files}
    path, repair = str(index.path), "fetch the shards and the index again, from one place"
    for tensor, name in index.weight_map.items():
        where = holders.get(tensor, [])
        if not where and name in read:
            fault = f"{index.path.parent / name}: lacks tensor {tensor!r}, which {index.path.name} says it holds"
            yield Problem("tensor_absent", fault, str(index.path.parent / name), tensor, repair)
        elif where and name not in where and name in read:
            fault = f"{path}: says tensor {tensor!r} is in {name}, but {where[0]} holds it"
            yield Problem("tensor_misplaced", fault, path, tensor, "rebuild the index with `shardtool repair`")
    for tensor, where in holders.items():
        if len(where) > 1:
            fault = f"{index.path.parent / where[1]}: holds tensor {tensor!r}, which {where[0]} holds too"
            yield Problem("tensor_duplicate", fault, str(index.path.parent / where[1]), tensor, repair)
        if tensor not in index.weight_map:
            fault = f"{path}: does not list tensor {tensor!r}, which {where[0]} holds"
            yield Problem("tensor_unlisted", fault, path, tensor, "rebuild the index with `shardtool repair`")
    if len(read) == len(index.files):
        yield from _total_size_problem(index, files)


def _total_size_problem(index: Index, files: Sequence[WeightsFile]) -> Iterable[Problem]:
    """``total_size`` is optional and nobody checks it; some writers give the files' sizes instead of the tensors'."""
    total = index.metadata.get("total_size")
    tensors = sum(info.nbytes for file in files for info in file.header.tensors)
    if total is not None and total not in (tensors, sum(file.size for file in files)):
        message = f"{index.path}: total_size is {total!r:.40}, the tensors have {tensors:,} bytes"
        hint = "rebuild the index with `shardtool repair`"
        yield Problem("total_size_wrong", message, str(index.path), hint=hint, severity="warning")


def _unindexed(folder: Path, found: WeightsFiles, indexed: Sequence[str]) -> Iterable[Problem]:
    """Files of the same name beside the chosen ones: leftovers that another loader may take instead."""
    if indexed and found.single is not None and found.single not in indexed:
        message = f"{folder / found.single}: lies beside an index: diffusers takes the shards, transformers this file"
        hint = "remove the one that is stale, or write both again with `shardtool shard --overwrite`"
        yield Problem("stale_single", message, str(folder / found.single), hint=hint)
    stray = [name for name in found.shards if name not in indexed]
    for name in stray:
        what = f"is not in the index {found.indexes[0]}" if indexed else f"lies beside the single file {found.single}"
        hint = "it may be left from another save: remove it, or fetch the checkpoint again"
        yield Problem("shard_unindexed", f"{folder / name}: {what}", str(folder / name), hint=hint, severity="warning")
