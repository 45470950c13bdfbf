"""Load a component whose weights are quantised, by its own class: the quantiser alone knows what its tensors mean.

The library is handed a folder that holds the config and the files that were examined, and nothing else: no pickle, no
adapter, no other weights of the same name, no other variant. Afterwards nothing is missing, and nothing left on meta.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import diffusers
import torch

from shardtool.checkpoint.inventory import Checkpoint
from shardtool.checkpoint.names import CONFIG_NAME
from shardtool.checkpoint.quantisation import known_method
from shardtool.classes import library_config, model_class
from shardtool.dtypes import TORCH_DTYPES
from shardtool.errors import InputError, RefusedError
from shardtool.foreign_code import failing_as
from shardtool.needs import Dtype
from shardtool.part import Part
from shardtool.placed import full_device
from shardtool.quiet import quiet

_FAULTS = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")


def load_quantised(part: Part, checkpoint: Checkpoint, device: str, dtype: Dtype) -> Any:
    """The model of a part with ``quantization_config``, on ``device``; what is not quantised in it is in ``dtype``.

    Raises ``RefusedError`` where its method is not among those that are loaded, its quantiser is not installed, does
    not work here, or computes in another dtype; and ``InputError`` where the weights are not all that the model wants.
    """
    _require_installed(part)
    with _as_examined(part, checkpoint) as folder:
        model, told = _hand_over(part, folder, device, dtype)
    _check_whole(part, model, told)
    _check_computes(part, model, dtype)
    return model.eval()


def _require_installed(part: Part) -> None:
    method = known_method(part.quantised or "", part.config_path)
    if method.module is not None and not _is_installed(method.module):
        raise RefusedError(
            f"{part.config_path}: is quantised with {part.quantised}, which is not installed",
            code="quantiser_missing",
            path=part.config_path,
            hint=f"pip install {method.package}",
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package above it is missing
        return False


@contextmanager
def _as_examined(part: Part, checkpoint: Checkpoint) -> Iterator[Path]:
    """A folder with the config and the weights of ``checkpoint`` alone, under the names that the library looks for."""
    stem = "diffusion_pytorch_model" if part.library == "diffusers" else "model"
    with tempfile.TemporaryDirectory(prefix="shardtool-") as name:
        folder = Path(name)
        (folder / CONFIG_NAME).write_text(json.dumps(part.config), encoding="utf-8")
        if checkpoint.index is None:
            (folder / f"{stem}.safetensors").symlink_to(checkpoint.files[0].path.absolute())
        else:
            (folder / f"{stem}.safetensors.index.json").symlink_to(checkpoint.index.path.absolute())
            for file in checkpoint.files:
                (folder / file.path.name).symlink_to(file.path.absolute())
        yield folder


def _hand_over(part: Part, folder: Path, device: str, dtype: Dtype) -> tuple[Any, Any]:
    """The model that the library makes of ``folder``, and what it tells of the loading."""
    found, target = model_class(part), full_device(device)

    def unusable(reason: str) -> RefusedError:  # many quantisers want hardware that is not here
        return RefusedError(
            f"{part.config_path}: is quantised with {part.quantised}, and cannot be loaded to {device}: {reason}",
            code="quantised",
            path=part.config_path,
            hint="use the weights that it was made from, or a device that its quantiser works on",
        )

    # Some quantisers go to an accelerator by themselves, and then to the current one.
    with quiet(), torch.accelerator.device_index(target.index), failing_as(unusable):
        given = {} if issubclass(found, diffusers.ModelMixin) else {"config": library_config(part)}
        model, told = found.from_pretrained(
            folder,
            dtype=TORCH_DTYPES[dtype],
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            **given,
        )
        if model.device != target:
            model = model.to(target)
    if isinstance(model, diffusers.ModelMixin):
        model.register_to_config(_name_or_path=str(part.folder))
    else:
        model.name_or_path = model.config.name_or_path = str(part.folder)
    return model, told


def _check_whole(part: Part, model: Any, told: Any) -> None:
    wrong = [f"{key.removesuffix('_keys')}: {sorted(map(str, told[key]))[:3]}" for key in _FAULTS if told.get(key)]
    tensors = (*model.named_parameters(), *model.named_buffers())
    wrong += [f"on meta: {name}" for name, tensor in tensors if tensor.is_meta][:3]
    if wrong:
        raise InputError(
            f"{part.folder}: the weights do not fit {part.class_name}: {'; '.join(wrong)}",
            code="tensor_missing",
            path=part.folder,
            hint="fetch the whole checkpoint again",
        )


def _check_computes(part: Part, model: torch.nn.Module, dtype: Dtype) -> None:
    """Quantised weights that say of themselves to be floats take numbers of their own dtype and no others."""
    for name, parameter in model.named_parameters():
        is_packed = type(parameter.data) is not torch.Tensor and parameter.is_floating_point()
        if is_packed and parameter.dtype != TORCH_DTYPES[dtype]:
            own = str(parameter.dtype).removeprefix("torch.")
            raise RefusedError(
                f"{part.folder}: {name}, quantised with {part.quantised}, computes in {own}, the pipeline in {dtype}",
                code="dtype_quantised",
                path=part.folder,
                tensor=name,
                hint="give --dtype the dtype that it was quantised for",
            )
