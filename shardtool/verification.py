"""Is a source whole? Structure from headers and indexes, the strict fit to its configs, and the values if asked.

The structure needs the standard library alone. The fit needs the model's class on the meta device, hence torch; it is
looked at only where the structure is sound and a ``config.json`` is there. The values need numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shardtool.checkpoint.compare import Pair, compare, form, paired
from shardtool.checkpoint.contents import Contents, Part, survey
from shardtool.checkpoint.digests import DIGESTS_NAME, fingerprint, read_entries
from shardtool.checkpoint.folder import PipelineFolder, read_pipeline, weights_in
from shardtool.checkpoint.inventory import Checkpoint
from shardtool.checkpoint.names import COMPONENT_STEMS, CONFIG_NAME
from shardtool.checkpoint.reading import TensorReader
from shardtool.errors import InputError, Problem
from shardtool.events import Listener, ignore
from shardtool.part import Part as Component
from shardtool.part import config_of, is_settings


@dataclass(frozen=True)
class Checked:
    """A part with all that is wrong with it; ``checked`` says what was looked at: structure, fit, values, digests.

    ``digests`` are those recorded beside it, compared or not: tensor → SHA-256; ``None`` where there are none.
    """

    part: Part
    problems: tuple[Problem, ...]
    checked: tuple[str, ...] = ("structure",)
    digests: Mapping[str, str] | None = None

    def after(self, what: str, problems: tuple[Problem, ...]) -> Checked:
        """With one more thing checked, and what came of it."""
        return replace(self, problems=_once(self.problems + problems), checked=(*self.checked, what))

    @property
    def is_sound(self) -> bool:
        return not any(problem.severity == "error" for problem in self.problems)


@dataclass(frozen=True)
class Verification:
    """What became of every part; ``own_problems`` concern the whole source: its ``model_index.json``, how parts fit."""

    contents: Contents
    parts: tuple[Checked, ...]
    own_problems: tuple[Problem, ...]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything that is wrong, with the source and with its parts; warnings too."""
        return self.own_problems + tuple(problem for part in self.parts for problem in part.problems)

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")


