"""What ``shard`` and ``merge`` share: the options of a run that writes a checkpoint, and how it is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from shardtool.checkpoint.folder import PICKLE_SUFFIXES
from shardtool.checkpoint.guard import as_file, check_kind, check_separate, room_for
from shardtool.checkpoint.job import Job
from shardtool.checkpoint.job import Output as Planned
from shardtool.checkpoint.needed import Wanted
from shardtool.checkpoint.selection import DEFAULT_VARIANT, Choice
from shardtool.checkpoint.target import check_target
from shardtool.checkpoint.write import Manner, Written, write_job
from shardtool.errors import RefusedError, UsageError
from shardtool.events import Listener, Note
from shardtool.obtain import fetched, outline_of
from shardtool.sizes import format_size
from shardtool.source import DEMO, HubSource, LocalSource, Outline, parse_source

from .completion import complete_component
from .output import Output, show, table

if TYPE_CHECKING:
    from shardtool.pickles import PickleReader

ComponentsOpt: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--component",
        metavar="NAME",
        help="Only this component of a pipeline; may be repeated.",
        autocompletion=complete_component,
    ),
]
DigestsOpt: TypeAlias = Annotated[
    bool, typer.Option("--digests", help="Record a SHA-256 of each tensor, and print a fingerprint.")
]
VerifyOpt: TypeAlias = Annotated[
    bool, typer.Option("--verify", help="Read what was written again and compare it, bit for bit.")
]
NoFsyncOpt: TypeAlias = Annotated[
    bool, typer.Option("--no-fsync", help="Do not wait for the disk: faster, but lost if the machine stops.")
]
AllowPickleOpt: TypeAlias = Annotated[
    bool, typer.Option("--allow-pickle", help="Read .bin, .pt and .ckpt too; nothing in them is run.")
]

_WAYS = {
    "reflink": "shared with the source",
    "copy_file_range": "copied",
    "read_write": "copied",
    "converted": "converted",
}


def pickle_reader() -> PickleReader:
    """What reads pickled weights; torch is imported only here."""
    from shardtool.pickles import PickleReader

    return PickleReader()


def what_of(
    source: LocalSource | HubSource,
    variant: str | None,
    components: list[str] | None,
    read_pickle: PickleReader | None,
    *,
    cast: bool = False,
) -> tuple[Choice, Wanted]:
    """What of the source is written, and what of it must be here for that.

    For a ``cast``, ``variant`` names the result. Of a local source each variant is written, of one on the Hub only that
    which was fetched, whatever else the cache holds.
    """
    if variant is None and not cast and isinstance(source, HubSource):
        variant = DEFAULT_VARIANT
    fetched_variant = None if cast or variant == DEFAULT_VARIANT else variant
    return (
        Choice(variant, components=components or (), read_pickle=read_pickle),
        Wanted(fetched_variant, components, pickles=read_pickle is not None, or_default=True),
    )


def brought_here(
    source: LocalSource | HubSource, wanted: Wanted, *, dry_run: bool, offline: bool, on_event: Listener
) -> AbstractContextManager[Outline]:
    """What is wanted of the source on this machine; for a dry run an outline, without its weights."""
    if dry_run:
        return outline_of(source, wanted, offline=offline, on_event=on_event)
    return nullcontext(Outline(fetched(source, wanted, offline=offline, on_event=on_event)))


def target_for(output: Path | None, source: str, ending: str) -> Path:
    """Where to write: ``output``, or ``SOURCE-ENDING`` beside a local source."""
    if output is not None:
        return output.expanduser()
    local = parse_source(source)
    if not isinstance(local, LocalSource) or source.partition(":")[0] == DEMO:
        raise UsageError(
            f"{source}: say where to write", code="output_missing", hint=f"add -o FOLDER, such as -o {DEMO}-{ending}"
        )
    path = local.path if local.path.name not in ("", "..") else local.path.resolve()
    name = path.name if path.is_dir() else path.name.removesuffix(".index.json")
    for suffix in (".safetensors", *PICKLE_SUFFIXES) if not path.is_dir() else ():
        name = name.removesuffix(suffix)
    return path.with_name(f"{name}-{ending}")


@dataclass(frozen=True)
class Outcome:
    """What a run did or would do: ``data`` for ``--json``, ``line`` for people."""

    job: Job
    target: Path
    data: dict[str, Any]
    line: str


def carry_out(
    out: Output, job: Job, target: Path, manner: Manner, *, dry_run: bool, download: int | None, on_event: Listener
) -> Outcome:
    """Write the job, or look at what would be written; of its source so many bytes are still to be downloaded."""
    for note in job.notes:
        out.note(note)
    if dry_run and download is not None:
        return _from_the_hub(_preview(out, job, target, manner, here=False), download)
    if dry_run:
        return _preview(out, job, target, manner)
    written = write_job(job, target, manner, on_event=on_event)
    data = {**_job_data(job, target, written), "dry_run": False}
    return Outcome(job, target, data, _summary(job, written, manner))


def show_outcome(out: Output, outcome: Outcome, **more: Any) -> None:
    """Print the files of the job, one line each (when quiet, where they are), and the fingerprints that are known."""
    out.say(outcome.line)
    made = table("file", "tensors", "bytes", right=("tensors", "bytes"))
    for output in outcome.job.outputs:
        for name, plan in zip(_filenames(outcome.job, output, outcome.target), output.files, strict=True):
            made.add_row(show(output.part.place / name), f"{len(plan.items):,}", f"{plan.size:,}")
    checkpoints = outcome.data["checkpoints"]
    prints = [
        f"fingerprint{f' of {show(output.part.label)}' if len(checkpoints) > 1 else ''}: {entry['fingerprint']}"
        for output, entry in zip(outcome.job.outputs, checkpoints, strict=True)
        if entry["fingerprint"]
    ]
    written = show(outcome.target) if out.quiet and not outcome.data["dry_run"] else made
    out.result({**outcome.data, **more}, written, *prints)


def _filenames(job: Job, output: Planned, target: Path) -> Sequence[str]:
    return (target.name,) if as_file(job, target) else output.filenames


def _preview(out: Output, job: Job, target: Path, manner: Manner, *, here: bool = True) -> Outcome:
    check_separate(job, target)
    check_kind(job, target)
    check_target(target, overwrite=True)
    try:
        check_target(target, overwrite=manner.overwrite)
    except RefusedError as error:
        out.note(Note(error.code, f"{error.message}: --overwrite will be needed", warning=True))
    room = room_for(job, target, here=here)
    if room.needed > room.free:
        out.note(Note("disk", f"{room.folder} has {format_size(room.free)} free, which is too little", warning=True))
    way = "sharing its blocks with the source" if room.shared else "copying"
    plan = {"way": "reflink" if room.shared else "copy", "needed": room.needed, "free": room.free}
    return Outcome(
        job,
        target,
        {**_job_data(job, target), **plan, "dry_run": True},
        f"would write {format_size(job.size)} to {target}, {way}; needs {format_size(room.needed)}",
    )


def _from_the_hub(outcome: Outcome, download: int) -> Outcome:
    """The plan for a source of which headers alone are here: in its own name, and with what is still to come."""
    from shardtool.hub.naming import named_as_on_hub

    data = named_as_on_hub({**outcome.data, "download": download})
    return replace(outcome, data=data, line=f"would download {format_size(download)} first; {outcome.line}")


def _summary(job: Job, written: Written, manner: Manner) -> str:
    files = sum(len(output.files) for output in job.outputs)
    moved: Counter[str] = Counter()
    for way, count in written.moved.items():
        moved[_WAYS[way]] += count
    ways = ", ".join(f"{format_size(count)} {way}" for way, count in moved.most_common() if count) or "nothing to copy"
    more = "; read again, and equal to the source" if manner.verify else ""
    return f"wrote {files} weights file{'s' if files != 1 else ''} to {written.target} ({ways}{more})"


def _job_data(job: Job, target: Path, written: Written | None = None) -> dict[str, Any]:
    prints = written.fingerprints if written else [None] * len(job.outputs)
    return {
        "source": str(job.source),
        "output": str(target),
        "checkpoints": [
            _output_data(output, _filenames(job, output, target), fingerprint)
            for output, fingerprint in zip(job.outputs, prints, strict=True)
        ],
        "carried_over": [other.as_posix() for other in job.others],
        "bytes": job.size,
        "moved": dict(written.moved) if written else None,
        "notes": [{"code": note.code, "message": note.text} for note in job.notes],
    }


def _output_data(output: Planned, names: Sequence[str], fingerprint: str | None) -> dict[str, Any]:
    return {
        "component": output.part.place.as_posix() if output.part.place.parts else None,
        "variant": output.name.variant,
        "tensors": len(output.items),
        "index": output.name.index if output.is_sharded else None,
        "files": [
            {"name": name, "tensors": len(plan.items), "bytes": plan.size}
            for name, plan in zip(names, output.files, strict=True)
        ],
        "renamed": dict(output.renamed),
        "fingerprint": fingerprint,
    }
