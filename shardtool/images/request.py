"""Everything a run of ``generate`` is asked, in groups that mean something.

Each group is a dataclass whose fields are options with their defaults; ``shardtool.images.layers`` fills them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Literal

from shardtool.errors import UsageError
from shardtool.images.jobs import Seeding
from shardtool.images.layers import Layers
from shardtool.images.outputs import Target
from shardtool.images.prompts import Asked, read_prompts
from shardtool.images.record import Level
from shardtool.images.resolve import ModelChoice
from shardtool.images.settings import Settings
from shardtool.placement import Request as PlacementRequest
from shardtool.placement import check_words


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
    batch_size: int = 1

    def __post_init__(self) -> None:
        check_words(PlacementRequest(self.device, self.dtype, self.offload))
        if self.batch_size < 1:
            raise UsageError(f"--batch-size {self.batch_size} is less than 1", code="batch_size_invalid")


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
        starts = settings.image is not None or any("image" in one.settings for one in asked)
        if layers.flags.get("strength") is not None and not starts:
            raise UsageError("--strength needs --image", code="strength_without_image", hint="add --image FILE")
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
    found = re.fullmatch(r"(\d{1,9})[xX×](\d{1,9})", size)
    if found is None:
        raise UsageError(f'--size "{size:.80}" is no size', code="size_invalid", hint="write 1024x768, width first")
    return replace(settings, width=int(found[1]), height=int(found[2]))


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
