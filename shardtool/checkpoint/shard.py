"""``shard`` and ``merge``: the same tensors in other files. Decides what is written; ``write_job`` writes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shardtool.checkpoint.cast import Cast, cast_config, check_castable
from shardtool.checkpoint.config import read_config
from shardtool.checkpoint.dtypes import DTYPES
from shardtool.checkpoint.header import MAX_HEADER
from shardtool.checkpoint.inventory import Checkpoint
from shardtool.checkpoint.job import FORMAT, Job, Maker, Output
from shardtool.checkpoint.layout import FilePlan, Item
from shardtool.checkpoint.legacy_names import todays_names
from shardtool.checkpoint.move import blocks_of
from shardtool.checkpoint.names import COMPONENT_STEMS, CONFIG_NAME, WeightsName
from shardtool.checkpoint.plan import Split, plan_files, plan_like
from shardtool.checkpoint.selection import DEFAULT_VARIANT, Choice, Selected, Selection, select
from shardtool.checkpoint.sources import Sources
from shardtool.errors import InputError, RefusedError
from shardtool.events import Note


@dataclass(frozen=True)
class Shape:
    """How the result is to look: divided by ``split``, or exactly as the checkpoint at ``like`` is.

    ``cast`` changes the dtype on the way. ``keep_names``: legacy tensor names stay even where diffusers will not
    translate them.
    """

    split: Split
    like: Path | None = None
    cast: Cast | None = None
    keep_names: bool = False


def plan_job(source: str | Path, choice: Choice, shape: Shape) -> Job:
    """Decide what is written; of ``source``, a file, a component or a pipeline, headers and indexes are read.

    Raises ``InputError`` where it is damaged, and ``RefusedError`` where ``shape`` cannot be kept.
    """
    source = Path(source)
    selection = select(source, replace(choice, one_variant=shape.cast is not None))
    models = _models(shape.like, choice) if shape.like else None
    outputs = tuple(_output(part, choice, shape, models) for part in selection.parts)
    job = Job(source, outputs, selection.others, notes=tuple(_notes(selection, outputs)))
    if shape.cast is None:
        return job
    configs = {part.place / CONFIG_NAME for part in selection.parts} & set(selection.others)
    rewritten = {place: text for place in configs if (text := cast_config(source / place, shape.cast.dtype))}
    return replace(job, rewritten=rewritten, check=shape.cast.check)


def _models(like: Path, choice: Choice) -> Selection:
    """Whose divisions may be taken over; the default weights may also be divided as those of a variant are."""
    variant = None if choice.variant == DEFAULT_VARIANT else choice.variant
    return select(like, Choice(variant, components=choice.components))


def _output(part: Selected, choice: Choice, shape: Shape, models: Selection | None) -> Output:
    checkpoint = part.checkpoint
    told = _index_metadata(checkpoint)
    metadata = {**FORMAT, **{k: v for k, v in told.items() if isinstance(v, str)}, **checkpoint.metadata}
    if shape.cast is not None:
        config = read_config(checkpoint.folder) if checkpoint.name.stem in COMPONENT_STEMS else None
        check_castable(checkpoint, config.values if config else {})
    stored = list(_items(part))
    names = {} if shape.keep_names else todays_names(checkpoint.tensors, checkpoint.name)
    files = _files(part, stored, metadata, shape, models)
    if len(files) > 1 and names:
        stored = [replace(item, name=names.get(item.name, item.name)) for item in stored]
        files = _files(part, stored, metadata, shape, models)
    else:
        names = {}
    name = _result_name(checkpoint.name, choice.variant, shape.cast)
    _check_legible(part, name, files)
    return Output(
        part,
        name,
        files,
        told,
        {new: old for old, new in names.items()},
        _maker(part, stored, shape.cast, {new: old for old, new in names.items()}),
    )


def _index_metadata(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the source's index says beside the size, which is counted anew."""
    found = dict(checkpoint.index.metadata) if checkpoint.index is not None else {}
    found.pop("total_size", None)
    return found


def _items(part: Selected) -> Iterator[Item]:
    for origin, file in enumerate(part.checkpoint.files):
        for info in file.header.tensors:
            offset = None if part.content is not None else file.header.data_start + info.start
            yield Item(info.name, info.dtype, info.shape, info.nbytes, origin, offset)


