"""Does a checkpoint hold exactly what its model wants? Decided from headers, against the class built on meta.

Names are compared after the class's own translation: diffusers' old attention names (which its loader translates in
single files only, and here in shards too), and transformers' conversion mapping (since 5.6 a ``CLIPTextModel`` has no
``text_model.`` level, which the files on the Hub have; old ones hold ``position_ids`` besides).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import diffusers
import torch
from diffusers.models.modeling_utils import no_init_weights
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

from shardtool.checkpoint.inventory import Checkpoint, StoredTensor
from shardtool.classes import model_class
from shardtool.errors import InputError, Problem
from shardtool.parts import Part, read_component
from shardtool.quiet import quiet

_FLOATS = {"F64", "F32", "F16", "BF16", "F8_E5M2", "F8_E4M3", "F8_E5M2FNUZ", "F8_E4M3FNUZ"}
"""What torch can turn into another floating-point dtype; the narrower ones are packed and belong to quantisers."""

SLACK = 10_000
"""Parameters a model may have beyond four for each stored tensor, before its config is refused as absurd."""


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


def check_fit(path: Path, checkpoint: Checkpoint) -> tuple[Problem, ...]:
    """How ``checkpoint`` fails to fit the model that the ``config.json`` in the component folder ``path`` describes.

    Empty where it fits. Raises ``InputError`` where there is no config, or no model can be made from it.
    """
    part = read_component(path, variant=checkpoint.name.variant)
    if (part.config or {}).get("quantization_config"):
        return ()  # the stored tensors are packed in ways that only the quantiser knows
    model = build_on_meta(part)
    return fit_problems(part, model, match_names(part, model))


def require_fit(part: Part, model: Any, match: Match, *, missing: tuple[str, ...], unexpected: tuple[str, ...]) -> None:
    """Raises ``InputError`` unless the match is complete, but for names that the given globs let through."""
    problems = [
        problem
        for problem in fit_problems(part, model, match)
        if not (problem.code == "tensor_missing" and _any_glob(problem.tensor, missing))
        and not (problem.code == "tensor_unexpected" and _any_glob(problem.tensor, unexpected))
    ]
    if not problems:
        return
    if len(problems) == 1:
        raise InputError.of_all(problems)
    counts = [
        f"{sum(problem.code == code for problem in problems)} {word}"
        for code, word in (
            ("tensor_missing", "missing"),
            ("tensor_unexpected", "unexpected"),
            ("shape_mismatch", "of another shape"),
            ("dtype_mismatch", "of another kind"),
        )
        if any(problem.code == code for problem in problems)
    ]
    raise InputError(
        f"{part.folder}: the weights do not fit {part.class_name}: {', '.join(counts)}",
        code=problems[0].code,
        path=part.folder,
        tensor=problems[0].tensor,
        hint="the weights and config.json are not of the same model, or one of them is damaged",
        problems=problems,
    )


def _any_glob(name: str | None, globs: tuple[str, ...]) -> bool:
    return name is not None and any(fnmatchcase(name, pattern) for pattern in globs)


class _TooLargeError(Exception):
    pass


def build_on_meta(part: Part) -> Any:
    """The model of a part with weights, built on the meta device: names and shapes, no memory.

    A config can ask for any number of layers; building stops as soon as the model has far more parameters than the
    headers hold tensors. Raises ``InputError`` where no model can be made from the config.
    """
    found = model_class(part)
    if (part.config or {}).get("quantization_config"):
        raise InputError(
            f"{part.config_path}: the weights are quantised, and only the quantiser knows what belongs to what",
            code="quantised",
            path=part.config_path,
            hint=f"load it with {part.library} itself, or use the weights that it was made from",
        )
    limit = 4 * len(_stored(part)) + SLACK
    count = 0

    def cap(module: torch.nn.Module, name: str, item: object) -> None:  # noqa: ARG001 (torch calls it so)
        nonlocal count
        count += 1
        if count > limit:
            raise _TooLargeError

    parameters = torch.nn.modules.module.register_module_parameter_registration_hook(cap)
    modules = torch.nn.modules.module.register_module_module_registration_hook(cap)
    try:
        with quiet(), no_init_weights(), torch.device("meta"):
            return _construct(found, part)
    except _TooLargeError:
        message = f"asks for a model of more than {limit:,} parts, and the weights are {len(_stored(part)):,} tensors"
        raise _bad_config(part, message) from None
    except Exception as error:  # a config from elsewhere can fail in any way in a foreign class
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise _bad_config(part, f"{part.class_name} cannot be built from it: {reason:.300}") from error
    finally:
        parameters.remove()
        modules.remove()


def _construct(found: Any, part: Part) -> Any:
    if issubclass(found, diffusers.ModelMixin):
        return found.from_config(dict(part.config or {}))
    return found(found.config_class.from_pretrained(part.folder, local_files_only=True))


def _bad_config(part: Part, message: str) -> InputError:
    return InputError(
        f"{part.config_path}: {message}",
        code="config_invalid",
        path=part.config_path,
        hint="fetch the config.json that belongs to these weights",
    )


def _stored(part: Part) -> Mapping[str, StoredTensor]:
    if part.checkpoint is None:
        raise AssertionError(part.name)
    return part.checkpoint.tensors


def match_names(part: Part, model: Any) -> Match:
    """Which stored tensor becomes which of the model's, by the class's own translation of names."""
    if isinstance(model, diffusers.ModelMixin):
        return _match_diffusers(part, model)
    return _match_transformers(part, model)


def _match_diffusers(part: Part, model: Any) -> Match:
    stored, wanted = _stored(part), model.state_dict()
    # The class's own translation works on any mapping from names, here to the stored names themselves.
    names: dict[str, str] = model._fix_state_dict_keys_on_load({name: name for name in stored})
    ignored = model._keys_to_ignore_on_load_unexpected or ()
    unexpected = [old for new, old in names.items() if new not in wanted and not _any_pattern(old, ignored)]
    # Old and new name of one tensor side by side: the translation would silently keep one of them.
    unexpected.extend(sorted(stored.keys() - set(names.values())))
    return _match(part, wanted, names, unexpected, frozenset())


def _match_transformers(part: Part, model: Any) -> Match:
    stored, wanted = _stored(part), model.state_dict()
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
    stored = _stored(part)
    misshapen = [
        new
        for new, old in names.items()
        if new in wanted and new not in converted and _misfit(stored[old], wanted[new]) is not None
    ]
    return Match(
        {new: old for new, old in names.items() if new in wanted},
        tuple(name for name in wanted if name not in names),
        tuple(unexpected),
        tuple(misshapen),
        converted,
    )


def _misfit(stored: StoredTensor, wanted: Any) -> str | None:
    """The code of what is wrong with a stored tensor in its place."""
    if stored.info.shape != tuple(wanted.shape):
        return "shape_mismatch"
    return "dtype_mismatch" if _is_float(stored) != wanted.dtype.is_floating_point else None


def _is_float(stored: StoredTensor) -> bool:
    return stored.info.dtype in _FLOATS


def fit_problems(part: Part, model: Any, match: Match) -> tuple[Problem, ...]:
    """The match's faults as problems: each names the file, the tensor and the shapes."""
    stored, wanted = _stored(part), model.state_dict()
    problems = []
    for name in match.missing:
        message = f"{part.folder}: lacks tensor {name!r} {list(wanted[name].shape)}, which {part.class_name} needs"
        problems.append(Problem("tensor_missing", message, str(part.folder), name, "fetch the whole checkpoint again"))
    for name in match.unexpected:
        path = stored[name].file.path
        message = f"{path}: holds tensor {name!r} {list(stored[name].info.shape)}, unknown to {part.class_name}"
        hint = f"if it may be left out: --allow-unexpected '{name}'"
        problems.append(Problem("tensor_unexpected", message, str(path), name, hint))
    for name in match.misshapen:
        tensor = stored[match.names[name]]
        code = _misfit(tensor, wanted[name]) or "shape_mismatch"
        found = f"{list(tensor.info.shape)} of {tensor.info.dtype}"
        kind = str(wanted[name].dtype).removeprefix("torch.")
        message = f"{tensor.file.path}: tensor {tensor.info.name!r} is {found}, and {part.class_name} wants "
        message += f"{list(wanted[name].shape)}" + (f" of {kind}" if code == "dtype_mismatch" else "")
        hint = "the weights and config.json are not of the same model"
        problems.append(Problem(code, message, str(tensor.file.path), tensor.info.name, hint))
    return tuple(problems)
