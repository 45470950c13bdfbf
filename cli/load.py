"""``shardtool load``: decide where it goes, load it strictly, and say what it took."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from shardtool.errors import UsageError
from shardtool.inventory_file import read_inventory_file
from shardtool.load_plan import Allowed, own_inventory
from shardtool.load_run import load_planned, plan_load
from shardtool.obtain import local_path, look_into
from shardtool.placement import Request
from shardtool.replacements import find_replacements, read_replacements
from shardtool.source import parse_source

from .load_view import loaded_data, loaded_view, plan_data, plan_view
from .options import (
    DryRunOpt,
    OfflineOpt,
    ReplacementsOpt,
    RevisionOpt,
    SourceArg,
    SubfolderOpt,
    TextEncoder2Opt,
    TextEncoderOpt,
    UnetOpt,
    VaeOpt,
    VariantOpt,
)
from .output import Output
from .progress import progress


def load(
    out: Output,
    source: SourceArg,
    *,
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:N, mps or xpu.", show_default=True)
    ] = "auto",
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="DTYPE", help="auto, fp32, fp16 or bf16.", show_default=True)
    ] = "auto",
    offload: Annotated[
        str,
        typer.Option("--offload", metavar="MODE", help="auto, none, model, group or sequential.", show_default=True),
    ] = "auto",
    unet: UnetOpt = None,
    vae: VaeOpt = None,
    text_encoder: TextEncoderOpt = None,
    text_encoder_2: TextEncoder2Opt = None,
    component: ReplacementsOpt = None,
    variant: VariantOpt = None,
    revision: RevisionOpt = None,
    subfolder: SubfolderOpt = None,
    offline: OfflineOpt = False,
    dry_run: DryRunOpt = False,
    inventory: Annotated[
        Path | None,
        typer.Option("--inventory", metavar="FILE", help="With --dry-run: plan for the machine that FILE describes."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Load although it does not fit by the numbers.")] = False,
    allow_missing: Annotated[
        list[str] | None,
        typer.Option("--allow-missing", metavar="GLOB", help="Tensors that may be missing; they become zeros."),
    ] = None,
    allow_unexpected: Annotated[
        list[str] | None,
        typer.Option("--allow-unexpected", metavar="GLOB", help="Tensors that may be left over; they are not loaded."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all data first: recorded digests, NaN and infinite values.")
    ] = False,
    forward: Annotated[
        bool, typer.Option("--forward", help="Run each model once on small seeded inputs; print a digest of it.")
    ] = False,
    repeat: Annotated[int, typer.Option("--repeat", metavar="N", min=1, help="Load N times, for timings.")] = 1,
) -> None:
    """Load strictly, where it fits; say where it is and what it took.

    Where it goes is decided from headers, before any weight is read; --dry-run shows that and loads nothing. Every
    tensor that the model's class wants must be there, in its shape, and nothing else.

    \b
    Examples:
      shardtool load demo
      shardtool load build/demo-sharded/unet --device cpu --dtype fp32
      shardtool load ORG/NAME --device cuda:0 --offload auto --dry-run
      shardtool load sdxl --dry-run --inventory two-gpus.json
      shardtool load sdxl --unet build/unet-sharded
      shardtool load sdxl/unet --verify --forward --json
    """
    if inventory is not None and not dry_run:
        raise UsageError(
            "--inventory describes another machine, on which nothing can be loaded from here",
            code="contradiction",
            hint="add --dry-run",
        )
    allowed = Allowed(tuple(allow_missing or ()), tuple(allow_unexpected or ()))
    named = parse_source(source, revision=revision, subfolder=subfolder)
    request = Request(device, dtype, offload, force)
    given = None if inventory is None else read_inventory_file(inventory)
    if dry_run and given is None:
        given = own_inventory(request)  # so that no weights are read ahead
    short = {"unet": unet, "vae": vae, "text_encoder": text_encoder, "text_encoder_2": text_encoder_2}
    replaced = read_replacements(short, component or ())
    with progress(out) as on_event, ExitStack() as headers:
        fetching: Any = {"variant": variant, "offline": offline, "on_event": on_event}
        overrides = find_replacements(replaced, **fetching, headers=headers if dry_run else None)
        decide = partial(
            plan_load, request=request, overrides=overrides, variant=variant, inventory=given, on_event=on_event
        )
        if dry_run:
            plan = look_into(named, decide, **fetching)
            out.result(plan_data(source, plan), *plan_view(plan))
            return
        plan = decide(local_path(named, without=tuple(overrides), **fetching))
        loaded = load_planned(plan, allowed=allowed, verify=verify, forward=forward, repeat=repeat, on_event=on_event)
    out.result(loaded_data(source, loaded), *loaded_view(loaded))
