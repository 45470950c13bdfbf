"""How the process ends: an exit code for every way out, and what has to be said of it.

70 is a bug, 130 Ctrl-C, 143 SIGTERM, 141 a reader that has gone, 5 an output that could not be written or memory that
was short before a command had begun.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from shardtool.foreign_code import short_of_memory

from .misuse import ParserError, explain_misuse
from .output import show
from .signals import unwatch, watch

_PLAIN = {"·": "-", "×": "x", "…": "...", "–": "-", "→": "->", "≤": "<=", "≥": ">="} | {
    **dict.fromkeys("─━", "-"),
    **dict.fromkeys("│├└┃", "|"),
    "█": "#",
    "░": ".",
}


def prepare() -> None:
    """Give closed streams a place to go and others a way to say everything, and let signals clean up."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (for as long as it runs)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a test's stand-in takes everything
            stream.reconfigure(errors="plainly")
    watch()


def _say_plainly(error: UnicodeError) -> tuple[str, int]:
    """What a stream that is not UTF-8 shows instead: our own signs in ASCII, anything else as an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    shown = (_PLAIN.get(char) or char.encode("ascii", "backslashreplace").decode() for char in lost)
    return "".join(shown), error.end


codecs.register_error("plainly", _say_plainly)


def leave(ended: BaseException) -> NoReturn:
    """End the process as ``ended`` asks; what is still to be said is said before."""
    unwatch()
    if isinstance(ended, ParserError):
        try:
            explain_misuse(ended)
        except (OSError, SystemExit) as error:
            ended = error  # of the stream that this was to be said on; Rich leaves where nobody reads it
    code = _exit_code(ended)
    fault = _flush() or _full(ended)
    with suppress(OSError):  # of a stderr that cannot be written either
        if fault is not None and code in (0, 1, 70):
            code = 5
            print(f"error: the output cannot be written: {fault.strerror}", file=sys.stderr, flush=True)
        elif code == 70:
            _report_bug(ended)
        elif code == 5 and not isinstance(ended, SystemExit):
            print(f"error: out of memory: {show(short_of_memory(ended))}", file=sys.stderr, flush=True)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # Taking torch's threads down one by one was seen to abort now and then ("terminate called without an active
        # exception"), after the work was done; torchrun then ends the other processes, which are still at theirs.
        os._exit(code)
    sys.exit(code)


def _exit_code(ended: BaseException) -> int:
    causes = tuple(_causes(ended))
    if isinstance(ended, ParserError):
        return 2
    if isinstance(ended, KeyboardInterrupt):  # before or after the command itself, which turns it into an exit
        return 130
    if any(isinstance(cause, BrokenPipeError) for cause in causes):
        return 141  # as a shell says of SIGPIPE; Typer's own 1 would mean that the answer is "no"
    if not isinstance(ended, SystemExit):  # the commands catch what they know
        return 70 if short_of_memory(ended) is None else 5
    return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []  # an exception can be its own cause
    while error is not None and error not in seen:
        yield error
        seen.append(error)
        error = error.__cause__ or error.__context__


def _full(error: BaseException) -> OSError | None:
    """The error of a disk that is full or fails, which no command expected: it came from a stream."""
    numbers = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    return error if isinstance(error, OSError) and error.errno in numbers else None


def _flush() -> OSError | None:
    """Write what is still to be written; why that cannot be done, where it matters to anybody."""
    found = None
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            # Python would try again at its end, and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if not isinstance(error, BrokenPipeError):  # its reader has gone (| head -1), and wants no more
                found = found or error
    return found


def _report_bug(error: BaseException) -> None:
    if "--debug" in sys.argv:
        traceback.print_exception(error)
    print(f"error: this is a bug in shardtool: {type(error).__name__}: {show(error)}", file=sys.stderr)
    print("hint: run it again with --debug and report what it prints", file=sys.stderr, flush=True)
