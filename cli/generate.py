"""``shardtool generate``: prompts to images."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from typing import Any

import typer

from shardtool.images.layers import Layers, read_config
from shardtool.images.plan import Request, option_names, plan_run

from . import generate_options as opt
from .generate_view import made_data, made_lines, plan_data, plan_view, schedulers_view
from .output import Output
from .progress import progress


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
    unet: opt.UnetOpt = None,
    vae: opt.VaeOpt = None,
    variant: opt.VariantOpt = None,
    revision: opt.RevisionOpt = None,
    offline: opt.OfflineOpt = None,
    output: opt.OutputOpt = None,
    format: opt.FormatOpt = None,  # noqa: A002 (named as the user types it)
    overwrite: opt.OverwriteOpt = None,
    metadata: opt.MetadataOpt = None,
    device: opt.DeviceOpt = None,
    dtype: opt.DtypeOpt = None,
    offload: opt.OffloadOpt = None,
    force: opt.ForceOpt = None,
    keep_going: opt.KeepGoingOpt = None,
    config: opt.ConfigOpt = None,
    dry_run: opt.DryRunOpt = False,
) -> None:
    """Make pictures from prompts, with a pipeline whose UNet may be sharded.

    \b
    Every option can be set as SHARDTOOL_NAME (SHARDTOOL_STEPS=20) or in the table
    [generate] of a TOML file given with --config; what is typed wins.

    \b
    Examples:
      shardtool generate "dog"
      shardtool generate --unet build/demo-sharded/unet "dog" -o dog.png --seed 7
      shardtool generate "a cat" "a fox" --count 4 -o out/
      shardtool generate --model ORG/NAME --prompts-file prompts.txt -o "out/{index}-{seed}.png"
    """
    flags = dict(locals())  # first of all, while these are the options alone
    if list_schedulers:
        out.result(*schedulers_view())
        return
    request = Request.read(_layers(flags), sys.stdin.buffer.read)
    with progress(out) as on_event:
        plan = plan_run(request, now=datetime.now().astimezone(), on_event=on_event)
        if dry_run:
            out.result(plan_data(plan), *plan_view(plan))
            return
        from shardtool.generation.run import carry_out

        outcome = carry_out(plan, on_event=on_event)
    if request.target.to_stdout:
        sys.stdout.buffer.write(outcome.made[0].data or b"")
        return
    out.result(made_data(plan, outcome), *made_lines(outcome))
    if outcome.failures:
        raise typer.Exit(5)


def _layers(flags: dict[str, Any]) -> Layers:
    """The options as typed, over those of the environment and the config file."""
    typed = {name: value for name, value in flags.items() if value not in (None, [])}
    if "prompt" in typed:
        typed["prompts"] = [*typed.get("prompts", []), *typed.pop("prompt")]
    config = flags["config"]
    table = read_config(config, "generate", option_names()) if config is not None else {}
    return Layers(typed, environment=os.environ, file=table)
