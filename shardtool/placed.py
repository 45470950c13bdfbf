"""Is a loaded model where it should be, in the numbers that were chosen, and free to be moved?"""

from __future__ import annotations

import torch

from shardtool.dtypes import TORCH_DTYPES
from shardtool.errors import RefusedError
from shardtool.needs import Dtype


def check_placed(name: str, model: torch.nn.Module, device: str) -> None:
    """Raises ``RefusedError`` if ``model`` carries hooks or is not wholly on ``device``: then it cannot be moved."""
    hooked = next((key or name for key, module in model.named_modules() if hasattr(module, "_hf_hook")), None)
    if hooked is not None:
        raise RefusedError(
            f"{name}: carries accelerate hooks (at {hooked}), so it moves its weights itself and cannot be placed",
            code="hooked_component",
            hint="load it without device_map and without offload; shardtool places the whole pipeline once",
        )
    wanted = full_device(device)
    for key, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.device != wanted:
            raise RefusedError(
                f"{name}: {key} is on {tensor.device}, and the pipeline on {device}",
                code="component_elsewhere",
                tensor=key,
                hint=f'move it with .to("{device}"), or give the pipeline its device',
            )


def full_device(device: str) -> torch.device:
    """``cuda`` and ``mps`` with the index that tensors there report."""
    return torch.empty(0, device=device).device


def check_dtypes(model: torch.nn.Module, dtype: Dtype) -> None:
    """Every floating-point weight is in ``dtype``, or in fp32 where the class keeps it so. Anything else is a bug."""
    expected = {TORCH_DTYPES[dtype], torch.float32}
    wrong = [name for name, p in model.named_parameters() if p.is_floating_point() and p.dtype not in expected]
    if wrong:
        raise AssertionError(f"{wrong[0]} was loaded in another dtype than {dtype}")
