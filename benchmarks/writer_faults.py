"""What is left of an older checkpoint when diffusers' own writer is killed, runs out of disk, or meets another one.

    python benchmarks/writer_faults.py [--races 20]

The second table of docs/faults.md. A tiny UNet, all of whose values are 2, is saved over one whose values are 1, with
`save_pretrained`; the process is killed just before each call that changes the folder (strace injects the signal), or
its n-th write and all later ones find the disk full. What is left is judged by diffusers: the values that it loads.
Needs strace, and the right to trace a child.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from diffusers import UNet2DConditionModel
from diffusers.utils import logging

TINY = {
    "sample_size": 8,
    "block_out_channels": (8, 16),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    "cross_attention_dim": 8,
    "attention_head_dim": 4,
    "norm_num_groups": 4,
    "layers_per_block": 1,
}
SHAPES = {"3 shards over 3": (3, 3), "5 shards over 3": (3, 5), "3 shards over a file": (1, 3), "a file over 3": (3, 1)}
CHANGING = ("openat", "write", "pwrite64", "rename", "renameat2", "unlink", "unlinkat", "mkdir", "ftruncate")
OUTCOMES = ("old", "new", "mixture", "does not load")


def model(value: float) -> UNet2DConditionModel:
    made = UNet2DConditionModel(**TINY)
    with torch.no_grad():
        for tensor in made.state_dict().values():
            tensor.fill_(value)
    return made


def limit(shards: int) -> int:
    """A ``max_shard_size`` that gives so many shards."""
    total = sum(tensor.nbytes for tensor in model(0).state_dict().values())
    return next(size for size in range(2 * total, 0, -1000) if len(saved(model(0), size)) - (shards > 1) == shards)


def saved(made: UNet2DConditionModel, size: int) -> list[str]:
    """The weight files (and index) that a save with this limit makes."""
    with tempfile.TemporaryDirectory() as folder:
        made.save_pretrained(folder, max_shard_size=size)
        return [path.name for path in Path(folder).iterdir() if "safetensors" in path.name]


def left(folder: Path) -> str:
    """One of ``OUTCOMES``, as diffusers loads the folder."""
    try:
        loaded = UNet2DConditionModel.from_pretrained(folder)
    except Exception:  # noqa: BLE001 (whatever it says, the folder does not load)
        return "does not load"
    values = {float(value) for tensor in loaded.state_dict().values() for value in tensor.unique()}
    return {(1.0,): "old", (2.0,): "new"}.get(tuple(values), "mixture")


def forked(action: Callable[[], object]) -> int:
    """The process id of a child that stops itself at once, and does ``action`` when it is let go."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.kill(os.getpid(), signal.SIGSTOP)
            action()
            code = 0
        finally:
            os._exit(code)
    os.waitpid(child, os.WUNTRACED)
    return child


def traced(action: Callable[[], object], options: list[str], log: Path) -> int:
    """Do ``action`` in a child under strace; its exit code, negative for a signal."""
    child = forked(action)
    command = ["strace", "-f", "-p", str(child), "-o", str(log), "-e", f"trace={','.join(CHANGING)}", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        tracer.stderr.readline()  # "attached"
        os.kill(child, signal.SIGCONT)
        _, status = os.waitpid(child, 0)
        tracer.communicate()
    return os.waitstatus_to_exitcode(status)


def changes(log: Path, folder: Path) -> list[tuple[str, int]]:
    """The calls in a log that change ``folder``: each one's name, and which of its name it is."""
    seen: Counter[str] = Counter()
    found = []
    inside: set[str] = set()
    for line in log.read_text().splitlines():
        call = re.match(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)", line)
        if call is None:
            continue
        name, arguments, result = call.groups()
        seen[name] += 1
        if name == "openat":
            here = str(folder) in arguments and "O_CREAT" in arguments
            (inside.add if here else inside.discard)(result)
        elif name in ("write", "pwrite64", "ftruncate"):
            here = arguments.split(",")[0] in inside
        else:
            here = str(folder) in arguments
        if here:
            found.append((name, seen[name]))
    return found


def killed(shape: tuple[int, int], root: Path) -> Counter[str]:
    """What is left after a kill before each call that changes the folder."""
    folder, old, new, log = root / "out", root / "old", model(2), root / "log"
    sizes = [limit(shards) for shards in shape]
    model(1).save_pretrained(old, max_shard_size=sizes[0])
    outcomes: Counter[str] = Counter()

    def save() -> None:
        new.save_pretrained(folder, max_shard_size=sizes[1])

    def once(options: list[str]) -> int:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(old, folder)
        return traced(save, options, log)

    assert once([]) == 0
    for name, number in changes(log, folder):
        assert once(["-e", f"inject={name}:signal=KILL:when={number}"]) == -signal.SIGKILL
        outcomes[left(folder)] += 1
    return outcomes


def full(shape: tuple[int, int], root: Path) -> Counter[str]:
    """What is left where the disk is full from the n-th write on, for every n."""
    folder, old, new, log = root / "out", root / "old", model(2), root / "log"
    sizes = [limit(shards) for shards in shape]
    model(1).save_pretrained(old, max_shard_size=sizes[0])
    outcomes: Counter[str] = Counter()
    for number in range(1, 1000):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(old, folder)
        code = traced(
            lambda: new.save_pretrained(folder, max_shard_size=sizes[1]),
            ["-e", f"inject=write,pwrite64:error=ENOSPC:when={number}+"],
            log,
        )
        if code == 0:
            break
        outcomes[left(folder)] += 1
    return outcomes


def races(count: int, root: Path) -> Counter[str]:
    """What two writers of three shards each leave when they are let go at the same time."""
    size, folder = limit(3), root / "out"
    made = [model(1), model(2)]
    outcomes: Counter[str] = Counter()
    for _ in range(count):
        shutil.rmtree(folder, ignore_errors=True)
        children = [forked(lambda one=one: one.save_pretrained(folder, max_shard_size=size)) for one in made]
        for child in children:
            os.kill(child, signal.SIGCONT)
        for child in children:
            os.waitpid(child, 0)
        outcomes["one of the two" if (state := left(folder)) in ("old", "new") else state] += 1
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--races", type=int, default=20)
    options = parser.parse_args()
    if shutil.which("strace") is None:
        sys.exit("strace is not installed")
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    torch.set_num_threads(1)  # threads would not survive the forks
    with tempfile.TemporaryDirectory() as name:
        for number, (title, shape) in enumerate(SHAPES.items()):
            show(f"SIGKILL, {title}", killed(shape, fresh(name, f"kill-{number}")))
        show("disk full from the n-th write on, 3 shards over 3", full((3, 3), fresh(name, "full")))
        show(f"two writers at once, {options.races} races", races(options.races, fresh(name, "races")))


def fresh(root: str, name: str) -> Path:
    folder = Path(root) / name
    folder.mkdir()
    return folder


def show(title: str, outcomes: Counter[str]) -> None:
    found = ", ".join(f"{key} {count}" for key, count in outcomes.items())
    print(f"{title} ({outcomes.total()}): {found}", flush=True)


if __name__ == "__main__":
    main()
