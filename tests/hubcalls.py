"""Calls of ``shardtool.obtain`` in another process, because the Hub's client reads its settings once, at import.

``ask(call(...), call(...))`` runs them one after the other and gives a result each; nothing may be printed by anyone on
the way. Run as a program, this file is the other side; one process serves all calls with the same settings. Nothing
heavy may be imported by a call. ``ask.run(...)`` runs a whole command instead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.hubserver import HubServer

ROOT = Path(__file__).parent.parent


def environment(hub: HubServer, home: Path, **others: str) -> dict[str, str]:
    """The environment of a process that talks to ``hub`` and has its cache below ``home``."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    return {**kept, "HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", **others}


def call(text: str, **arguments: Any) -> dict[str, Any]:
    """A call of ``local_path``; with ``component`` of ``component_path``, with ``look`` of ``look_into``, to survey."""
    return {"text": text, **arguments}


class Ask:
    """Asks other processes, one for each set of settings, and expects them to print nothing of their own."""

    def __init__(self, hub: HubServer, home: Path) -> None:
        self.hub = hub
        self.home = home
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._printed = home / "printed.txt"

    def __call__(self, *calls: dict[str, Any], **settings: str) -> list[dict[str, Any]]:
        """One result a call: ``path``, ``files`` (below it), ``events``; or ``error``, ``exit_code``; or ``found``."""
        process = self._process(settings)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(calls) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert self._printed.read_text() == ""
        results: list[dict[str, Any]] = json.loads(answer)
        return results

    def run(self, *arguments: str, **settings: str) -> dict[str, Any]:
        """A whole command: its ``exit_code``, ``stdout`` and ``stderr``."""
        return self({"arguments": arguments}, **settings)[0]

    def _process(self, settings: dict[str, str]) -> subprocess.Popen[str]:
        key = json.dumps(settings, sort_keys=True)
        if key not in self._processes:
            with self._printed.open("ab") as printed:
                self._processes[key] = subprocess.Popen(
                    [sys.executable, "-m", "tests.hubcalls"],
                    cwd=ROOT,
                    env=environment(self.hub, self.home, **settings),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=printed,
                    text=True,
                )
        return self._processes[key]

    def close(self) -> None:
        for process in self._processes.values():
            process.communicate(timeout=10)


def _run(arguments: list[str]) -> dict[str, Any]:
    from typer.testing import CliRunner

    from cli.app import app

    result = CliRunner().invoke(app, arguments, prog_name="shardtool")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return {"exit_code": result.exit_code, "stdout": result.stdout, "stderr": result.stderr}


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    if "arguments" in request:
        return _run(request["arguments"])
    heavy = _heavy()
    result = _call(request)
    assert _heavy() == heavy
    return result


def _heavy() -> set[str]:
    return {"torch", "numpy", "diffusers", "transformers"} & set(sys.modules)


def _call(request: dict[str, Any]) -> dict[str, Any]:
    from shardtool.checkpoint.contents import survey
    from shardtool.errors import ShardtoolError
    from shardtool.obtain import component_path, local_path, look_into
    from shardtool.source import parse_source

    events: list[dict[str, Any]] = []

    def on_event(event: Any) -> None:
        events.append({"event": type(event).__name__, **asdict(event)})

    text, look = request.pop("text"), request.pop("look", False)
    named = {key: request.pop(key) for key in ("revision", "subfolder") if key in request}
    try:
        source = parse_source(text, **named)
        if look:
            contents = look_into(
                source, lambda path: survey(path, request.get("variant")), on_event=on_event, **request
            )
            return {"found": _described(contents), "events": events}
        wanted = local_path if "component" not in request else component_path
        path = wanted(source, on_event=on_event, **request)
    except ShardtoolError as error:
        return {"error": error.as_json(), "exit_code": error.exit_code, "events": events}
    below = sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()) if path.is_dir() else []
    return {"path": str(path), "files": below, "events": events}


def _described(contents: Any) -> dict[str, Any]:
    """What a survey found, without the names of folders."""
    return {
        "kind": contents.kind,
        "path": str(contents.path),
        "problems": [problem.as_json() for problem in contents.problems],
        "parts": {
            part.name: {
                "class": part.class_name,
                "path": str(part.path),
                "tensors": {name: asdict(stored.info) for name, stored in part.checkpoint.tensors.items()},
                "files": {file.path.name: file.size for file in part.checkpoint.files},
            }
            for part in contents.parts
            if part.checkpoint is not None
        },
    }


def main() -> None:
    for line in sys.stdin:
        print(json.dumps([_answer(request) for request in json.loads(line)]), flush=True)


if __name__ == "__main__":
    main()
