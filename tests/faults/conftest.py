"""A process that runs the command line with faults, and the before and after shapes to judge by."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.checkpoint.referee import tree_sums
from tests.checkpoint.test_shard import component, some_tensors

FOREIGN = {"README.md": "mine", ".git/HEAD": "ref: refs/heads/main"}
SHAPES = {
    "3 over 3": ("80KB", "80KB"),
    "5 over 3": ("80KB", "50KB"),
    "3 over 5": ("50KB", "80KB"),
    "shards over single": (None, "80KB"),
    "single over shards": ("80KB", None),
    "single over single": (None, None),
    "shards over nothing": ("nothing", "80KB"),
}


QUICK = {"5 over 3", "single over shards"}
"""The shapes that every run of the suite tries; ``pytest -m slow tests/faults`` tries all the others too."""

ALL_SHAPES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SHAPES]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the slow ones out unless markers are asked for."""
    if not config.option.markexpr:
        here = Path(__file__).parent
        slow = [item for item in items if item.path.parent == here and item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


class Zygote:
    """Runs the command line in forked processes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, argv: list[str], root: Path, when: int = 0, what: str = "kill") -> tuple[int, int | None, str]:
        """Exit code (negative: the signal that ended it), writing calls made (if it lived), and what was printed."""
        log = root / "log"
        request = {"argv": argv, "root": str(root), "when": when, "what": what, "log": str(log)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        printed = log.read_text()
        log.unlink()
        return answer["exit"], answer["calls"], printed


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    script = str(Path(__file__).parent / "zygote.py")
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Zygote(process)
        assert process.stdin is not None
        process.stdin.close()


@dataclass(frozen=True)
class Scene:
    """A source, an older result in the way, and what the target may look like afterwards."""

    root: Path
    argv: list[str]
    old: dict[str, str]
    new: dict[str, str]

    @property
    def target(self) -> Path:
        return self.root / "out"

    def reset(self) -> None:
        """Put the older result back, and nothing else."""
        for path in self.root.iterdir():
            if path.name.startswith(".out.") or path.name == "out":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if (self.root / "kept").exists():
            shutil.copytree(self.root / "kept", self.target)

    def state(self) -> str:
        """``old``, ``new``, or what is wrong."""
        found = tree_sums(self.target) if self.target.exists() else {}
        if found == self.old:
            return "old"
        return "new" if found == self.new else f"neither: {sorted(found)}"

    def leftovers(self) -> set[str]:
        return {path.name for path in self.root.iterdir()} - {"new", "before", "kept", "out"}


def _argv(source: Path, target: Path, size: str | None) -> list[str]:
    limit = ["--max-size", size] if size is not None else ["--max-size", "1GB"]
    return ["shard", str(source), "-o", str(target), "--overwrite", "--progress", "plain", *limit]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: hundreds of runs wait for the disk many times each."""
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=shm) as folder:
        yield Path(folder)


@pytest.fixture
def scene(request: pytest.FixtureRequest, place: Path, zygote: Zygote) -> Scene:
    """The scene of one of ``SHAPES``; a README and a ``.git`` of the user's lie in the older result."""
    before, after = SHAPES[request.param]
    component(place / "before", some_tensors(seed=1))
    component(place / "new", some_tensors(seed=2))
    out, argv = place / "out", _argv(place / "new", place / "out", after)
    if before != "nothing":
        assert zygote.run(_argv(place / "before", out, before), place)[0] == 0
        for name, text in FOREIGN.items():
            (out / name).parent.mkdir(exist_ok=True)
            (out / name).write_text(text)
        shutil.copytree(out, place / "kept")
    old = tree_sums(out) if out.exists() else {}
    code, _, printed = zygote.run(argv, place)
    assert code == 0, printed
    scene = Scene(place, argv, old, tree_sums(out))
    assert scene.old != scene.new
    scene.reset()
    return scene
