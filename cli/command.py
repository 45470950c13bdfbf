"""Register a command: the options all of them have, and the one place where errors become exit codes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

import typer

from shardtool.errors import ShardtoolError

from .options import DebugOpt, JsonOpt, NoColorOpt, ProgressMode, ProgressOpt, QuietOpt, VerboseOpt
from .output import Output

P = ParamSpec("P")

_COMMON: dict[str, tuple[Any, Any]] = {
    "json": (JsonOpt, False),
    "quiet": (QuietOpt, False),
    "verbose": (VerboseOpt, False),
    "debug": (DebugOpt, False),
    "no_color": (NoColorOpt, False),
    "progress": (ProgressOpt, ProgressMode.AUTO),
}


def register(app: typer.Typer, function: Callable[Concatenate[Output, P], None]) -> None:
    """Make ``function(out, …)`` a command of ``app`` under its own name, with the common options.

    A ``ShardtoolError`` becomes a short message and its exit code; anything else is a bug and left to ``main``.
    """
    name = function.__name__

    def run(ctx: typer.Context, **values: Any) -> None:
        common = {key: values.pop(key) for key in _COMMON}
        out = Output(name, **_with_root_options(ctx, common))
        try:
            function(out, **values)  # type: ignore[call-arg]
        except ShardtoolError as error:
            out.fail(error)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            out.say("interrupted")
            raise

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *own, *common_parameters()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = function.__doc__
    app.command(name)(run)


def common_parameters() -> list[inspect.Parameter]:
    """The options that every command has, as parameters of a function."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(n, kind, default=d, annotation=a) for n, (a, d) in _COMMON.items()]


def _with_root_options(ctx: typer.Context, given: dict[str, Any]) -> dict[str, Any]:
    """What was given after the command, else what was given before it."""
    before = ctx.obj or {}
    defaults = {key: default for key, (_, default) in _COMMON.items()}
    return {key: value if value != defaults[key] else before.get(key, value) for key, value in given.items()}
