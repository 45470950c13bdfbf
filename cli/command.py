"""A command: imported when it is used, with the options all of them have, and its errors turned into exit codes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, Concatenate, ParamSpec

import typer
from typer.core import TyperGroup
from typer.main import get_command

from shardtool.errors import RunError, ShardtoolError
from shardtool.foreign_code import short_of_memory

from .misuse import ParserError
from .options import DebugOpt, JsonOpt, NoColorOpt, ProgressMode, ProgressOpt, QuietOpt, VerboseOpt
from .output import Output
from .signals import Terminated

P = ParamSpec("P")

_COMMON: dict[str, tuple[Any, Any]] = {
    "json": (JsonOpt, False),
    "quiet": (QuietOpt, False),
    "verbose": (VerboseOpt, False),
    "debug": (DebugOpt, False),
    "no_color": (NoColorOpt, False),
    "progress": (ProgressOpt, ProgressMode.AUTO),
}


class Command:
    """A command of the program, in the module and the function of its name; imported only when it is wanted."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    @cached_property
    def function(self) -> Callable[..., None]:
        found: Callable[..., None] = getattr(import_module(f".{self.__name__}", __package__), self.__name__)
        return found


def group_of(commands: tuple[Command, ...]) -> type[TyperGroup]:
    """A group of these commands, each built when it is run or its help is shown: starting stays quick."""
    by_name = {command.__name__: command for command in commands}

    class LazyGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 (Typer calls it so)
            return list(by_name)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name in by_name and cmd_name not in self.commands:
                alone = typer.Typer(
                    add_completion=False, rich_markup_mode=None, context_settings=ctx.command.context_settings
                )
                register(alone, by_name[cmd_name].function)
                self.commands[cmd_name] = get_command(alone)
            return super().get_command(ctx, cmd_name)

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except ParserError as error:
                error.ctx = error.ctx or ctx  # which says for which command the line made no sense
                raise

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args and args[0] not in by_name:  # a similar one will be suggested
                for name in by_name:
                    self.get_command(ctx, name)
            return super().resolve_command(ctx, args)

    return LazyGroup


def register(app: typer.Typer, function: Callable[Concatenate[Output, P], None]) -> None:
    """Make ``function(out, …)`` a command of ``app`` under its own name, with the common options.

    A ``ShardtoolError`` becomes a short message and its exit code, and so does short memory, which can show anywhere;
    anything else is a bug and left to ``main``.
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
        except (KeyboardInterrupt, Terminated):
            out.say("interrupted")
            raise
        except Exception as error:
            reason = short_of_memory(error)
            if reason is None:
                raise
            short = RunError(
                f"out of memory: {reason}",
                code="out_of_memory",
                hint="free some or allow more; `load --dry-run` and `generate --dry-run` tell what a run needs",
            )
            out.fail(short)
            raise typer.Exit(short.exit_code) from error

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    run.__doc__ = function.__doc__
    app.command(name)(with_common_options(run, own))


def with_common_options(
    function: Callable[Concatenate[typer.Context, ...], None], own: Sequence[inspect.Parameter] | None = None
) -> Callable[Concatenate[typer.Context, ...], None]:
    """``function`` as Typer is to see it: with the parameters ``own``, by default those it spells out, and the options
    that are the same everywhere in place of its ``**values``."""
    context, *spelt, _ = inspect.signature(function, eval_str=True).parameters.values()
    kind = inspect.Parameter.KEYWORD_ONLY
    common = [inspect.Parameter(n, kind, default=d, annotation=a) for n, (a, d) in _COMMON.items()]
    parameters = [context, *(spelt if own is None else own), *common]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


def _with_root_options(ctx: typer.Context, given: dict[str, Any]) -> dict[str, Any]:
    """What was given after the command, else what was given before it."""
    before = ctx.obj or {}
    defaults = {key: default for key, (_, default) in _COMMON.items()}
    return {key: value if value != defaults[key] else before.get(key, value) for key, value in given.items()}