def _once(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Each problem once: the same fault may be met on two ways."""
    return tuple({(problem.code, problem.message): problem for problem in problems}.values())


def verify_headers(path: str | Path, variant: str | None = None, *, fit: bool = True) -> Verification:
    """Check all that headers, indexes and configs tell: the ``variant``'s weights, or all variants for ``None``.

    ``fit`` imports torch where there is a model to compare with. Raises ``InputError`` where there is nothing to check.
    """
    path = Path(path)
    contents = survey(path, variant, every_variant=variant is None)
    parts = tuple(_with_structure(part) for part in contents.parts)
    problems = contents.own_problems
    pipeline = read_pipeline(path) if fit and contents.kind == "pipeline" and parts else None
    if pipeline is not None and not _is_broken(parts, problems):
        problems += _partner_problems(pipeline)
    if fit:
        classes = pipeline.components if pipeline else {}
        parts = tuple(_with_fit(part, classes.get(part.part.name)) for part in parts)
    return Verification(contents, parts, _once(problems))


def _with_structure(part: Part) -> Checked:
    if part.checkpoint is None:
        return Checked(part, _once(part.problems))
    try:
        entry = read_entries(part.checkpoint.folder).get(part.checkpoint.name.base)
    except InputError as error:
        invalid = Problem("digests_invalid", error.message, error.path, hint=error.hint)
        return Checked(part, _once((*part.problems, invalid)))
    if entry is None:
        return Checked(part, _once(part.problems))
    stale = _record_problems(part.checkpoint, entry)
    return Checked(part, _once(part.problems + stale), digests=entry["tensors"])


def _is_broken(parts: tuple[Checked, ...], problems: tuple[Problem, ...]) -> bool:
    """Whether something is so wrong already that the parts cannot be compared with each other."""
    return any(problem.severity == "error" for problem in problems) or not all(part.is_sound for part in parts)


def _partner_problems(pipeline: PipelineFolder) -> tuple[Problem, ...]:
    """From the configs alone: which weights lie beside them, and of which variants, has been looked at."""
    from shardtool.fit import check_partners
    from shardtool.parts import PipelineParts

    parts: dict[str, Component] = {}
    problems: list[Problem] = []
    for name, (library, class_name) in pipeline.components.items():
        folder = pipeline.folder(name)
        try:
            config = None if is_settings(folder) else config_of(folder)
        except InputError as error:
            problems.extend(error.as_problems())
        else:
            parts[name] = Component(name, library, class_name, folder, config)
    try:
        fit = check_partners(PipelineParts(pipeline.path, pipeline.class_name, parts, pipeline.settings))
    except InputError as error:
        fit = error.as_problems()
    return (*problems, *fit)


def _with_fit(found: Checked, own: tuple[str, str] | None) -> Checked:
    """``own`` is the library and the class that its pipeline names for it."""
    part = found.part
    if part.checkpoint is None or not found.is_sound or not (part.path / CONFIG_NAME).is_file():
        return found
    if part.checkpoint.name.stem not in COMPONENT_STEMS and len(weights_in(part.path)) > 1:
        return found  # other weights beside the component's own, a LoRA for instance
    from shardtool.strict import check_fit

    try:
        problems = check_fit(part.path, part.checkpoint, own)
    except InputError as error:
        problems = error.as_problems()
    return found if problems is None else found.after("fit", problems)


def verify_values(found: Verification, *, workers: int | None = None, on_event: Listener = ignore) -> Verification:
    """``found`` with the data of every sound part read: not-a-number, infinities, and digests where recorded."""
    return replace(found, parts=tuple(_with_values(part, workers, on_event) for part in found.parts))


def _with_values(found: Checked, workers: int | None, on_event: Listener) -> Checked:
    checkpoint = found.part.checkpoint
    if checkpoint is None or any(problem.code in _UNREADABLE for problem in found.problems):
        return found
    from shardtool.scan import scan

    found = found.after("values", scan(checkpoint, digests=found.digests, workers=workers, on_event=on_event))
    return found if found.digests is None else found.after("digests", ())


_UNREADABLE = {"truncated", "unreadable", "file_changed"}


def _record_problems(checkpoint: Checkpoint, entry: dict[str, Any]) -> tuple[Problem, ...]:
    """Where the tensors' names, dtypes and shapes are not those whose digests were recorded; no data is read."""
    path = checkpoint.folder / DIGESTS_NAME
    forms = {name: (name, stored.info.dtype, stored.info.shape) for name, stored in checkpoint.tensors.items()}
    recorded = entry["tensors"]
    if recorded.keys() != forms.keys():
        known = len(recorded.keys() & forms.keys())
        message = f"{path}: records {known} of the {len(forms)} tensors, and {len(recorded) - known} others"
    elif entry.get("fingerprint") != fingerprint(forms.values(), recorded):
        message = f"{path}: was recorded for tensors of other dtypes or shapes"
    else:
        return ()
    hint = "fetch the checkpoint again; if it was changed on purpose, record anew with `shardtool shard --digests`"
    return (Problem("digests_stale", message, str(path), hint=hint),)


def verify_against(a: Contents, b: Contents, on_event: Listener = ignore) -> tuple[int, tuple[Problem, ...]]:
    """How many tensors of two sources are the same bit for bit, and a problem for every one that is not.

    Raises ``InputError`` where either cannot be read, and ``UsageError`` where they are not of one kind.
    """
    same, problems = 0, []
    with TensorReader() as reader:
        for name, one, other in paired(a, b):
            if one is None or other is None:
                where, path = ("in one", b.path) if one is None else ("in the other", a.path)
                message = f"{path}: has the component {name}, which is missing {where}"
                problems.append(Problem("against_component", message, str(path)))
                continue
            for pair in compare(one, other, reader, on_event):
                if pair.kind == "same":
                    same += 1
                else:
                    problems.append(_against(pair, one, other))
    return same, tuple(problems)


def _against(pair: Pair, a: Checkpoint, b: Checkpoint) -> Problem:
    path = str(pair.one.file.path)
    where = f"{path}: tensor {pair.name!r:.200}"
    hint = "`shardtool diff` of the two tells which tensors differ and by how much"
    if pair.a is None or pair.b is None:
        lacking = (b if pair.b is None else a).folder
        return Problem("against_missing", f"{where}: is not in {lacking}", path, pair.name, hint)
    if pair.kind == "form":
        message = f"{where}: is {form(pair.a)} here, {form(pair.b)} in {pair.b.file.path}"
        return Problem("against_form", message, path, pair.name, hint)
    return Problem("against_values", f"{where}: holds other bytes than in {pair.b.file.path}", path, pair.name, hint)
