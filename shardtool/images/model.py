"""Which pipeline a run uses, and what its configs say that pictures depend on. Reads JSON, no weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from shardtool.checkpoint.strict_json import read_json_object
from shardtool.errors import InputError, UsageError
from shardtool.families import latent_factor
from shardtool.images.inputs import image_size
from shardtool.images.settings import MAX_SIDE, Settings
from shardtool.parts import PipelineParts
from shardtool.source import DEMO, HubSource, LocalSource, demo_path, parse_source

SDXL_BASE: Final = "stabilityai/stable-diffusion-xl-base-1.0"

SUPPORTED: Final = ("StableDiffusionXLPipeline", "StableDiffusionPipeline")
"""Pipeline classes that pictures can be made with."""

_SHAPE_KEYS: Final = (
    *("cross_attention_dim", "block_out_channels", "transformer_layers_per_block", "layers_per_block"),
    *("projection_class_embeddings_input_dim", "addition_time_embed_dim", "in_channels", "out_channels"),
)
_SDXL_SHAPE: Final[Mapping[str, Any]] = {
    "cross_attention_dim": 2048,
    "block_out_channels": [320, 640, 1280],
    "transformer_layers_per_block": [1, 2, 10],
    "layers_per_block": 2,
    "projection_class_embeddings_input_dim": 2816,
    "addition_time_embed_dim": 256,
    "in_channels": 4,
    "out_channels": 4,
}


@dataclass(frozen=True)
class Base:
    """The pipeline that the other components come from: a source as typed, and a sentence that says why this one."""

    source: str
    reason: str | None = None


def choose_base(model: str | None, unet: str | None, default: str | None, unet_path: Path | None = None) -> Base:
    """The base pipeline that ``--model`` and ``--unet`` mean together; ``default`` stands in where neither says.

    ``unet_path`` is where the UNet is on this machine.

    A UNet inside a pipeline takes that pipeline. Any other is compared with the known bases by its config, and
    ``UsageError`` asks for ``--model`` where it is none of theirs.
    """
    if model is not None:
        return Base(model)
    if unet is not None:
        return _base_of_unet(unet, default, unet_path)
    if default is not None:
        return Base(default, f"model: {default}, from SHARDTOOL_MODEL or the config file")
    return Base(
        DEMO, "model: the embedded demo (64×64 emoji); --model takes a folder or a Hub repo, as does SHARDTOOL_MODEL"
    )


def _base_of_unet(unet: str, default: str | None, unet_path: Path | None) -> Base:
    source = parse_source(unet)
    path = source.path if isinstance(source, LocalSource) else unet_path
    folder = None if path is None else path if path.is_dir() else path.parent
    if isinstance(source, HubSource):
        if source.subfolder is not None or (folder is not None and (folder / "model_index.json").exists()):
            revision = f"@{source.revision}" if source.revision else ""
            return Base(f"{source.repo}{revision}", f"model: {source.repo}, which the UNet is part of")
    elif folder is not None:
        for place in (folder, folder.parent, folder.resolve().parent):
            if (place / "model_index.json").exists():
                return Base(str(place), f"model: {place}, which the UNet is part of")
    if folder is not None and (known := _known_base(folder / "config.json")):
        return known
    if default is not None:
        return Base(default, f"model: {default}, from SHARDTOOL_MODEL or the config file")
    raise UsageError(
        f"--unet {unet} does not say which pipeline it belongs to",
        code="model_needed",
        hint="name that pipeline with --model FOLDER or --model ORG/NAME",
    )


def _known_base(config_path: Path) -> Base | None:
    if not config_path.exists():
        return None
    shape = _shape(read_json_object(config_path, code="config_invalid"))
    demo = read_json_object(demo_path() / "unet" / "config.json", code="config_invalid")
    if shape == _shape(demo):
        return Base(DEMO, "model: the embedded demo, whose UNet has this shape")
    if shape == _SDXL_SHAPE:
        return Base(SDXL_BASE, f"model: {SDXL_BASE}, whose UNet has this shape")
    return None


def _shape(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: config.get(key) for key in _SHAPE_KEYS}


def require_supported(class_name: str) -> None:
    """Raises ``InputError`` for a kind of pipeline that pictures cannot be made with here."""
    if class_name not in SUPPORTED:
        raise InputError(
            f"{class_name} is no pipeline that pictures are made with here",
            code="pipeline_unsupported",
            hint="supported are " + ", ".join(SUPPORTED),
        )


def short_name(base: LocalSource | HubSource) -> str:
    """What a model is called in file names and captions."""
    if isinstance(base, HubSource):
        return base.repo.rpartition("/")[2]
    return DEMO if base.path == demo_path() else base.path.resolve().name


@dataclass(frozen=True)
class ModelFacts:
    """What pictures depend on: pixels of the model's own size, and what sides must be multiples of."""

    width: int
    height: int
    multiple: int
    class_name: str

    @classmethod
    def of(cls, parts: PipelineParts) -> ModelFacts:
        """Read from the configs of ``parts``: the size as diffusers' pipelines derive it (0.42.1)."""
        unet = parts.config("unet") or parts.config("transformer") or {}
        scale = latent_factor(parts.config("vae") or {})
        sample = unet.get("sample_size")
        rows, columns = sample if isinstance(sample, list) and len(sample) == 2 else (sample, sample)
        rows, columns = (side if type(side) is int and 0 < side <= MAX_SIDE else 128 for side in (rows, columns))
        return cls(columns * scale, rows * scale, max(8, scale), parts.class_name)

    def complete(self, settings: Settings) -> Settings:
        """``settings`` with the model's size where none was named. Raises ``UsageError`` for a size it cannot make.

        Image to image takes its size from the image, rounded down to what the model can make.
        """
        for name, side in (("width", settings.width), ("height", settings.height)):
            if side is not None and side % self.multiple:
                lower = side - side % self.multiple
                near = " or ".join(str(one) for one in (lower, lower + self.multiple) if one)
                raise UsageError(
                    f"--{name} {side} is not a multiple of {self.multiple}, as this model needs",
                    code=f"{name}_invalid",
                    hint=f"--{name} {near}",
                )
        width, height = self.width, self.height
        if settings.image is not None:
            width, height = (max(side // self.multiple, 1) * self.multiple for side in image_size(settings.image))
        if settings.mask is not None:
            image_size(settings.mask)
        return replace(settings, width=settings.width or width, height=settings.height or height)
