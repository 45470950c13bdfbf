"""Load a component whose weights are quantised, by its own class: the quantiser alone knows what its tensors mean.

Whole files, sound headers and the absence of pickles are checked before; afterwards, that nothing is missing and
nothing is left on meta.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch

from shardtool.classes import model_class
from shardtool.dtypes import TORCH_DTYPES
from shardtool.errors import InputError, RefusedError
from shardtool.needs import Dtype
from shardtool.parts import Part
from shardtool.quiet import quiet

_PACKAGES = {
    "bitsandbytes": ("bitsandbytes", "bitsandbytes"),
    "torchao": ("torchao", "torchao"),
    "quanto": ("optimum", "optimum-quanto"),
    "modelopt": ("modelopt", "nvidia-modelopt"),
}
"""Method → the module it is imported as, and the package that has it; of other methods the libraries speak."""

_FAULTS = ("missing_keys", "unexpected_keys", "mismatched_keys")


def load_quantised(part: Part, device: str, dtype: Dtype) -> Any:
    """The model of a part with ``quantization_config``, on ``device``; what is not quantised in it is in ``dtype``.

    Raises ``RefusedError`` where its quantiser is not installed or does not work here, and ``InputError`` where the
    weights are not all that the model wants.
    """
    module, package = _PACKAGES.get(part.quantised or "", ("", ""))
    if module and find_spec(module) is None:
        raise RefusedError(
            f"{part.config_path}: is quantised with {part.quantised}, which is not installed",
            code="quantiser_missing",
            path=part.config_path,
            hint=f"pip install {package}",
        )
    variant = part.checkpoint.name.variant if part.checkpoint else None
    try:
        with quiet():
            model, told = model_class(part).from_pretrained(
                part.folder,
                variant=variant,
                dtype=TORCH_DTYPES[dtype],
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
            )
            if next(model.parameters()).device.type != torch.device(device).type:
                model = model.to(device)
    except Exception as error:  # quantisers are foreign code, and many want hardware that is not here
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RefusedError(
            f"{part.config_path}: is quantised with {part.quantised}, and cannot be loaded to {device}: {reason:.300}",
            code="quantised",
            path=part.config_path,
            hint="use the weights that it was made from, or a device that its quantiser works on",
        ) from error
    _check_whole(part, model, told)
    return model.eval()


def _check_whole(part: Part, model: Any, told: Any) -> None:
    wrong = [f"{key.removesuffix('_keys')}: {sorted(map(str, told[key]))[:3]}" for key in _FAULTS if told.get(key)]
    wrong += [f"on meta: {name}" for name, parameter in model.named_parameters() if parameter.is_meta][:3]
    if wrong:
        raise InputError(
            f"{part.folder}: the weights do not fit {part.class_name}: {'; '.join(wrong)}",
            code="tensor_missing",
            path=part.folder,
            hint="fetch the whole checkpoint again",
        )
