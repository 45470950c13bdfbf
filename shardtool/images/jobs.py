"""From prompts and seeds to jobs: every picture of a run with its settings, seed and name, before any is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from shardtool.errors import InputError, UsageError
from shardtool.images.model import ModelFacts
from shardtool.images.outputs import Target, name_images
from shardtool.images.prompts import Asked
from shardtool.images.seeds import draw_seed, parse_seeds, seeds_for
from shardtool.images.settings import Job, Settings


@dataclass(frozen=True)
class Seeding:
    """How many pictures of each prompt. ``seed`` is lists and ranges as typed; without one, one is drawn a prompt."""

    seed: tuple[str, ...] = ()
    count: int = 1

    def __post_init__(self) -> None:
        seeds_for(self.typed, self.count)

    @property
    def typed(self) -> tuple[int, ...]:
        return parse_seeds(",".join(self.seed)) if self.seed else ()


def plan_jobs(
    asked: Sequence[Asked],
    settings: Settings,
    seeding: Seeding,
    target: Target,
    facts: ModelFacts,
    model: str,
    *,
    now: datetime,
    draw: Callable[[], int] = draw_seed,
) -> tuple[Job, ...]:
    """Every picture of the run, in the order of the prompts and, for each, of the seeds.

    What a prompt's line says wins over ``settings`` and ``seeding``. Raises ``UsageError``, or ``InputError`` where a
    line of a prompts file is at fault.
    """
    pictures: list[tuple[int, Settings]] = []
    for one in asked:
        try:
            complete = facts.complete(replace(settings, prompt=one.prompt, **one.settings))
            seeds = seeds_for(one.seeds or seeding.typed, one.count or seeding.count, draw)
        except UsageError as error:
            if one.where is None:
                raise
            raise InputError(f"{one.where}: {error.message}", code=error.code, hint=error.hint) from error
        pictures.extend((seed, complete) for seed in seeds)
    paths = name_images(target, pictures, model, now)
    return tuple(
        Job(index, seed, complete, path)
        for index, ((seed, complete), path) in enumerate(zip(pictures, paths, strict=True), start=1)
    )
