"""The model that a config describes, built on the meta device: names and shapes, and no memory."""

from __future__ import annotations

from typing import Any

import diffusers
import torch
from diffusers.models.modeling_utils import no_init_weights

from shardtool.classes import library_config, model_class
from shardtool.errors import InputError
from shardtool.foreign_code import failing_as
from shardtool.part import Part
from shardtool.quiet import quiet

SLACK = 10_000
"""Parameters a model may have beyond four for each stored tensor, before its config is refused as absurd."""


def build_on_meta(part: Part) -> Any:
    """The model of a part with weights, built on the meta device: names and shapes, no memory.

    A config can ask for any number of layers; building stops as soon as the model has far more parameters than the
    headers hold tensors. Raises ``InputError`` where no model can be made from the config.
    """
    found = model_class(part)
    limit = 4 * len(part.stored) + SLACK
    count = 0

    def cap(module: torch.nn.Module, name: str, item: object) -> None:  # noqa: ARG001 (torch calls it so)
        nonlocal count
        count += 1
        if count > limit:
            parts = f"a model of more than {limit:,} parts, and the weights are {len(part.stored):,} tensors"
            raise _bad_config(part, f"asks for {parts}")

    def unusable(reason: str) -> InputError:
        return _bad_config(part, f"{part.class_name} cannot be built from it: {reason}")

    parameters = torch.nn.modules.module.register_module_parameter_registration_hook(cap)
    modules = torch.nn.modules.module.register_module_module_registration_hook(cap)
    try:
        with quiet(), no_init_weights(), torch.device("meta"), failing_as(unusable):
            return _construct(found, part)
    finally:
        parameters.remove()
        modules.remove()


def _construct(found: Any, part: Part) -> Any:
    if issubclass(found, diffusers.ModelMixin):
        return found.from_config(dict(part.config or {}))
    return found(library_config(part))


def _bad_config(part: Part, message: str) -> InputError:
    return InputError(
        f"{part.config_path}: {message}",
        code="config_invalid",
        path=part.config_path,
        hint="fetch the config.json that belongs to these weights",
    )
