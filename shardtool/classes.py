"""The class that a part names, taken from diffusers or transformers and from nowhere else."""

from __future__ import annotations

from typing import Any

import diffusers
import diffusers.pipelines
import transformers
from diffusers.models.model_loading_utils import _fetch_remapped_cls_from_config
from diffusers.models.modeling_utils import LegacyModelMixin, ModelMixin
from diffusers.schedulers.scheduling_utils import SchedulerMixin

from shardtool.errors import InputError
from shardtool.part import Part
from shardtool.parts import PipelineParts
from shardtool.quiet import quiet


def model_class(part: Part) -> Any:
    """The model class of a part with weights. Raises ``InputError`` where the libraries have no such model class."""
    found = _class_of(part)
    if not issubclass(found, ModelMixin | transformers.PreTrainedModel):
        raise _no_class(part, "is no model class")
    if issubclass(found, LegacyModelMixin) and isinstance((config := part.config or {}).get("norm_type"), str):
        found = _fetch_remapped_cls_from_config(config, found)
    return found


def library_config(part: Part) -> Any:
    """The config object of a part of transformers.

    How it computes is left to the library: a ``config.json`` may name kernels on the Hub, which are code, and which
    transformers 5.24 fetches and runs where the package ``kernels`` is installed.
    """
    config = model_class(part).config_class.from_pretrained(part.folder, local_files_only=True)
    config._attn_implementation = None
    config._experts_implementation = None
    return config


def settings_class(part: Part) -> Any:
    """The class of a part without weights: a scheduler, a tokenizer, a processor. Raises ``InputError``."""
    found = _class_of(part)
    loadable = (
        SchedulerMixin,
        transformers.PreTrainedTokenizerBase,
        transformers.ProcessorMixin,
        transformers.FeatureExtractionMixin,
        transformers.image_processing_base.ImageProcessingMixin,
    )
    if not issubclass(found, loadable) and part.class_name != "AutoTokenizer":
        raise _no_class(part, "is no scheduler, tokenizer or processor")
    return found


def pipeline_class(parts: PipelineParts) -> Any:
    """The diffusers pipeline class that ``model_index.json`` names. Raises ``InputError`` where there is none."""
    path = parts.path / "model_index.json"
    with quiet():
        found = getattr(diffusers, parts.class_name, None) if parts.class_name.isidentifier() else None
    if not isinstance(found, type) or not issubclass(found, diffusers.DiffusionPipeline):
        raise InputError(
            f"{path}: {parts.class_name!r:.80} is no pipeline class of diffusers {diffusers.__version__}",
            code="foreign_class",
            path=path,
            hint="code that comes with a checkpoint is never run here; a newer diffusers may know the class",
        )
    return found


def _class_of(part: Part) -> type[Any]:
    with quiet():
        if part.library == "diffusers":
            found = getattr(diffusers, part.class_name, None)
        elif part.library == "transformers":
            found = getattr(transformers, part.class_name, None)
        else:
            found = getattr(getattr(diffusers.pipelines, part.library, None), part.class_name, None)
    if not isinstance(found, type) or not found.__module__.startswith(("diffusers.", "transformers.")):
        raise _no_class(part, "is unknown to it")
    return found


def _no_class(part: Part, what: str) -> InputError:
    library = "transformers" if part.library == "transformers" else "diffusers"
    version = {"diffusers": diffusers.__version__, "transformers": transformers.__version__}[library]
    return InputError(
        f"{part.folder}: {part.name} is {part.class_name!r:.80} of {library} {version}, which {what}",
        code="foreign_class",
        path=part.folder,
        hint="code that comes with a checkpoint is never run here; a newer release of the library may know the class",
    )
