"""Which stored tensor becomes which of the model's.

Names are compared after the class's own translation: diffusers' old attention names (which its loader translates in
single files only, and here in shards too), and transformers' conversion mapping (since 5.6 a ``CLIPTextModel`` has no
``text_model.`` level, which the files on the Hub have; old ones hold ``position_ids`` besides).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import diffusers
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

from shardtool.checkpoint.inventory import StoredTensor
from shardtool.part import Part

_FLOATS = {"F64", "F32", "F16", "BF16", "F8_E5M2", "F8_E4M3", "F8_E5M2FNUZ", "F8_E4M3FNUZ"}
"""What torch can turn into another floating-point dtype; the narrower ones are packed and belong to quantisers."""


@dataclass(frozen=True)
class Match:
    """Which stored tensor becomes which of the model's: ``names`` is model's name → stored name.

    ``missing`` are the model's names that nothing fills, ``unexpected`` the stored names that fill nothing (and are no
    known leftovers), ``misshapen`` the model's names whose stored tensor has another shape or is no float for a float.
    ``converted`` are model names that a transformers converter computes from several stored tensors.
    """

    names: Mapping[str, str]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    misshapen: tuple[str, ...]
    converted: frozenset[str] = frozenset()


def match_names(part: Part, model: Any) -> Match:
    """Which stored tensor becomes which of the model's, by the class's own translation of names."""
    if isinstance(model, diffusers.ModelMixin):
        return _match_diffusers(part, model)
    return _match_transformers(part, model)


def _match_diffusers(part: Part, model: Any) -> Match:
    stored, wanted = part.stored, model.state_dict()
    # The class's own translation works on any mapping from names, here to the stored names themselves.
    names: dict[str, str] = model._fix_state_dict_keys_on_load({name: name for name in stored})
    ignored = model._keys_to_ignore_on_load_unexpected or ()
    unexpected = [old for new, old in names.items() if new not in wanted and not _any_pattern(old, ignored)]
    # Old and new name of one tensor side by side: the translation would silently keep one of them.
    unexpected.extend(sorted(stored.keys() - set(names.values())))
    return _match(part, wanted, names, unexpected, frozenset())


def _match_transformers(part: Part, model: Any) -> Match:
    stored, wanted = part.stored, model.state_dict()
    mapping = get_model_conversion_mapping(model)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    by_pattern = {pattern: converter for converter in converters for pattern in converter.source_patterns}
    names: dict[str, str] = {}
    converted: set[str] = set()
    unexpected: list[str] = []
    for old in stored:
        new, pattern = rename_source_key(old, renamings, converters, model.base_model_prefix, wanted)
        if new not in wanted and old in wanted:
            new, pattern = old, None
        if new in names and new not in converted:
            unexpected.append(old)
            continue
        targets = [new]
        if pattern is not None:
            patterns = by_pattern[pattern].target_patterns
            targets = [new.replace(patterns[0], target) for target in patterns]
            converted.update(targets)
        names.update(dict.fromkeys(targets, old))
        if new not in wanted and not _any_pattern(new, _ignored_by_transformers(model)):
            unexpected.append(old)
    filled = _match(part, wanted, names, unexpected, frozenset(converted))
    return Match(filled.names, _truly_missing(model, filled), filled.unexpected, filled.misshapen, filled.converted)


def _ignored_by_transformers(model: Any) -> set[str]:
    """The patterns of ``PreTrainedModel._adjust_missing_and_unexpected_keys`` (5.24)."""
    patterns = set(model._keys_to_ignore_on_load_unexpected or ())
    buffers = [name for name, _ in model.named_buffers()]
    if any(name.endswith("rotary_emb.inv_freq") for name in buffers):
        patterns.add(r"rotary_emb\.inv_freq")
    if any(name.endswith("position_ids") for name in buffers):
        patterns.add(r"(^|\.)position_ids$")
    return patterns


def _truly_missing(model: Any, match: Match) -> tuple[str, ...]:
    """Without what the class says it does not need, and without the second name of tied weights."""
    ignored = model._keys_to_ignore_on_load_missing or ()
    tied: Mapping[str, str] = model.all_tied_weights_keys
    twins: dict[str, set[str]] = {}
    for target, source in tied.items():
        twins.setdefault(source, {source}).add(target)
    filled = {name for group in twins.values() if group & match.names.keys() for name in group}
    return tuple(name for name in match.missing if name not in filled and not _any_pattern(name, ignored))


def _any_pattern(name: str, patterns: Any) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def _match(
    part: Part, wanted: Mapping[str, Any], names: Mapping[str, str], unexpected: list[str], converted: frozenset[str]
) -> Match:
    stored = part.stored
    misshapen = [
        new
        for new, old in names.items()
        if new in wanted and new not in converted and misfit(stored[old], wanted[new]) is not None
    ]
    return Match(
        {new: old for new, old in names.items() if new in wanted},
        tuple(name for name in wanted if name not in names),
        tuple(unexpected),
        tuple(misshapen),
        converted,
    )


def misfit(stored: StoredTensor, wanted: Any) -> str | None:
    """The code of what is wrong with a stored tensor in its place."""
    if stored.info.shape != tuple(wanted.shape):
        return "shape_mismatch"
    return "dtype_mismatch" if _is_float(stored) != wanted.dtype.is_floating_point else None


def _is_float(stored: StoredTensor) -> bool:
    return stored.info.dtype in _FLOATS
