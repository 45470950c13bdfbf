"""Build a diffusers pipeline from a folder and overriding components, in one placement.

What is decided (which part comes from where, whether the parts fit each other, device, dtype, offload) is decided
from configs and headers by ``shardtool.fit`` and ``shardtool.placement``, before any weight is read.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from shardtool.activations import Run
from shardtool.classes import pipeline_class, settings_class
from shardtool.devices import Inventory
from shardtool.dtypes import TORCH_DTYPES
from shardtool.errors import InputError, RefusedError
from shardtool.events import Advanced, Finished, Listener, Started, ignore
from shardtool.foreign_code import failing_as
from shardtool.load_plan import STRICT, Allowed, LoadPlan, plan_pipeline
from shardtool.loading import ComponentReport, load_part, report_on
from shardtool.needs import Dtype
from shardtool.part import Part
from shardtool.parts import PipelineParts
from shardtool.placed import check_placed
from shardtool.placement import Placement, Request
from shardtool.quiet import quiet
from shardtool.recast import Recast


@dataclass(frozen=True)
class BuiltPipeline:
    """A pipeline that is ready to run. ``pipe`` is the diffusers pipeline with its own progress bars off.

    ``components`` is a report for each component with weights: name → class, parameters, dtype, device, bytes, time.
    """

    pipe: Any
    placement: Placement
    components: Mapping[str, ComponentReport]


def build_pipeline(
    base: Path,
    *,
    overrides: Mapping[str, Path | torch.nn.Module] | None = None,
    device: str = "auto",
    dtype: str = "auto",
    offload: str = "auto",
    variant: str | None = None,
    inventory: Inventory | None = None,
    run: Run | None = None,
    force: bool = False,
    allowed: Allowed = STRICT,
    on_event: Listener = ignore,
) -> BuiltPipeline:
    """The pipeline in the folder ``base``, with the components in ``overrides`` instead of its own.

    ``overrides`` is component name (``"unet"``, ``"vae"``, ``"text_encoder"`` …) → a component folder, a weights file
    with its ``config.json`` beside it, a pipeline folder that has the component, or a model that is already loaded
    (then it must be where the pipeline will be, and carry no hooks). An overridden component of ``base`` is not read
    at all, and need not exist. ``variant`` (``"fp16"``) chooses the weights of ``base``.

    ``device`` is ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:N"``, ``"mps"`` or ``"xpu"``; ``dtype`` ``"auto"``,
    ``"fp32"``, ``"fp16"`` or ``"bf16"``; ``offload`` ``"auto"``, ``"none"``, ``"model"``, ``"group"`` or
    ``"sequential"``. ``inventory`` is what the machine has; by default it is read. ``run`` is the size of the pictures,
    for the memory they take. ``force`` goes on where it does not fit by the numbers; ``allowed`` are names of tensors
    that may be missing or unexpected.

    Raises ``InputError`` where a part is missing, damaged or does not fit the others, and ``RefusedError`` where the
    placement is not possible here; both before any weight is read.
    """
    overrides = overrides or {}
    models = {name: given for name, given in overrides.items() if isinstance(given, torch.nn.Module)}
    paths = {name: given for name, given in overrides.items() if isinstance(given, Path)}
    plan = plan_pipeline(
        base,
        Request(device, dtype, offload, force),
        overrides=paths,
        given={name: _config_of(model) for name, model in models.items()},
        run=run,
        variant=variant,
        inventory=inventory,
        on_event=on_event,
    )
    return assemble(plan, models=models, allowed=allowed, on_event=on_event)


def assemble(
    plan: LoadPlan,
    *,
    models: Mapping[str, torch.nn.Module] | None = None,
    allowed: Allowed = STRICT,
    recasts: Mapping[str, Recast] | None = None,
    on_event: Listener = ignore,
) -> BuiltPipeline:
    """Load the parts of a plan for a pipeline and make the pipeline of them; ``models`` are those handed in loaded.

    ``recasts`` are casts that are already under way, by component.
    """
    parts = plan.pipeline
    if parts is None:
        raise AssertionError("a plan for one component makes no pipeline")
    found = pipeline_class(parts)
    modules: dict[str, Any] = dict(models or {})
    reports: dict[str, ComponentReport] = {}
    for name, model in modules.items():
        check_placed(name, model, plan.device)
        _check_dtype(name, model, plan.placement.dtype)
        reports[name] = report_on(name, model, "given", 0.0)
    on_event(Started("load", "Loading the pipeline", len(parts.parts), "components"))
    for name, part in parts.parts.items():
        if part.checkpoint is None:
            modules[name] = _load_settings(part)
        else:
            modules[name], reports[name] = load_part(
                part,
                plan.device,
                plan.placement.dtype,
                allowed=allowed,
                recast=(recasts or {}).get(name),
                on_event=on_event,
            )
        on_event(Advanced("load"))
    pipe = _construct(found, parts, modules)
    _offload(pipe, plan.placement)
    on_event(Finished("load"))
    return BuiltPipeline(pipe, plan.placement, reports)


def _config_of(model: Any) -> Mapping[str, Any]:
    config = getattr(model, "config", {})
    found: Mapping[str, Any] = config if isinstance(config, Mapping) else config.to_dict()
    # A constructor keeps tuples where config.json has lists.
    return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


def _check_dtype(name: str, model: Any, dtype: Dtype) -> None:
    """Raises ``RefusedError`` where a model that was given computes in another dtype than the pipeline."""
    if model.dtype != TORCH_DTYPES[dtype]:
        found = str(model.dtype).removeprefix("torch.")
        raise RefusedError(
            f"{name}: is in {found}, and the pipeline in {dtype}: their numbers cannot be multiplied",
            code="dtype_mixed",
            hint="load it in the pipeline's dtype, or give the pipeline the dtype of the model",
        )


def _load_settings(part: Part) -> Any:
    """A scheduler, a tokenizer or a processor, by its own library."""
    found = settings_class(part)

    def unusable(reason: str) -> InputError:
        message = f"{part.folder}: {part.class_name} cannot be made from it: {reason}"
        return InputError(message, code="component_invalid", path=part.folder, hint="fetch that folder again")

    # Left to itself, transformers asks on the terminal whether code of the checkpoint may be run, and runs it.
    without_code = {} if part.library == "diffusers" else {"trust_remote_code": False}
    with quiet(), failing_as(unusable):
        return found.from_pretrained(part.folder, local_files_only=True, **without_code)


def _construct(found: Any, parts: PipelineParts, modules: Mapping[str, Any]) -> Any:
    """Call the pipeline's constructor with what it takes: its modules, ``None`` for absent ones, its settings."""
    parameters = inspect.signature(found.__init__).parameters
    arguments = {**parts.settings, **modules}
    arguments = {name: value for name, value in arguments.items() if name in parameters}
    required = [name for name, entry in parameters.items() if entry.default is inspect.Parameter.empty]
    absent = [name for name in required if name not in arguments and name != "self"]
    needed = [name for name in absent if name not in found._optional_components]
    if needed:
        raise InputError(
            f"{parts.path / 'model_index.json'}: names no {', '.join(needed)}, which {parts.class_name} needs",
            code="component_missing",
            path=parts.path / "model_index.json",
            hint="fetch the whole pipeline again",
        )
    with quiet():
        pipe = found(**arguments, **dict.fromkeys(absent))
        pipe.register_to_config(_name_or_path=str(parts.path))
    pipe.set_progress_bar_config(disable=True)
    return pipe


def _offload(pipe: Any, placement: Placement) -> None:
    with quiet():
        if placement.offload == "model":
            pipe.enable_model_cpu_offload(device=placement.device)
        elif placement.offload == "sequential":
            pipe.enable_sequential_cpu_offload(device=placement.device)
        elif placement.offload == "group":
            pipe.enable_group_offload(
                onload_device=torch.device(placement.device), offload_type="block_level", num_blocks_per_group=1
            )
