"""The model of a run: sources as typed, to local folders whose configs are read and fit each other. No weights."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.header import read_header
from shardtool.errors import InputError, UsageError
from shardtool.events import Listener, Note, ignore
from shardtool.fit import require_partners
from shardtool.images.model import Base, ModelFacts, choose_base, require_supported, short_name
from shardtool.obtain import local_path, structure_of
from shardtool.parts import PipelineParts, read_parts
from shardtool.replacements import SHORT, find_replacements, read_replacements
from shardtool.source import LocalSource, parse_source


@dataclass(frozen=True)
class ModelChoice:
    """What to make pictures with, as typed. ``component`` entries are ``NAME=SOURCE``, those of ``lora`` are ``SOURCE``
    or ``SOURCE:SCALE``."""

    model: str | None = None
    unet: str | None = None
    vae: str | None = None
    text_encoder: str | None = None
    text_encoder_2: str | None = None
    component: tuple[str, ...] = ()
    lora: tuple[str, ...] = ()
    variant: str | None = None
    revision: str | None = None
    offline: bool = False

    def __post_init__(self) -> None:
        _ = self.replacements  # a text of another form is told before anything is looked for

    @property
    def replacements(self) -> dict[str, str]:
        """Component → source as typed, of those that are not the model's own."""
        return read_replacements({name: getattr(self, name) for name in SHORT}, self.component)


@dataclass(frozen=True)
class LoraFile:
    """A LoRA's weights file, as typed and where it is."""

    source: str
    path: Path
    scale: float


@dataclass(frozen=True)
class ResolvedModel:
    """The base pipeline's folder, the components from elsewhere, and what the configs of all of them say."""

    base: Base
    name: str
    path: Path
    local: bool
    parts: PipelineParts
    facts: ModelFacts
    overrides: Mapping[str, Path] = field(default_factory=dict)
    override_sources: Mapping[str, str] = field(default_factory=dict)
    loras: tuple[LoraFile, ...] = ()
    variant: str | None = None


def resolve_model(
    choice: ModelChoice, default: str | None, *, headers: ExitStack | None = None, on_event: Listener = ignore
) -> ResolvedModel:
    """Find everything that ``choice`` names. ``default`` stands in for ``model``.

    What is on the Hub is downloaded; with ``headers`` only its structure, until that is closed. Raises ``InputError``
    where something is missing or does not fit, before any weight is read.
    """
    loras = tuple(_find_lora(text, choice, on_event) for text in choice.lora)
    variant, offline, typed = choice.variant, choice.offline, choice.replacements
    overrides = find_replacements(typed, variant=variant, offline=offline, headers=headers, on_event=on_event)
    base = choose_base(choice.model, typed.get("unet"), default, overrides.get("unet"))
    if base.reason:
        on_event(Note("model_chosen", base.reason))
    source = parse_source(base.source, revision=choice.revision if choice.model else None)
    if headers is None:
        path = local_path(source, variant=variant, without=tuple(overrides), offline=offline, on_event=on_event)
    else:
        path = headers.enter_context(structure_of(source, variant=variant, offline=offline, on_event=on_event))
    parts = read_parts(path, overrides, variant=variant)
    require_supported(parts.class_name)
    require_partners(parts)
    return ResolvedModel(
        base,
        short_name(source),
        path,
        isinstance(source, LocalSource),
        parts,
        ModelFacts.of(parts),
        overrides,
        typed,
        loras,
        variant,
    )


def parse_lora(text: str) -> tuple[str, float]:
    """``SOURCE[:SCALE]`` → source and scale, by default 1. Raises ``UsageError`` for a scale that is no number."""
    source, colon, tail = text.rpartition(":")
    if not colon or Path(text).exists():
        return text, 1.0
    try:
        scale = float(tail)
    except ValueError:
        return text, 1.0  # ORG/NAME:SUBFOLDER
    if not -100 <= scale <= 100:
        raise UsageError(f"--lora {text}: a scale of {tail} is outside -100 to 100", code="lora_invalid")
    return source, scale


def _find_lora(text: str, choice: ModelChoice, on_event: Listener) -> LoraFile:
    typed, scale = parse_lora(text)
    path = local_path(parse_source(typed), offline=choice.offline, on_event=on_event)
    if path.is_dir():
        files = sorted(path.glob("*.safetensors"))
        named = path / "pytorch_lora_weights.safetensors"
        files = [named] if named in files else files
        if len(files) != 1:
            raise InputError(
                f"{path}: holds {len(files)} .safetensors files, so which is the LoRA?",
                code="lora_invalid",
                path=path,
                hint="name the file",
            )
        path = files[0]
    if path.suffix != ".safetensors":
        raise InputError(f"{path}: a LoRA is read from .safetensors only", code="lora_invalid", path=path)
    with OpenFile(path) as file:
        read_header(file)  # damage is told before anything is loaded
    return LoraFile(typed, path, scale)
