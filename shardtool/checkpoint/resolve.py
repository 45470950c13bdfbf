"""Which files diffusers and transformers would load for a variant, and what they would mix to do so.

The rules, read in ``diffusers.pipelines.pipeline_loading_utils`` (0.42.1) and ``transformers.modeling_utils`` (5.24):

* a pipeline's component that has no file of the wanted variant is loaded from its default weights, with a warning;
  a component loaded by itself fails instead;
* where an index and a single file lie side by side, diffusers takes the shards, transformers the single file;
* safetensors are preferred; pickles are taken, silently, where there is nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from shardtool.checkpoint.folder import weights_in
from shardtool.checkpoint.index import shards_of
from shardtool.checkpoint.names import COMPONENT_STEMS, WeightsName

Outcome: TypeAlias = Literal["found", "default_instead", "missing"]


@dataclass(frozen=True)
class Resolution:
    """What would be loaded. ``files`` are names in the folder, the index first; ``nbytes`` is their size on disk.

    ``default_instead``: the wanted variant is absent and the default weights would be taken. ``present`` lists the
    variants there are, ``None`` being the default one.
    """

    outcome: Outcome
    variant: str | None
    files: tuple[str, ...]
    nbytes: int
    present: tuple[str | None, ...]


def resolve(folder: Path, variant: str | None, *, library: str | None = None) -> Resolution:
    """What ``library`` (``"diffusers"`` or ``"transformers"``) would load from a component's ``folder``."""
    found = weights_in(folder)
    stems = [stem for stem in COMPONENT_STEMS if any(name.stem == stem for name in found)]
    present = tuple(name.variant for name in found if name.stem in stems[:1])
    for wanted in dict.fromkeys((variant, None)):
        if stems and (files := found.get(WeightsName(stems[0], wanted))):
            first = files.first(library)
            names = () if first is None else (first, *(shards_of(folder / first) if first in files.indexes else ()))
            outcome: Outcome = "found" if wanted == variant else "default_instead"
            return Resolution(outcome, wanted, names, _size(folder, names), present)
    return Resolution("missing", variant, (), 0, present)


def _size(folder: Path, names: tuple[str, ...]) -> int:
    total = 0
    for name in names:
        try:
            total += (folder / name).stat().st_size
        except OSError:  # whoever reads it says what is wrong with it
            continue
    return total


def mixture(resolutions: Mapping[str, Resolution]) -> tuple[str, ...]:
    """The components that would be loaded from default weights although others have the variant that was asked for."""
    if not any(found.outcome == "found" for found in resolutions.values()):
        return ()
    return tuple(name for name, found in resolutions.items() if found.outcome == "default_instead")
