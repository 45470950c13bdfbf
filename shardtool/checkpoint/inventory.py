"""A checkpoint as one table: every tensor with its file, dtype, shape and range, sharded or not.

Only headers and the index are read. ``examine`` reports everything that is wrong, ``read_checkpoint`` refuses unless
nothing is: the union of the shards, the index and the files in the folder must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from shardtool.checkpoint.agreement import beside_problems, index_problems, numbering_problems
from shardtool.checkpoint.config import config_problems
from shardtool.checkpoint.files import FileState, OpenFile
from shardtool.checkpoint.folder import WeightsFiles, choose_weights
from shardtool.checkpoint.header import Header, TensorInfo, read_header
from shardtool.checkpoint.index import Index, read_index, rebuild_hint
from shardtool.checkpoint.links import check_link
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
    """What was found: ``checkpoint`` is ``None`` where too much is wrong to build the table.

    ``files`` are all that belong to it, by name; ``None`` where one is missing or its header cannot be read.
    """

    checkpoint: Checkpoint | None
    problems: tuple[Problem, ...]
    files: Mapping[str, WeightsFile | None] = field(default_factory=dict)

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")


def read_checkpoint(source: str | Path, variant: str | None = None) -> Checkpoint:
    """The checkpoint in a component folder, a ``.safetensors`` file or an index file.

    Raises ``InputError`` with every problem found, unless the headers, the index and the folder agree.
    """
    found = examine(source, variant)
    if found.errors:
        raise InputError.of_all(found.errors)
    if found.checkpoint is None:  # examine() gives a checkpoint or says why not
        raise AssertionError(source)
    return found.checkpoint


def examine(source: str | Path, variant: str | None = None) -> Examination:
    """Like ``read_checkpoint``, but what is wrong with the weights comes back as a list.

    Raises ``InputError`` only where there is nothing to examine: no such path, no such variant.
    """
    source = Path(source)
    if source.is_dir():
        return examine_weights(source, choose_weights(source, variant))
    parsed = parse_name(source.name)
    if parsed is not None and parsed.is_index:
        return _examine_indexed(source.parent, WeightsFiles(parsed.name, indexes=(source.name,)))
    name = parsed.name if parsed is not None and not parsed.is_shard else WeightsName(source.stem)
    # A link that the user names is followed: it is what was asked for.
    files, problems = _read_files(source.parent, [source.name], contained=False)
    return _examination(source.parent, name, files, None, problems)


def examine_weights(folder: Path, found: WeightsFiles) -> Examination:
    """``examine`` for one of the sets of weights that ``weights_in(folder)`` gives; the config is judged too."""
    examined = _examine_set(folder, found)
    return replace(examined, problems=(*examined.problems, *_config_problems(folder, examined.checkpoint)))


def _examine_set(folder: Path, found: WeightsFiles) -> Examination:
    if found.indexes:
        return _examine_indexed(folder, found)
    if found.single is not None:
        files, problems = _read_files(folder, [found.single])
        problems.extend(beside_problems(folder, found, indexed=()))
        return _examination(folder, found.name, files, None, problems)
    files, problems = _read_files(folder, _in_shard_order(found.shards))
    names = ", ".join(list(found.shards)[:3]) + (" …" if len(found.shards) > 3 else "")
    problem = Problem(
        "index_missing",
        f"{folder}: {len(found.shards)} shards ({names}) without the index {found.name.index}",
        str(folder),
        hint=f"{rebuild_hint(folder)}, or fetch {found.name.index} too",
    )
    return Examination(None, (problem, *problems), files)


def _examination(
    folder: Path,
    name: WeightsName,
    files: Mapping[str, WeightsFile | None],
    index: Index | None,
    problems: list[Problem],
) -> Examination:
    readable = tuple(file for file in files.values() if file)
    checkpoint = Checkpoint(folder, name, readable, index) if len(readable) == len(files) else None
    return Examination(checkpoint, tuple(problems), files)


def _config_problems(folder: Path, checkpoint: Checkpoint | None) -> list[Problem]:
    if checkpoint is None:
        return config_problems(folder, tensors=0, parameters=0)
    return config_problems(folder, tensors=len(checkpoint.tensors), parameters=checkpoint.parameters)


def _examine_indexed(folder: Path, found: WeightsFiles) -> Examination:
    path = folder / found.indexes[0]
    try:
        check_link(folder, path)
        index = read_index(path)
    except InputError as error:
        return Examination(None, error.as_problems())
    files, problems = _read_files(folder, _in_shard_order(index.files))
    readable = {name: file for name, file in files.items() if file}
    headers = {name: file.header for name, file in readable.items()}
    problems.extend(index_problems(index, headers, {name: file.size for name, file in readable.items()}))
    problems.extend(numbering_problems(index, found))
    problems.extend(beside_problems(folder, found, index.files))
    return _examination(folder, found.name, files, index, problems)


def _in_shard_order(names: Iterable[str]) -> list[str]:
    def order(name: str) -> tuple[int, str]:
        parsed = parse_name(name)
        return (parsed.number if parsed and parsed.number else 0, name)

    return sorted(names, key=order)


def _read_files(
    folder: Path, names: Sequence[str], *, contained: bool = True
) -> tuple[dict[str, WeightsFile | None], list[Problem]]:
    """The files by name, and what is wrong with those that cannot be read."""
    files: dict[str, WeightsFile | None] = dict.fromkeys(names)
    problems: list[Problem] = []
    for name in names:
        try:
            if contained:
                check_link(folder, folder / name)
            files[name] = read_file(folder / name)
        except InputError as error:
            missing = error.code == "file_missing"
            problems.extend([_shard_missing(error)] if missing else error.as_problems())
    return files, problems


def read_file(path: Path) -> WeightsFile:
    """The file at ``path``, by its header. Raises ``InputError`` with every problem found."""
    with OpenFile(path) as file:
        return WeightsFile(path, file.state, read_header(file))


def _shard_missing(error: InputError) -> Problem:
    hint = "the download or copy is incomplete: fetch that file, or write the checkpoint again"
    return Problem("shard_missing", error.message, error.path, hint=hint)
