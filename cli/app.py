"""The program: its commands, the options before the command, and ``main``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from shardtool import __version__

from .command import Command, group_of, with_common_options
from .leaving import leave, prepare

COMMANDS = tuple(map(Command, ("shard", "merge", "inspect", "verify", "diff", "repair", "load", "generate")))

app = typer.Typer(
    name="shardtool",
    cls=group_of(COMMANDS),
    no_args_is_help=True,
    # Plain help: twice as fast as Rich's, and brackets such as ORG/NAME[@REVISION] stay as they are.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(ctx: typer.Context, value: bool) -> None:  # noqa: FBT001 (Typer calls it so)
    if value and not ctx.resilient_parsing:  # which is completion, looking at what was typed
        print(f"shardtool {__version__}")
        raise typer.Exit


def root(
    ctx: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 (handled by its callback)
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    **common: Any,
) -> None:
    """Shard diffusion checkpoints, look into them, load them where they fit and make pictures with them."""
    ctx.obj = common


app.callback()(with_common_options(root))


def main() -> None:
    """The console script."""
    prepare()
    try:
        sys.exit(app(prog_name="shardtool", standalone_mode=False))
    except BaseException as ended:  # noqa: BLE001 (every way out ends there)
        leave(ended)
