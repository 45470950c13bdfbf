"""The program: its commands, the options before the command, and ``main``."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from shardtool import __version__

from .command import Command, group_of
from .options import DebugOpt, JsonOpt, NoColorOpt, ProgressMode, ProgressOpt, QuietOpt, VerboseOpt
from .output import show

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


def _print_version(value: bool) -> None:  # noqa: FBT001 (Typer calls it so)
    if value:
        print(f"shardtool {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 (handled by its callback)
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    json: JsonOpt = False,
    quiet: QuietOpt = False,
    verbose: VerboseOpt = False,
    debug: DebugOpt = False,
    no_color: NoColorOpt = False,
    progress: ProgressOpt = ProgressMode.AUTO,
) -> None:
    """Shard diffusion checkpoints, look into them, load them where they fit and make pictures with them."""
    ctx.obj = {
        "json": json,
        "quiet": quiet,
        "verbose": verbose,
        "debug": debug,
        "no_color": no_color,
        "progress": progress,
    }


class _Terminated(KeyboardInterrupt):
    """SIGTERM, so that what Ctrl-C cleans up is cleaned up too."""


def _on_sigterm(signum: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Terminated


def main() -> None:
    """The console script. Exits 70 for a bug, 130 after Ctrl-C, 143 after SIGTERM, 141 when its reader has gone."""
    _open_closed_streams()
    signal.signal(signal.SIGTERM, _on_sigterm)
    try:
        app(prog_name="shardtool", standalone_mode=True)
    except Exception as error:  # noqa: BLE001 (only true bugs arrive here; the commands catch what they know)
        if "--debug" in sys.argv:
            traceback.print_exc()
        print(f"error: this is a bug in shardtool: {type(error).__name__}: {show(error)}", file=sys.stderr)
        print("hint: run it again with --debug and report what it prints", file=sys.stderr)
        sys.exit(70)
    except KeyboardInterrupt as stopped:  # before or after the command itself, which turns it into an exit
        sys.exit(143 if isinstance(stopped, _Terminated) else 130)
    except SystemExit as leaving:
        if any(isinstance(cause, _Terminated) for cause in _causes(leaving)):
            leaving.code = 143
        elif any(isinstance(cause, BrokenPipeError) for cause in _causes(leaving)):
            leaving.code = 141  # as a shell says of SIGPIPE; Typer's own 1 would mean that the answer is "no"
        if "TORCHELASTIC_RUN_ID" in os.environ:
            _leave_launch(leaving.code)
        raise
    finally:
        _flush_quietly()


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _open_closed_streams() -> None:
    """A stream that the caller has closed is ``None`` in Python; what would go there goes nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (for as long as it runs)


def _leave_launch(code: object) -> NoReturn:
    """End a process that torchrun started, whose work is done, without taking torch's threads down one by one.

    That was seen to abort now and then ("terminate called without an active exception"), and torchrun then ends the
    others, which are still at work.
    """
    _flush_quietly()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _flush_quietly() -> None:
    """A reader that has gone (``| head -1``) is no reason for a traceback at exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
