"""What a run of ``generate`` will make, and with what, decided before anything is loaded.

Planning reads configs, tokenizers and prompts files; it loads no weights and no torch, so ``--dry-run`` ends here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from shardtool.events import Listener, Note, ignore
from shardtool.images.contact import SHEET_NAME
from shardtool.images.doubts import tell_doubts
from shardtool.images.gallery import GALLERY_NAME
from shardtool.images.identity import config_digests, hash_file
from shardtool.images.jobs import plan_jobs
from shardtool.images.outputs import refuse_existing
from shardtool.images.record import Lora, Model
from shardtool.images.replay import Expectation, Replay
from shardtool.images.request import Request
from shardtool.images.resolve import ResolvedModel, resolve_model
from shardtool.images.seeds import draw_seed
from shardtool.images.settings import Job
from shardtool.images.tokens import PromptLength, check_prompts, read_tokenizers
from shardtool.source import demo_path

_SEEDS_SHOWN = 50
"""Seeds that are told of as they are drawn; each image carries its own."""


@dataclass(frozen=True)
class Plan:
    """What will be made, and with what.

    ``lengths`` are the prompts' in tokens, by the job's index. ``replay`` is the image that is made again, ``expected``
    what it must meet; ``begun`` the file of latents of the one picture that goes on.
    """

    request: Request
    model: ResolvedModel
    jobs: tuple[Job, ...]
    lengths: Mapping[int, tuple[PromptLength, ...]] = field(default_factory=dict)
    replay: Replay | None = None
    expected: Expectation | None = None
    begun: Path | None = None

    @property
    def writes_nothing(self) -> bool:
        """A replay that is only compared: it is asked for a verdict, and no place for the image is named."""
        return self.expected is not None and self.request.target.output is None

    @property
    def keeps_ledger(self) -> bool:
        target = self.request.target
        return not (target.to_stdout or self.writes_nothing) and (len(self.jobs) > 1 or target.skip_existing)

    def identify(self, fingerprints: Mapping[str, str]) -> Model:
        """The identity of the model, with the options that change its pixels."""
        machine, model = self.request.machine, self.model
        options: dict[str, Any] = {name: True for name in ("vae_tiling", "compile") if getattr(machine, name)}
        if self.request.conduct.on_long_prompt == "chunk":
            options["on_long_prompt"] = "chunk"
        if model.variant is not None:
            options["variant"] = model.variant
        loras = tuple(Lora(lora.source, lora.scale, hash_file(lora.path)) for lora in model.loras)
        configs = config_digests(model.parts)
        name, source = model.name, model.base.source
        return Model(
            name, model.facts.class_name, source, model.override_sources, fingerprints, loras, options, configs
        )


def plan_run(
    request: Request,
    *,
    now: datetime,
    draw: Callable[[], int] = draw_seed,
    replay: Replay | None = None,
    expected: Expectation | None = None,
    begun: Path | None = None,
    headers: ExitStack | None = None,
    on_event: Listener = ignore,
) -> Plan:
    """Resolve the model and plan every picture. Raises ``RefusedError`` where a file would be overwritten.

    With ``headers``, which outlives the plan, nothing large is downloaded: the plan can be shown, not carried out.
    """
    model = resolve_model(request.choice, request.default_model, headers=headers, on_event=on_event)
    target = request.target
    drawn: list[int] = []

    def draw_and_remember() -> int:
        drawn.append(draw())
        return drawn[-1]

    jobs = plan_jobs(
        request.asked,
        request.settings,
        request.seeding,
        target,
        model.facts,
        model.name,
        now=now,
        draw=draw_and_remember,
    )
    if request.machine.batch_size > 1:
        text = "--batch-size: images are made one by one all the same, so that each depends on its own seed alone"
        on_event(Note("one_by_one", text))
    if drawn:
        more = f" and {len(drawn) - _SEEDS_SHOWN:,} more" if len(drawn) > _SEEDS_SHOWN else ""
        on_event(Note("seed_drawn", f"seed: {', '.join(map(str, drawn[:_SEEDS_SHOWN]))}{more}, drawn"))
    prompts = (job.settings.prompt for job in jobs)
    tell_doubts(prompts, of_demo=model.path == demo_path(), on_event=on_event)
    lengths = check_prompts(jobs, read_tokenizers(model.parts), request.conduct.on_long_prompt, on_event)
    plan = Plan(request, model, jobs, lengths, replay, expected, begun)
    if not (target.overwrite or target.skip_existing or plan.writes_nothing):
        refuse_existing([*_files_of(plan)])
    return plan


def _files_of(plan: Plan) -> Iterator[Path]:
    delivery, folder = plan.request.delivery, plan.request.target.folder
    for job in plan.jobs:
        if job.path is not None:
            yield job.path
            if delivery.sidecar:
                yield job.path.with_suffix(".json")
    if delivery.grid:
        yield folder / SHEET_NAME
    if delivery.gallery:
        yield folder / GALLERY_NAME


def steps_of(jobs: Sequence[Job]) -> int:
    return sum(job.settings.steps_run for job in jobs)
