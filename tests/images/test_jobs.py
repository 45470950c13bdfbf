"""From prompts and seeds to pictures with names."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

from shardtool.errors import InputError, RefusedError, UsageError
from shardtool.events import Event, Note
from shardtool.images.jobs import Seeding, plan_jobs
from shardtool.images.layers import Layers
from shardtool.images.model import ModelFacts
from shardtool.images.outputs import Target
from shardtool.images.plan import plan_run
from shardtool.images.prompts import Asked
from shardtool.images.request import Request
from shardtool.images.settings import Settings

NOW = datetime(2026, 12, 1, tzinfo=UTC)
FACTS = ModelFacts(1024, 768, 8, "StableDiffusionXLPipeline")


def planned(*asked: Asked, settings: Settings | None = None, seeding: Seeding | None = None) -> list[tuple[str, int]]:
    drawn = count(100)
    jobs = plan_jobs(
        asked,
        settings or Settings(),
        seeding or Seeding(),
        Target("o/{index}"),
        FACTS,
        "m",
        now=NOW,
        draw=lambda: next(drawn),
    )
    assert [job.index for job in jobs] == list(range(1, len(jobs) + 1))
    return [(job.settings.prompt, job.seed) for job in jobs]


def test_every_prompt_with_every_seed_in_order() -> None:
    seeding = Seeding(("1-2",), 2)
    assert planned(Asked("a"), Asked("b"), seeding=seeding) == [(one, seed) for one in "ab" for seed in (1, 2, 3)]


def test_a_line_of_a_file_wins_over_the_options() -> None:
    asked = (Asked("a", seeds=(5,), count=2), Asked("b", {"steps": 3}))
    assert planned(*asked, seeding=Seeding(("1",))) == [("a", 5), ("a", 6), ("b", 1)]


def test_a_seed_is_drawn_for_each_prompt() -> None:
    assert planned(Asked("a"), Asked("b"), seeding=Seeding(count=2)) == [("a", 100), ("a", 101), ("b", 101), ("b", 102)]


def test_the_models_size_is_filled_in_and_checked() -> None:
    assert FACTS.complete(Settings()).width == 1024
    assert FACTS.complete(Settings(height=64)) == Settings(width=1024, height=64)
    with pytest.raises(UsageError) as error:
        FACTS.complete(Settings(width=1025))
    assert error.value.hint == "--width 1024 or 1032"


def test_a_bad_line_of_a_file_is_an_input_error_with_its_line() -> None:
    with pytest.raises(InputError, match=r"p\.txt, line 3: --steps 0"):
        planned(Asked("a", {"steps": 0}, where="p.txt, line 3"))
    with pytest.raises(UsageError):
        planned(Asked("a", {"steps": 0}))


def test_a_plan_refuses_to_write_over_any_of_its_files(tmp_path: Path) -> None:
    request = Request.read(
        Layers({"prompts": ["dog"], "seed": ["7"], "output": f"{tmp_path}/", "sidecar": True}), lambda: b""
    )
    told: list[Event] = []
    plan = plan_run(request, now=NOW, on_event=told.append)
    assert [job.path for job in plan.jobs] == [tmp_path / "dog-7.png"]
    assert [event.code for event in told if isinstance(event, Note)] == ["model_chosen"]
    (tmp_path / "dog-7.json").touch()
    with pytest.raises(RefusedError, match=r"dog-7\.json exists"):
        plan_run(request, now=NOW)
