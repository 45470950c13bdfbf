"""What ``shard`` and ``merge`` share: the options of a run that writes a checkpoint, and how its plan is shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from shardtool.checkpoint.job import Job, Output
from shardtool.checkpoint.write import Written
from shardtool.errors import UsageError
from shardtool.sizes import format_size
from shardtool.source import DEMO, LocalSource, parse_source

from .completion import complete_component
from .output import show, table

if TYPE_CHECKING:
    from rich.table import Table

ComponentsOpt: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--component",
        metavar="NAME",
        help="Only this component of a pipeline; may be repeated.",
        autocompletion=complete_component,
    ),
]
NoFsyncOpt: TypeAlias = Annotated[
    bool, typer.Option("--no-fsync", help="Do not wait for the disk: faster, but lost if the machine stops.")
]


def target_for(output: Path | None, source: str, ending: str) -> Path:
    """Where to write: ``output``, or ``SOURCE-ENDING`` beside a local source."""
    if output is not None:
        return output.expanduser()
    local = parse_source(source)
    if not isinstance(local, LocalSource) or source.partition(":")[0] == DEMO:
        raise UsageError(f"{source}: say where to write, with -o", code="output_missing", hint="for example -o build/x")
    path = local.path.absolute()
    name = path.name.removesuffix(".index.json").removesuffix(".safetensors")
    return path.with_name(f"{name}-{ending}")


def job_table(job: Job) -> Table:
    """The files of a job, one line each."""
    made = table("file", "tensors", "bytes", "", right=("tensors", "bytes", ""))
    for output in job.outputs:
        folder = output.part.place
        for name, plan in zip(output.filenames, output.files, strict=True):
            made.add_row(show(folder / name), f"{len(plan.items):,}", f"{plan.size:,}", format_size(plan.size))
    return made


def job_data(job: Job, target: Path, written: Written | None) -> dict[str, Any]:
    """A plan, and what was done if it was carried out, for ``--json``."""
    return {
        "source": str(job.source),
        "output": str(target),
        "dry_run": written is None,
        "checkpoints": [_output_data(output) for output in job.outputs],
        "carried_over": [other.as_posix() for other in job.others],
        "bytes": job.size,
        "moved": None if written is None else dict(written.moved),
    }


def _output_data(output: Output) -> dict[str, Any]:
    return {
        "component": output.part.place.as_posix() if output.part.place.parts else None,
        "variant": output.name.variant,
        "tensors": sum(len(plan.items) for plan in output.files),
        "index": output.name.index if output.is_sharded else None,
        "files": [
            {"name": name, "tensors": len(plan.items), "bytes": plan.size}
            for name, plan in zip(output.filenames, output.files, strict=True)
        ],
    }
