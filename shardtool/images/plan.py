"""Everything a run of ``generate`` is asked, in groups that mean something, and the plan that comes of it.

Planning reads configs, tokenizers and prompts files; it loads no weights and no torch, so ``--dry-run`` ends here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from shardtool.errors import UsageError
from shardtool.events import Listener, Note, ignore
from shardtool.images.contact import SHEET_NAME
from shardtool.images.gallery import GALLERY_NAME
from shardtool.images.identity import hash_file
from shardtool.images.jobs import Seeding, plan_jobs
from shardtool.images.layers import Layers
from shardtool.images.outputs import Target, refuse_existing
from shardtool.images.prompts import Asked, read_prompts
from shardtool.images.record import Level, Lora, Model
from shardtool.images.replay import Expectation, Replay
from shardtool.images.resolve import ModelChoice, ResolvedModel, resolve_model
from shardtool.images.seeds import draw_seed
from shardtool.images.settings import Job, Settings
from shardtool.images.tokens import PromptLength, check_prompts, read_tokenizers


@dataclass(frozen=True)
class Machine:
    """Where and how it runs."""

    device: str = "auto"
    dtype: str = "auto"
    offload: str = "auto"
    force: bool = False
    vae_tiling: bool = False
    vae_slicing: bool = False
    compile: bool = False


@dataclass(frozen=True)
class Delivery:
    """What comes with the images: metadata, and files beside them."""

    metadata: Level = "full"
    sidecar: bool = False
    grid: bool = False
    gallery: bool = False


@dataclass(frozen=True)
class Conduct:
    """What to do when not all is well, or when the run is stopped."""

    on_long_prompt: Literal["warn", "error", "chunk"] = "warn"
    keep_going: bool = False
    keep_latents: bool = False
    preview: bool = False
    preview_every: int | None = None

    def __post_init__(self) -> None:
        if self.preview_every is not None and self.preview_every < 1:
            raise UsageError(f"--preview-every {self.preview_every} is less than 1", code="preview_every_invalid")


@dataclass(frozen=True)
class Request:
    """A whole run as asked for. ``default_model`` stands in for ``--model`` where neither it nor a UNet is named."""

    asked: tuple[Asked, ...]
    settings: Settings
    seeding: Seeding
    target: Target
    choice: ModelChoice
    machine: Machine
    delivery: Delivery
    conduct: Conduct
    default_model: str | None = None

    @classmethod
    def read(cls, layers: Layers, read_stdin: Callable[[], bytes]) -> Request:
        """From options. Raises ``UsageError`` or ``InputError`` for a value that makes no sense."""
        settings = _sized(layers.fill(Settings), layers.fill(_Size).size)
        choice, default = layers.fill(ModelChoice), None
        if layers.flags.get("model") is None and "model" not in layers.record:
            # Named by the environment or the config file it is a default: a UNet's own pipeline comes first.
            default, choice = choice.model, replace(choice, model=None)
        delivery, target = layers.fill(Delivery), layers.fill(Target)
        _check_stdout(target, delivery)
        asked = _asked(layers.fill(_Prompts), layers.record, read_stdin)
        return cls(
            asked,
            settings,
            layers.fill(Seeding),
            target,
            choice,
            layers.fill(Machine),
            delivery,
            layers.fill(Conduct),
            default,
        )


@dataclass(frozen=True)
class _Size:
    size: str | None = None


@dataclass(frozen=True)
class _Prompts:
    prompts: tuple[str, ...] = ()
    prompts_file: str | None = None


_GROUPS = (Settings, _Size, _Prompts, Seeding, Target, ModelChoice, Machine, Delivery, Conduct)


def option_names() -> set[str]:
    """The options that a config file and the environment may set."""
    return {option.name for group in _GROUPS for option in fields(group)} - {"prompt"}


def _check_stdout(target: Target, delivery: Delivery) -> None:
    for name in ("sidecar", "grid", "gallery"):
        if target.to_stdout and getattr(delivery, name):
            raise UsageError(f"--{name} needs a folder, and -o - has none", code="contradiction")


def _sized(settings: Settings, size: str | None) -> Settings:
    if size is None:
        return settings
    if settings.width is not None or settings.height is not None:
        raise UsageError("--size contradicts --width and --height", code="contradiction")
    width, _, height = size.lower().replace("×", "x").partition("x")
    if not (width.isdecimal() and height.isdecimal()):
        raise UsageError(f'--size "{size}" is no size', code="size_invalid", hint="write 1024x768, width first")
    return replace(settings, width=int(width), height=int(height))


def _asked(prompts: _Prompts, record: object, read_stdin: Callable[[], bytes]) -> tuple[Asked, ...]:
    found: list[Asked] = []
    for text in prompts.prompts:
        found.extend(read_prompts("-", read_stdin) if text == "-" else [Asked(text)])
    if prompts.prompts_file is not None:
        found.extend(read_prompts(prompts.prompts_file, read_stdin))
    if not found and isinstance(record, dict) and "prompt" in record:
        found.append(Asked(str(record["prompt"])))
    if not found:
        raise UsageError(
            "no prompt", code="prompt_missing", hint='write one: shardtool generate "a dog", or use --prompts-file FILE'
        )
    return tuple(found)


@dataclass(frozen=True)
class Plan:
    """What will be made, and with what.

    ``lengths`` are the prompts' in tokens, by the job's index. ``replay`` is the image that is made again, ``expected``
    what it must meet; ``begun`` the file of latents of the one picture that goes on. ``alone`` says that one process
    makes all of it.
    """

    request: Request
    model: ResolvedModel
    jobs: tuple[Job, ...]
    lengths: Mapping[int, tuple[PromptLength, ...]] = field(default_factory=dict)
    replay: Replay | None = None
    expected: Expectation | None = None
    begun: Path | None = None
    alone: bool = True

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
        name, source = model.name, model.base.source
        return Model(name, model.facts.class_name, source, model.override_sources, fingerprints, loras, options)


def plan_run(
    request: Request,
    *,
    now: datetime,
    draw: Callable[[], int] = draw_seed,
    replay: Replay | None = None,
    expected: Expectation | None = None,
    begun: Path | None = None,
    alone: bool = True,
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
    if drawn:
        on_event(Note("seed_drawn", f"seed: {', '.join(map(str, drawn))}, drawn"))
    lengths = check_prompts(jobs, read_tokenizers(model.parts), request.conduct.on_long_prompt, on_event)
    plan = Plan(request, model, jobs, lengths, replay, expected, begun, alone)
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
