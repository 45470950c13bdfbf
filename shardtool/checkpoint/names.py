"""The file names of diffusers and transformers, variants included.

::

    STEM[.VARIANT].safetensors                       one file
    STEM[.VARIANT]-00001-of-00003.safetensors        a shard
    STEM-00001-of-00003[.VARIANT].safetensors        a shard, diffusers' older spelling of variants (read, not written)
    STEM.safetensors.index[.VARIANT].json            the index
    STEM.safetensors[.VARIANT].index.json            the index, an older spelling (read, not written)
    config.json                                      the class of a component, and its size
    model_index.json                                 the components of a pipeline, one folder each

STEM is ``diffusion_pytorch_model`` or ``model`` in a component folder. Any other single file keeps its own stem, in
which no variant can be told apart. Source: ``diffusers.utils.constants`` and ``transformers.utils`` (0.42.1, 5.24.0).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PIPELINE_NAME = "model_index.json"
CONFIG_NAME = "config.json"
SCHEDULER_NAME = "scheduler_config.json"
SETTINGS_NAMES = (SCHEDULER_NAME, "tokenizer_config.json", "preprocessor_config.json", "processor_config.json")
"""What a component without weights is known by."""

COMPONENT_STEMS = ("diffusion_pytorch_model", "model")
PICKLE_STEMS = {"diffusion_pytorch_model": "diffusion_pytorch_model", "model": "pytorch_model"}
"""What diffusers and transformers call the pickled twin of a safetensors file, without ``.bin``."""

_SHARD = re.compile(r"(?P<head>.+)-(?P<number>\d{5,})-of-(?P<count>\d{5,})(?:\.(?P<late>[^.]+))?", re.ASCII)
_INDEX = re.compile(r"(?P<stem>.+)\.safetensors(?:\.(?P<early>[^.]+))?\.index(?:\.(?P<variant>[^.]+))?\.json")
_PICKLE = re.compile(r"(?P<head>.+)\.bin(?P<index>\.(?:[^.]+\.)?index(?:\.[^.]+)?\.json)?")


@dataclass(frozen=True, order=True)
class WeightsName:
    """What a checkpoint is called: its stem, and its variant (``None`` for the default one)."""

    stem: str
    variant: str | None = None

    @property
    def base(self) -> str:
        return self.stem if self.variant is None else f"{self.stem}.{self.variant}"

    @property
    def single(self) -> str:
        """The name of the one file: ``diffusion_pytorch_model.fp16.safetensors``."""
        return f"{self.base}.safetensors"

    @property
    def index(self) -> str:
        """The name of the index: ``diffusion_pytorch_model.safetensors.index.fp16.json``."""
        return f"{self.stem}.safetensors.index.{self.variant + '.' if self.variant else ''}json"

    def shard(self, number: int, count: int) -> str:
        """The name of shard ``number`` (from 1) of ``count``."""
        return f"{self.base}-{number:05d}-of-{count:05d}.safetensors"


@dataclass(frozen=True)
class ParsedName:
    """What a file name says. ``number`` and ``count`` are given for shards; ``legacy`` marks the older spellings."""

    name: WeightsName
    number: int | None = None
    count: int | None = None
    is_index: bool = False
    legacy: bool = False

    @property
    def is_shard(self) -> bool:
        return self.number is not None


def parse_name(filename: str) -> ParsedName | None:
    """What ``filename`` means, or ``None`` if it is neither a safetensors file nor an index of some."""
    if found := _INDEX.fullmatch(filename):
        early, variant = found["early"], found["variant"]
        return ParsedName(WeightsName(found["stem"], variant or early), is_index=True, legacy=early is not None)
    if not filename.endswith(".safetensors") or filename == ".safetensors":
        return None
    bare = filename.removesuffix(".safetensors")
    if found := _SHARD.fullmatch(bare):
        name = _split_variant(found["head"])
        if late := found["late"]:
            name = WeightsName(found["head"], late)
        return ParsedName(name, int(found["number"]), int(found["count"]), legacy=late is not None)
    return ParsedName(_split_variant(bare))


def parse_pickle(filename: str) -> WeightsName | None:
    """Which component's weights ``filename`` holds, or indexes, in pickled form; ``None`` if those of none.

    ``diffusion_pytorch_model.fp16.bin`` and ``pytorch_model-00001-of-00002.bin`` are the twins of what would be called
    ``diffusion_pytorch_model.fp16.safetensors`` and a shard of ``model.safetensors``.
    """
    found = _PICKLE.fullmatch(filename)
    parsed = parse_name(f"{found['head']}.safetensors{found['index'] or ''}") if found else None
    if parsed is None:
        return None
    base = parsed.name.base
    for stem, pickled in PICKLE_STEMS.items():
        if base == pickled or base.startswith(f"{pickled}."):
            variant = parsed.name.variant or base.removeprefix(pickled).removeprefix(".")
            return WeightsName(stem, variant or None)
    return None


def _split_variant(base: str) -> WeightsName:
    for stem in COMPONENT_STEMS:
        variant = base.removeprefix(stem + ".")
        if variant != base and variant and "." not in variant:
            return WeightsName(stem, variant)
    return WeightsName(base)


def plain_name_fault(name: object) -> str | None:
    """Why ``name`` is not a plain file name of a shard, or ``None`` if it is one.

    Judged by the text alone: every file of a Hub snapshot is a link out of its folder, so resolved paths say nothing.
    """
    if not isinstance(name, str):
        return f"is {type(name).__name__}, not text"
    if name in ("", ".", "..") or "/" in name or "\\" in name or (len(name) > 1 and name[1] == ":"):
        return "is not a plain file name"
    if any(ord(char) < 32 or ord(char) == 127 for char in name):
        return "holds control characters"
    if len(name.encode("utf-8", "surrogatepass")) > 255:
        return "is longer than 255 bytes"
    return None if name.endswith(".safetensors") else "does not end in .safetensors"
