"""A command line that makes no sense to the parser, told in the words of all other errors."""

from __future__ import annotations

import re
import sys
from typing import Any

import typer

from shardtool.errors import UsageError

from .output import Output

ParserError: Any = typer.BadParameter.__base__
"""What Typer raises; its ``ctx`` says for which command."""

_JARGON = (
    (r"Value error, ", ""),
    (r"Input should be a valid integer.*", "not a whole number"),
    (r"Input should be a valid number.*", "not a number"),
    (r"Input should be (greater|less) than( or equal to)? ", r"must be \1 than\2 "),
)
"""What pydantic says, whom Typer asks, and what is said of it here."""


def explain_misuse(ended: Any) -> None:
    """What is wrong with a command line that no command has seen, in the words of all other errors."""
    if len(sys.argv) == 1:  # nothing was typed, and what Typer has to say is the help
        ended.show()
        return
    command = _command_of(ended)
    meant = _meant(ended)
    message = ended.message if meant else ended.format_message()
    for theirs, ours in _JARGON:
        message = re.sub(theirs, ours, message)
    message, _, suggested = message.partition(". Did you mean ")
    meant = meant or [word.strip(" '") for word in suggested.removesuffix("?").split(",") if word]
    hint = "see shardtool --help" if command == "shardtool" else f"see shardtool {command} --help"
    if "unexpected extra argument" in message:
        hint = f"quote what has blanks in it; {hint}"
    error = UsageError(
        message[:1].lower() + message[1:].removesuffix("."),
        code="usage",
        hint=f"did you mean {' or '.join(meant)}? {hint}" if meant else hint,
    )
    Output(command, json="--json" in sys.argv, no_color="--no-color" in sys.argv).fail(error)


def _command_of(ended: Any) -> str:
    """The command whose line makes no sense; the program itself where no command was reached."""
    context = ended.ctx
    if context is None:
        return "shardtool"
    return str(context.info_name if context.parent else context.invoked_subcommand or "shardtool")


def _meant(ended: Any) -> list[str]:
    """The options that are spelled like one that there is not, each by its first name."""
    similar = getattr(ended, "possibilities", None)
    if not similar:
        return []
    first = {name: parameter.opts[0] for parameter in ended.ctx.command.params for name in parameter.opts}
    return list(dict.fromkeys(first.get(name, name) for name in similar))
