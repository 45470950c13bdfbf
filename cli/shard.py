"""``shardtool shard``: the same tensors in files no larger than asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardtool.checkpoint.cast import Cast
from shardtool.checkpoint.dtypes import DTYPES
from shardtool.checkpoint.needed import Wanted
from shardtool.checkpoint.plan import DEFAULT_LIMIT, Split
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import Manner
from shardtool.errors import UsageError
from shardtool.events import Listener
from shardtool.obtain import outline_of
from shardtool.sizes import format_size, parse_size
from shardtool.source import parse_source

from .options import (
    DryRunOpt,
    OfflineOpt,
    OverwriteOpt,
    RevisionOpt,
    SourceArg,
    SubfolderOpt,
    VariantOpt,
)
from .output import Output
from .progress import progress
from .writing import (
    AllowPickleOpt,
    ComponentsOpt,
    DigestsOpt,
    NoFsyncOpt,
    VerifyOpt,
    brought_here,
    carry_out,
    pickle_reader,
    show_outcome,
    target_for,
    what_of,
)

if TYPE_CHECKING:
    from shardtool.casting import Casting


class CastTo(StrEnum):
    """What ``--dtype`` takes."""

    FP16 = "fp16"
    BF16 = "bf16"
    FP32 = "fp32"


def shard(
    out: Output,
    source: SourceArg,
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Where to write.  [SOURCE-sharded]")
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option(
            "--max-size", "--max-shard-size", metavar="SIZE", help="The limit for a file, header included.  [5GB]"
        ),
    ] = None,
    shards: Annotated[
        int | None, typer.Option("--shards", metavar="N", min=1, help="This many files of nearly equal size instead.")
    ] = None,
    balance: Annotated[bool, typer.Option("--balance", help="No small last file: make all nearly equal.")] = False,
    like: Annotated[
        str | None,
        typer.Option("--like", metavar="OTHER", help="Divide it as OTHER is, so that equal shards are equal files."),
    ] = None,
    component: ComponentsOpt = None,
    variant: VariantOpt = None,
    dtype: Annotated[
        CastTo | None, typer.Option("--dtype", help="Cast floating-point tensors; --variant then names the result.")
    ] = None,
    revision: RevisionOpt = None,
    subfolder: SubfolderOpt = None,
    offline: OfflineOpt = False,
    allow_oversize: Annotated[
        bool, typer.Option("--allow-oversize", help="Let a tensor above the limit have a larger file of its own.")
    ] = False,
    allow_overflow: Annotated[
        bool, typer.Option("--allow-overflow", help="With --dtype: accept values that become infinite.")
    ] = False,
    allow_pickle: AllowPickleOpt = False,
    keep_names: Annotated[
        bool, typer.Option("--keep-names", help="Leave attention names of 2022, though diffusers needs new ones.")
    ] = False,
    digests: DigestsOpt = False,
    verify: VerifyOpt = False,
    no_fsync: NoFsyncOpt = False,
    dry_run: DryRunOpt = False,
    overwrite: OverwriteOpt = False,
) -> None:
    """Write the same tensors in files no larger than asked.

    SOURCE may be one file, a component, a whole pipeline, or sharded already. Nothing appears until it is whole, and
    the source is never changed. GB is 10⁹ bytes and GiB 2³⁰; common limits are 2GiB for release assets, 4GB for
    FAT32, 5GB for many hosts. A file that is below the limit stays one file, without an index.

    \b
    Examples:
      shardtool shard sdxl/unet --max-size 2GB
      shardtool shard demo --max-size 1MB -o build/demo-sharded
      shardtool shard model.safetensors --shards 4 --digests --verify
      shardtool shard sdxl --dtype fp16 --variant fp16 -o sdxl-fp16
    """
    split = _split(max_size, shards, balance=balance, like=like, allow_oversize=allow_oversize)
    target = target_for(output, source, "sharded")
    casting = _casting() if dtype else None
    pickles = pickle_reader() if allow_pickle else None
    found = parse_source(source, revision=revision, subfolder=subfolder)
    choice, wanted = what_of(found, variant, component, pickles, cast=dtype is not None)
    with (
        progress(out) as on_event,
        brought_here(found, wanted, dry_run=dry_run, offline=offline, on_event=on_event) as here,
        _headers_of(like, offline=offline, on_event=on_event) as model,
    ):
        shape = Shape(split, model, _cast(dtype, casting, allow_overflow=allow_overflow), keep_names)
        job = plan_job(here.path, choice, shape)
        if split.limit is not None and not like:
            out.say(f"limit: {split.limit:,} bytes ({format_size(split.limit)}) a file, header included")
        manner = Manner(overwrite, not no_fsync, digests, verify)
        outcome = carry_out(out, job, target, manner, dry_run=dry_run, download=here.download, on_event=on_event)
    for note in [*(casting.notes() if casting else ()), *(pickles.notes if pickles else ())]:
        out.note(note)
    show_outcome(out, outcome, limit=split.limit)


@contextmanager
def _headers_of(like: str | None, *, offline: bool, on_event: Listener) -> Iterator[Path | None]:
    """The checkpoint whose division is taken over: its headers tell it."""
    if like is None:
        yield None
        return
    with outline_of(parse_source(like), Wanted(), offline=offline, on_event=on_event) as outline:
        yield outline.path


def _split(max_size: str | None, shards: int | None, *, balance: bool, like: str | None, allow_oversize: bool) -> Split:
    ways = {"--max-size": max_size, "--shards": shards, "--like": like}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1 or (balance and given not in ([], ["--max-size"])):
        one, other = (given if len(given) > 1 else [given[0], "--balance"])[:2]
        raise UsageError(f"{one} and {other} exclude each other", code="contradiction")
    if shards is not None:
        return Split(None, shards)
    limit = DEFAULT_LIMIT if max_size is None else parse_size(max_size, what="--max-size")
    return Split(limit, balance=balance, allow_oversize=allow_oversize)


def _casting() -> Casting:
    from shardtool.casting import Casting

    return Casting()


def _cast(dtype: CastTo | None, casting: Casting | None, *, allow_overflow: bool) -> Cast | None:
    if dtype is None or casting is None:
        return None
    return Cast(DTYPES[dtype.value], casting.convert, (lambda: None) if allow_overflow else casting.check)
