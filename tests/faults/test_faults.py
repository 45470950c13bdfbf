"""Whatever happens to a run, the target holds the old result or the new one, whole, and nothing lies about."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.checkpoint.referee import tree_sums
from tests.faults.conftest import ALL_SHAPES, Scene, Zygote

EVERY = 400
"""More than the writing calls of any run here: the loops end when a run succeeds."""


@pytest.mark.parametrize("scene", ALL_SHAPES, indirect=True)
def test_killed_before_any_writing_call(scene: Scene, zygote: Zygote) -> None:
    """kill -9 leaves the old result or the new one; the next run clears up and succeeds."""
    source = tree_sums(scene.root / "new")
    states: Counter[str] = Counter()
    for when in range(1, EVERY):
        code, calls, printed = zygote.run(scene.argv, scene.root, when, "kill")
        state = scene.state()
        states[state] += 1
        assert state in ("old", "new"), f"killed before call {when}"
        assert all(name.startswith(".out.shardtool-") for name in scene.leftovers())
        if code == 0:
            break
        assert code == -9, printed
        code, _, printed = zygote.run(scene.argv, scene.root)
        assert (code, scene.state(), scene.leftovers()) == (0, "new", set()), f"after call {when}: {printed}"
        scene.reset()
    else:
        pytest.fail("no run ever succeeded")
    assert calls is not None
    assert when == calls + 1
    assert states["old"] > 10
    assert tree_sums(scene.root / "new") == source
    print(f"{when - 1} kill points: {dict(states)}")


@pytest.mark.parametrize("what", ["ENOSPC", "EIO", pytest.param("EDQUOT", marks=pytest.mark.slow)])
@pytest.mark.parametrize("scene", ALL_SHAPES, indirect=True)
def test_an_error_at_any_writing_call(scene: Scene, zygote: Zygote, what: str) -> None:
    """A full or failing disk is a clean error; the old result stays and nothing is left beside it."""
    for when in range(1, EVERY):
        code, calls, printed = zygote.run(scene.argv, scene.root, when, what)
        if code == 0 and calls is not None and calls < when:
            break
        assert "Traceback" not in printed, printed
        assert scene.leftovers() == set(), f"{what} at call {when}: {printed}"
        if code == 0:  # the call was one that a run can do without
            assert scene.state() == "new", f"{what} at call {when}"
        else:
            assert code in (4, 5), printed
            assert "error: " in printed
            assert scene.state() == ("new" if "is in its place" in printed else "old"), (
                f"{what} at call {when}: {printed}"
            )
        scene.reset()
    else:
        pytest.fail("no run ever succeeded")
    assert scene.state() == "new"


@pytest.mark.parametrize(("what", "expected"), [("int", 130), ("term", 143)])
@pytest.mark.parametrize(
    "scene", ["single over shards", pytest.param("shards over nothing", marks=pytest.mark.slow)], indirect=True
)
def test_interrupted_at_any_writing_call(scene: Scene, zygote: Zygote, what: str, expected: int) -> None:
    """Ctrl-C and SIGTERM clean up: the old result or the new one, no leftovers, no traceback."""
    for when in range(1, EVERY):
        code, calls, printed = zygote.run(scene.argv, scene.root, when, what)
        if code == 0 and calls is not None and calls < when:
            break
        assert "Traceback" not in printed, printed
        assert code == expected, f"at call {when}: {printed}"
        assert scene.state() in ("old", "new")
        assert scene.leftovers() == set(), f"{what} at call {when}: {printed}"
        scene.reset()
    else:
        pytest.fail("no run ever succeeded")
