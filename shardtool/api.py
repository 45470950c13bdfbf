"""shardtool from Python: the calls behind ``load`` and ``generate``, for sources as the command line takes them.

Importing this is cheap; torch and diffusers are imported by the call that needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardtool.checkpoint.folder import kind_of
from shardtool.devices import Inventory
from shardtool.errors import InputError
from shardtool.events import Listener, ignore
from shardtool.load_plan import plan_component
from shardtool.load_run import load_planned
from shardtool.obtain import component_path, local_path
from shardtool.placement import Placement, Request
from shardtool.source import parse_source
from shardtool.startup import without_collector

if TYPE_CHECKING:
    import torch

    from shardtool.loading import ComponentReport
    from shardtool.pipeline import BuiltPipeline


@dataclass(frozen=True)
class LoadedComponent:
    """A model in evaluation mode, where it was placed, and what is to be said of it."""

    model: Any
    placement: Placement
    report: ComponentReport


def load_component(
    source: str | Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    variant: str | None = None,
    inventory: Inventory | None = None,
    force: bool = False,
    on_event: Listener = ignore,
) -> LoadedComponent:
    """The model in ``source``: a component folder, a weights file beside its ``config.json``, or one on the Hub.

    ``source`` is written as on the command line: ``"build/unet"``, ``"demo:unet"``, ``"ORG/NAME:unet"``. ``device`` is
    ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:N"``, ``"mps"`` or ``"xpu"``; ``dtype`` ``"auto"``, ``"fp32"``,
    ``"fp16"`` or ``"bf16"``.

    Raises ``InputError`` where weights and config are damaged or do not fit each other, ``RefusedError`` where the
    placement is not possible (both before a weight is used), and ``HubError``. The model carries no hooks, nothing of
    it is on meta, and ``model.to(...)`` works.
    """
    path = local_path(parse_source(str(source)), variant=variant, on_event=on_event)
    if kind_of(path) == "pipeline":
        separator = "/" if Path(source).exists() else ":"
        raise InputError(
            f"{source}: is a pipeline, not one component",
            code="not_a_component",
            path=source,
            hint=f'name a component, such as "{source}{separator}unet", or use build_pipeline',
        )
    request = Request(device, dtype, "none", force)
    loaded = load_planned(plan_component(path, request, variant=variant, inventory=inventory, on_event=on_event))
    ((name, model),) = loaded.models.items()
    return LoadedComponent(model, loaded.plan.placement, loaded.reports[name])


def build_pipeline(
    base: str | Path,
    *,
    components: Mapping[str, str | Path | torch.nn.Module] | None = None,
    device: str = "auto",
    dtype: str = "auto",
    offload: str = "auto",
    variant: str | None = None,
    inventory: Inventory | None = None,
    on_event: Listener = ignore,
    **named: str | Path | torch.nn.Module,
) -> BuiltPipeline:
    """The diffusers pipeline in ``base``, with other components instead of its own.

    These are given by name: ``build_pipeline("demo", unet="build/unet", vae=my_vae)``, or in ``components``. Each is a
    source, or a model that is loaded already, which must be on the pipeline's device and carry no hooks. Components
    that are replaced are not read from ``base``. ``device``, ``dtype`` and ``offload`` are as on the command line.

    Raises ``InputError`` where a part is missing, damaged, or does not fit the others, ``RefusedError`` where the
    placement is not possible, and ``HubError``. The pipeline is in ``.pipe``.
    """
    overrides: dict[str, Path | torch.nn.Module] = {}
    for name, given in {**(components or {}), **named}.items():
        if isinstance(given, str | Path):
            source = parse_source(str(given))
            overrides[name] = component_path(source, name, variant=variant, on_event=on_event)
        else:
            overrides[name] = given
    path = local_path(parse_source(str(base)), variant=variant, without=tuple(overrides), on_event=on_event)
    with without_collector():
        from shardtool.pipeline import build_pipeline as build

    return build(
        path,
        overrides=overrides,
        device=device,
        dtype=dtype,
        offload=offload,
        variant=variant,
        inventory=inventory,
        on_event=on_event,
    )
