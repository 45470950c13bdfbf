"""Runs the command line again and again, each time in a forked process that fails at its n-th writing call.

Run as a program: it imports the command line once, then reads one JSON object a line (``argv``, ``root``, ``when``,
``what``, ``log``) and answers with one (``exit``, negative for a signal, and ``calls``, the writing calls made). Just
before call number ``when`` the process is killed, or sent a signal, or the call raises an errno; with ENOSPC, so does
every later call that needs room. Calls through ctypes are counted like those of ``os``. Forking after the imports makes
a run a matter of milliseconds; the faults come from outside the product all the same.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

COUNTED = (
    *("open", "mkdir", "pwrite", "write", "copy_file_range", "fsync", "ftruncate", "rename", "replace", "link"),
    *("unlink", "rmdir", "chmod", "symlink"),
)
FOREIGN = ("renameat2", "sync_file_range")
NEEDS_ROOM = {"open", "mkdir", "pwrite", "copy_file_range", "link"}
NEVER_FAILS = {"unlink", "rmdir"}
"""Calls that give something back: a disk that is full or lost for writing does not stop them."""

SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}


class Fault:
    """Strikes at call number ``when`` below ``root``; never, where ``when`` is 0."""

    def __init__(self, when: int, what: str, root: str) -> None:
        self.when, self.what, self.root = when, what, root
        self.calls = 0

    def strike(self, name: str) -> None:
        self.calls += 1
        later = self.when and self.calls > self.when and self.what == "ENOSPC" and name in NEEDS_ROOM
        if self.calls != self.when and not later:
            return
        if self.what in SIGNALS:
            os.kill(os.getpid(), SIGNALS[self.what])
        elif name not in NEVER_FAILS:
            number = getattr(errno, self.what)
            raise OSError(number, os.strerror(number))

    def guard(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not (args[1] & os.O_CREAT):
                return function(*args, **kwargs)
            if name == "write" and args[0] < 3:
                return function(*args, **kwargs)
            self.strike(name)
            return function(*args, **kwargs)

        return call

    def install(self) -> None:
        """Guard the calls of this process."""
        for name in COUNTED:
            setattr(os, name, self.guard(name, getattr(os, name)))
        fault = self

        class Library(ctypes.CDLL):
            def __getattr__(self, name: str) -> Any:
                function = super().__getattr__(name)
                return fault.guard(name, function) if name in FOREIGN else function

        ctypes.CDLL = Library  # type: ignore[misc]


def run(argv: list[str], fault: Fault, log: str) -> int:
    """The exit code of the command line with these arguments; its output goes to the file ``log``."""
    from cli.app import main

    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ["shardtool", *argv]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fault.install()
    try:
        main()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    except KeyboardInterrupt:
        return 130
    return 0


def serve() -> None:
    """Answer requests until standard input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            fault = Fault(request["when"], request["what"], request["root"])
            write = os.write
            try:
                code = run(request["argv"], fault, request["log"])
                sys.stdout.flush()
                sys.stderr.flush()
                write(writing, str(fault.calls).encode())
                os._exit(code)
            finally:
                os._exit(99)
        os.close(writing)
        calls = Path(f"/proc/self/fd/{reading}").read_bytes()
        os.close(reading)
        _, status = os.waitpid(child, 0)
        answer = {"exit": os.waitstatus_to_exitcode(status), "calls": int(calls) if calls else None}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))
    from typer.testing import CliRunner

    from cli.app import app

    # Whatever is imported lazily is imported now, before the forks.
    CliRunner().invoke(app, ["shard", "no/such/source", "-o", "no/such/target"])
    serve()