def _files(
    part: Selected, stored: Sequence[Item], metadata: dict[str, str], shape: Shape, models: Selection | None
) -> tuple[FilePlan, ...]:
    items = list(stored) if shape.cast is None else shape.cast.items(stored)
    if models is None:
        try:
            return plan_files(items, metadata, shape.split)
        except RefusedError as error:
            raise RefusedError(
                f"{part.label}: {error.message}", code=error.code, tensor=error.tensor, hint=error.hint
            ) from error
    model = _model_for(part, models)
    groups = [([info.name for info in file.header.tensors], file.header.data_start) for file in model.checkpoint.files]
    return plan_like(items, metadata, groups, other=str(models.source / model.place))


def _model_for(part: Selected, models: Selection) -> Selected:
    """The checkpoint whose division ``part`` takes over: of the same component, if there are several."""
    found = [model for model in models.parts if model.place == part.place or len(models.parts) == 1]
    same = [model for model in found if model.checkpoint.name == part.checkpoint.name]
    if not found:
        raise InputError(
            f"{models.source}: has no component {part.label} whose shards could be taken over",
            code="component_absent",
            path=models.source,
            hint="choose components with --component",
        )
    return (same or found)[0]


def _result_name(name: WeightsName, variant: str | None, cast: Cast | None) -> WeightsName:
    """What the result is called. After a cast no name may promise another dtype than the file has."""
    if cast is None:
        return name
    wanted = name.variant if variant is None else None if variant == DEFAULT_VARIANT else variant
    return WeightsName(name.stem, None if DTYPES.get(wanted or "") not in (None, cast.dtype) else wanted)


def _check_legible(part: Selected, name: WeightsName, files: Sequence[FilePlan]) -> None:
    """Raises ``RefusedError`` where the result would be one that no reader takes."""
    try:
        name.index.encode("utf-8")
    except UnicodeEncodeError as error:
        path = part.checkpoint.files[0].path
        message = f"{path}: its name is no UTF-8, which an index cannot hold"
        raise RefusedError(message, code="name_not_utf8", path=path, hint="rename it first") from error
    longest = max(len(file.header) for file in files) - 8
    if longest > MAX_HEADER:
        raise RefusedError(
            f"{part.label}: a file would have a header of {longest:,} bytes; readers take {MAX_HEADER:,} at most",
            code="header_too_large",
            path=part.checkpoint.folder,
            hint="divide it into more files",
        )


def _maker(part: Selected, stored: Sequence[Item], cast: Cast | None, renamed: dict[str, str]) -> Maker | None:
    """What gives the bytes of the items that are made: read from a pickle, cast, or both."""
    if part.content is None and cast is None:
        return None
    by_name = {item.name: item for item in stored}

    def make(item: Item, sources: Sources) -> Iterator[bytes | memoryview]:
        before = by_name[item.name]
        source = sources[item.origin]
        if part.content is not None:
            blocks = part.content(renamed.get(item.name, item.name))
        elif before.offset is not None:
            blocks = blocks_of(source, before.offset, before.nbytes)
        if cast is None or not cast.applies(before):
            return blocks
        return cast.convert(item.name, before.dtype, cast.dtype, blocks)

    return make


def _notes(selection: Selection, outputs: Sequence[Output]) -> Iterator[Note]:
    for output in outputs:
        label = output.part.label
        if output.renamed:
            yield Note(
                "legacy_names",
                f"{label}: {len(output.renamed)} tensors renamed from the pre-2023 attention names, "
                "because diffusers does not translate them in shards (--keep-names leaves them)",
            )
        if output.part.content is None and any(
            "format" not in file.header.metadata for file in output.part.checkpoint.files
        ):
            yield Note("format_added", f"{label}: format: pt added to the metadata, as older loaders insist on it")
        if output.name != output.part.checkpoint.name:
            yield Note("renamed_files", f"{label}: written as {output.name.single}")
    if selection.left_out:
        names = ", ".join(str(name) for name in selection.left_out[:3])
        more = f" and {len(selection.left_out) - 3} more" if len(selection.left_out) > 3 else ""
        yield Note("left_out", f"weights of other variants or in pickles are not carried over: {names}{more}")
