"""How much memory one run of a component takes beside its weights. Fitted figures: see ``benchmarks/gpu.py``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """One call of a pipeline: pixels and pictures at once. ``None`` is the pipeline's own size."""

    width: int | None = None
    height: int | None = None
    images: int = 1
    guidance: bool = True
