"""shardtool: shard diffusion checkpoints, look into them, load them where they fit and make pictures with them.

From Python::

    import shardtool

    unet = shardtool.load_component("build/unet", device="cpu").model
    pipe = shardtool.build_pipeline("demo", unet="build/unet").pipe

Importing this package imports nothing heavy: the names below are looked up when they are first used, and torch and
diffusers are imported by the calls that need them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "LoadedComponent": "shardtool.api",
    "build_pipeline": "shardtool.api",
    "load_component": "shardtool.api",
    "Accelerator": "shardtool.devices",
    "Inventory": "shardtool.devices",
    "Placement": "shardtool.placement",
    "Request": "shardtool.placement",
    "plan_placement": "shardtool.placement",
    "ShardtoolError": "shardtool.errors",
}

if TYPE_CHECKING:
    from shardtool.api import LoadedComponent, build_pipeline, load_component
    from shardtool.devices import Accelerator, Inventory
    from shardtool.errors import ShardtoolError
    from shardtool.placement import Placement, Request, plan_placement

__all__ = [
    "Accelerator",
    "Inventory",
    "LoadedComponent",
    "Placement",
    "Request",
    "ShardtoolError",
    "__version__",
    "build_pipeline",
    "load_component",
    "plan_placement",
]


def __getattr__(name: str) -> Any:
    """Look a name up in its own module on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
