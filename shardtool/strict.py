"""Does a checkpoint hold exactly what its model wants? Decided from headers, against the class built on meta."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from shardtool.checkpoint.inventory import Checkpoint
from shardtool.errors import InputError, Problem
from shardtool.matching import Match, match_names, misfit
from shardtool.meta_model import build_on_meta
from shardtool.part import Part, read_component


def check_fit(path: Path, checkpoint: Checkpoint, own: tuple[str, str] | None = None) -> tuple[Problem, ...] | None:
    """How ``checkpoint`` fails to fit the model that the ``config.json`` in the component folder ``path`` describes.

    ``own`` is the library and the class that its pipeline names for it, which is then the one that is loaded.
    Empty where it fits; ``None`` where it is quantised, as only its quantiser knows what the packed tensors are for.
    Raises ``InputError`` where there is no config, or no model can be made from it.
    """
    part = read_component(path, variant=checkpoint.name.variant)
    if own is not None:
        part = replace(part, library=own[0], class_name=own[1])
    if part.quantised:
        return None
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


def fit_problems(part: Part, model: Any, match: Match) -> tuple[Problem, ...]:
    """The match's faults as problems: each names the file, the tensor and the shapes."""
    stored, wanted = part.stored, model.state_dict()
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
        code = misfit(tensor, wanted[name]) or "shape_mismatch"
        found = f"{list(tensor.info.shape)} of {tensor.info.dtype}"
        kind = str(wanted[name].dtype).removeprefix("torch.")
        message = f"{tensor.file.path}: tensor {tensor.info.name!r} is {found}, and {part.class_name} wants "
        message += f"{list(wanted[name].shape)}" + (f" of {kind}" if code == "dtype_mismatch" else "")
        hint = "the weights and config.json are not of the same model"
        problems.append(Problem(code, message, str(tensor.file.path), tensor.info.name, hint))
    return tuple(problems)
