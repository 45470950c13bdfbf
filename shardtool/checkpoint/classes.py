"""Which classes a ``model_index.json`` may name: those of diffusers and transformers alone."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from shardtool.checkpoint.folder import PipelineFolder
from shardtool.checkpoint.names import PIPELINE_NAME
from shardtool.errors import Problem

_WITHOUT_WEIGHTS = re.compile(
    r"(Tokenizer(Fast)?|Scheduler|Processor(Fast|Pil)?|FeatureExtractor|Watermarker|Guidance)$"
)


def needs_weights(class_name: str) -> bool:
    """Whether a component of that class is a model; tokenizers, schedulers and processors are not."""
    return _WITHOUT_WEIGHTS.search(class_name) is None


def class_problem(path: Path, component: str, library: str, class_name: str) -> Problem | None:
    """What is wrong with a component's class, as ``path``, a ``model_index.json``, names it; ``None`` if nothing."""
    known = library in ("diffusers", "transformers") or library in _pipeline_modules()
    if known and class_name.isidentifier() and not class_name.startswith("_"):
        return None
    message = f"{path}: {component} is {class_name!r:.80} of {library!r:.80}, no class of diffusers or transformers"
    return Problem("foreign_class", message, str(path), hint="code that comes with a checkpoint is never run here")


def class_problems(pipeline: PipelineFolder) -> Iterator[Problem]:
    """What is wrong with the classes of a pipeline and of its components."""
    path = pipeline.path / PIPELINE_NAME
    if pipeline.custom_module is not None:
        message = f"{path}: the pipeline's class {pipeline.class_name} is in {pipeline.custom_module!r:.80}, own code"
        yield Problem("custom_code", message, str(path), hint="code that comes with a checkpoint is never run here")
    for name, (library, class_name) in pipeline.components.items():
        if problem := class_problem(path, name, library, class_name):
            yield problem


@cache
def _pipeline_modules() -> frozenset[str]:
    """The modules of ``diffusers.pipelines``, which a few components name; found as files, nothing is imported."""
    spec = importlib.util.find_spec("diffusers")
    places = spec.submodule_search_locations if spec else None
    found = (entry.stem for place in places or () for entry in Path(place, "pipelines").glob("*"))
    return frozenset(name for name in found if name.isidentifier() and not name.startswith("_"))
