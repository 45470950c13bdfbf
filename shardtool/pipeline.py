"""Build a diffusers pipeline from a folder and overriding components, in one placement.

What is decided (which part comes from where, whether the parts fit each other, device, dtype, offload) is decided
from configs and headers by ``shardtool.fit`` and ``shardtool.placement``, before any weight is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardtool.events import Listener, ignore
from shardtool.placement import Inventory, Placement


@dataclass(frozen=True)
class BuiltPipeline:
    """A pipeline that is ready to run. ``pipe`` is the diffusers pipeline with its own progress bars off.

    ``components`` is a report for each component with weights: name → class, parameters, dtype, device, bytes, time.
    """

    pipe: Any
    placement: Placement
    components: Mapping[str, Any]


def build_pipeline(
    base: Path,
    *,
    overrides: Mapping[str, Path] | None = None,
    device: str = "auto",
    dtype: str = "auto",
    offload: str = "auto",
    variant: str | None = None,
    inventory: Inventory | None = None,
    on_event: Listener = ignore,
) -> BuiltPipeline:
    """The pipeline in the folder ``base``, with the components in ``overrides`` instead of its own.

    ``overrides`` is component name (``"unet"``, ``"vae"``, ``"text_encoder"`` …) → a component folder, a weights file
    with its ``config.json`` beside it, or a pipeline folder that has the component. An overridden component of
    ``base`` is not read at all, and need not exist. ``variant`` (``"fp16"``) chooses the weights of ``base``.

    ``device`` is ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:N"``, ``"mps"`` or ``"xpu"``; ``dtype`` ``"auto"``,
    ``"fp32"``, ``"fp16"`` or ``"bf16"``; ``offload`` ``"auto"``, ``"none"``, ``"model"``, ``"group"`` or
    ``"sequential"``. ``inventory`` is what the machine has; by default it is read.

    Raises ``InputError`` where a part is missing, damaged or does not fit the others, and ``RefusedError`` where the
    placement is not possible here; both before any weight is read.
    """
    raise NotImplementedError
