"""``shardtool generate``: prompts to images."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

from shardtool.errors import UsageError
from shardtool.events import ignore
from shardtool.images.layers import Layers, read_config
from shardtool.images.plan import Plan, plan_run
from shardtool.images.replay import Expectation, Replay, read_begun, read_replay
from shardtool.images.request import Request, option_names
from shardtool.images.seeds import draw_seed
from shardtool.replacements import with_own_options

from . import generate_options as opt
from .generate_view import made_data, made_lines, plan_data, plan_view, schedulers_view
from .options import ReplacementsOpt, TextEncoder2Opt, TextEncoderOpt, UnetOpt, VaeOpt
from .output import Output
from .preview import previewer
from .progress import progress
from .stopping import stopping

if TYPE_CHECKING:
    from shardtool.events import Listener
    from shardtool.generation.outcome import Outcome


def generate(
    out: Output,
    prompts: opt.PromptArg = None,
    *,
    prompt: opt.PromptOpt = None,
    prompts_file: opt.PromptsFileOpt = None,
    prompt_2: opt.Prompt2Opt = None,
    negative_prompt: opt.NegativeOpt = None,
    negative_prompt_2: opt.Negative2Opt = None,
    seed: opt.SeedOpt = None,
    count: opt.CountOpt = None,
    steps: opt.StepsOpt = None,
    guidance: opt.GuidanceOpt = None,
    scheduler: opt.SchedulerOpt = None,
    list_schedulers: opt.ListSchedulersOpt = False,
    width: opt.WidthOpt = None,
    height: opt.HeightOpt = None,
    size: opt.SizeOpt = None,
    image: opt.ImageOpt = None,
    strength: opt.StrengthOpt = None,
    mask: opt.MaskOpt = None,
    model: opt.ModelOpt = None,
    unet: UnetOpt = None,
    vae: VaeOpt = None,
    text_encoder: TextEncoderOpt = None,
    text_encoder_2: TextEncoder2Opt = None,
    component: ReplacementsOpt = None,
    lora: opt.LoraOpt = None,
    variant: opt.VariantOpt = None,
    revision: opt.RevisionOpt = None,
    offline: opt.OfflineOpt = None,
    output: opt.OutputOpt = None,
    format: opt.FormatOpt = None,  # noqa: A002 (named as the user types it)
    overwrite: opt.OverwriteOpt = None,
    skip_existing: opt.SkipExistingOpt = None,
    metadata: opt.MetadataOpt = None,
    sidecar: opt.SidecarOpt = None,
    grid: opt.GridOpt = None,
    gallery: opt.GalleryOpt = None,
    preview: opt.PreviewOpt = None,
    preview_every: opt.PreviewEveryOpt = None,
    replay: opt.ReplayOpt = None,
    expect: opt.ExpectOpt = None,
    keep_latents: opt.KeepLatentsOpt = None,
    resume: opt.ResumeOpt = None,
    device: opt.DeviceOpt = None,
    dtype: opt.DtypeOpt = None,
    offload: opt.OffloadOpt = None,
    force: opt.ForceOpt = None,
    vae_tiling: opt.VaeTilingOpt = None,
    vae_slicing: opt.VaeSlicingOpt = None,
    compile: opt.CompileOpt = None,  # noqa: A002
    batch_size: opt.BatchSizeOpt = None,
    on_long_prompt: opt.OnLongPromptOpt = None,
    keep_going: opt.KeepGoingOpt = None,
    config: opt.ConfigOpt = None,
    dry_run: opt.DryRunOpt = False,
) -> None:
    """Make pictures from prompts; the UNet may be sharded.

    \b
    Every option can be set as SHARDTOOL_NAME (SHARDTOOL_STEPS=20) or in the table
    [generate] of a TOML file given with --config; what is typed wins.

    \b
    Examples:
      shardtool generate "dog"
      shardtool generate --unet build/demo-sharded/unet "dog" -o dog.png --seed 7
      shardtool generate "a cat" "a fox" --count 4 -o out/ --grid
      shardtool generate --model ORG/NAME --prompts-file prompts.txt -o "out/{index}-{seed}.png"
      shardtool generate --replay golden.png --expect same
    """
    flags = dict(locals())  # first of all, while these are the options alone
    if list_schedulers:
        out.result(*schedulers_view())
        return
    earlier = None if replay is None else read_replay(replay)
    expected = _expectation(earlier, expect)
    layers = _layers(flags, earlier)
    try:
        request = Request.read(layers, sys.stdin.buffer.read)
        with progress(out) as on_event:
            if dry_run:
                _show_plan(out, request, earlier, on_event)
                return
            plan, outcome, is_first = _run(out, request, flags, earlier, expected, on_event)
    except UsageError as error:
        raise layers.blame(error) from None  # the same words, told of the file they stand in
    if is_first:
        _show(out, plan, outcome)


def _show_plan(out: Output, request: Request, earlier: Replay | None, on_event: Listener) -> None:
    """Plan from headers and tokenizers alone, also where the model is on the Hub."""
    from shardtool.hub.naming import named_as_on_hub

    with ExitStack() as headers:
        now = datetime.now().astimezone()
        plan = plan_run(request, now=now, replay=earlier, headers=headers, on_event=on_event)
        plan = replace(plan, model=named_as_on_hub(plan.model))
    out.result(plan_data(plan), *plan_view(plan))


def _expectation(earlier: Replay | None, expect: str | None) -> Expectation | None:
    if expect is None:
        return None
    if earlier is None:
        raise UsageError("--expect needs --replay", code="expect_without_replay", hint="add --replay IMAGE")
    return Expectation.parse(expect)


def _layers(flags: dict[str, Any], earlier: Replay | None) -> Layers:
    """The options as typed, over those of the replayed image, the environment and the config file."""
    typed = {name: value for name, value in flags.items() if value not in (None, [])}
    if "prompt" in typed:
        typed["prompts"] = [*typed.get("prompts", []), *typed.pop("prompt")]
    if "component" in typed:
        typed = with_own_options(typed)
    record: dict[str, Any] = {} if earlier is None else dict(earlier.options)
    if flags["resume"] is not None:
        if earlier is not None:
            raise UsageError("--resume and --replay contradict each other", code="contradiction")
        record = read_begun(flags["resume"])
    config = flags["config"]
    table = read_config(config, "generate", option_names()) if config is not None else {}
    record_path = flags["resume"] if earlier is None else earlier.path
    return Layers(typed, record, os.environ, table, record_path, config)


def _run(
    out: Output,
    request: Request,
    flags: dict[str, Any],
    earlier: Replay | None,
    expected: Expectation | None,
    on_event: Listener,
) -> tuple[Plan, Outcome, bool]:
    """Plan and make, alone or as one process of several; whether this is the one that speaks."""
    from shardtool.generation.processes import Processes, drawing
    from shardtool.generation.run import carry_out

    processes = Processes.join(request.machine.device)
    if not processes.is_first:
        out.quiet, on_event = True, ignore
    plan = plan_run(
        request,
        now=processes.agree(datetime.now().astimezone()),
        draw=drawing(processes, draw_seed),
        replay=earlier,
        expected=expected,
        begun=flags["resume"],
        on_event=on_event,
    )
    with stopping(out, gently=request.conduct.keep_latents) as stop:
        show = previewer(out, wanted=request.conduct.preview or request.conduct.preview_every is not None)
        outcome = carry_out(plan, processes=processes, show=show, stop=stop, on_event=on_event)
    processes.leave()
    return plan, outcome, processes.is_first


def _show(out: Output, plan: Plan, outcome: Outcome) -> None:
    if plan.request.target.to_stdout and outcome.made:
        sys.stdout.buffer.write(outcome.made[0].data or b"")
    else:
        out.result(made_data(plan, outcome), *made_lines(plan, outcome))
    if outcome.failures:
        raise typer.Exit(5)
    if outcome.verdict is not None and not outcome.verdict.met:
        raise typer.Exit(1)
