"""The ``parameters`` text of A1111's web UI, which most tools and galleries read.

::

    a dog, watercolour
    Negative prompt: blurry
    Steps: 30, Sampler: Euler a, CFG scale: 5, Seed: 7, Size: 1024x1024, Model: sd_xl_base_1.0, Version: …

The last line is ``key: value`` pairs with commas between; a value that holds a comma, a colon or a line break is
written as a JSON string. What A1111's own reader does (``parse_generation_parameters``) is done here, within bounds: a
key has at most a hundred characters and the line ``_LONGEST``, or the time would grow with the square of the text.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from shardtool import __version__
from shardtool.images.record import Model
from shardtool.images.schedulers import SCHEDULERS, SPACINGS, parse_scheduler
from shardtool.images.settings import Job

_PAIR: Final = re.compile(r'\s*(\w[\w \-/]{1,99}):\s*("(?:\\.|[^\\"])+"|[^,]*)(?:,|$)')
_SIZE: Final = re.compile(r"(\d{1,9})x(\d{1,9})", re.ASCII)
_NEGATIVE: Final = "Negative prompt:"
_LONGEST: Final = 100_000
"""Characters of a line of settings; real ones have some hundred, with extensions some thousand."""

_LEAST_PAIRS: Final = 3
"""A1111 takes the last line for settings only if it has at least so many pairs."""

_NUMBERS: Final = {"Steps": ("steps", int), "CFG scale": ("guidance", float), "Denoising strength": ("strength", float)}


def write_parameters(job: Job, model: Model, scheduler_class: str) -> str:
    """The text for a finished picture; ``scheduler_class`` names its scheduler where the settings do not."""
    settings = job.settings
    lines = [settings.prompt]
    if settings.negative_prompt:
        lines.append(f"{_NEGATIVE} {settings.negative_prompt}")
    pairs: list[tuple[str, Any]] = [
        ("Steps", settings.steps),
        ("Sampler", _sampler(settings.scheduler, scheduler_class)),
        ("CFG scale", f"{settings.guidance:g}"),
        ("Seed", job.seed),
        ("Size", f"{settings.width}x{settings.height}" if settings.width and settings.height else None),
        ("Model hash", model.fingerprint[:10] if model.fingerprint else None),
        ("Model", model.name),
        ("Denoising strength", f"{settings.strength:g}" if settings.image is not None else None),
        ("Lora hashes", ", ".join(f"{lora.name}: {(lora.sha256 or '')[:12]}" for lora in model.loras) or None),
        ("Prompt 2", settings.prompt_2),
        ("Negative prompt 2", settings.negative_prompt_2),
        ("Version", f"shardtool {__version__}"),
    ]
    lines.append(", ".join(f"{key}: {_quote(value)}" for key, value in pairs if value is not None))
    return "\n".join(lines)


def _sampler(name: str | None, class_name: str) -> str:
    if name is not None:
        return parse_scheduler(name).a1111
    return next((entry.a1111 for entry in SCHEDULERS.values() if entry.class_name == class_name), class_name)


def _quote(value: Any) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if any(char in text for char in ',\n:"') else text


def parse_parameters(text: str) -> dict[str, Any]:
    """The settings in an A1111 text, under this program's names; what has none here is under ``other``."""
    *lines, last = text.strip().split("\n")
    pairs = _PAIR.findall(last) if len(last) <= _LONGEST else []
    if len(pairs) < _LEAST_PAIRS:
        lines, pairs = [*lines, last], []
    prompt: list[str] = []
    negative: list[str] = []
    into = prompt
    for line in lines:
        stripped = line.strip()
        if stripped.startswith(_NEGATIVE):
            into, stripped = negative, stripped[len(_NEGATIVE) :].strip()
        into.append(stripped)
    found: dict[str, Any] = {"prompt": "\n".join(prompt).strip()}
    if negative:
        found["negative_prompt"] = "\n".join(negative).strip()
    other: dict[str, str] = {}
    for key, value in pairs:
        _take(key.strip(), _unquote(value.strip()), found, other)
    schedule = other.pop("Schedule type", None)
    if schedule in ("Karras", "Exponential") and "scheduler" in found:
        found["scheduler"] = _with_spacing(found["scheduler"], schedule.lower())
    return {**found, "other": other}


def _take(key: str, value: str, found: dict[str, Any], other: dict[str, str]) -> None:
    size = _SIZE.fullmatch(value) if key == "Size" else None
    if key in _NUMBERS:
        name, kind = _NUMBERS[key]
        try:
            found[name] = kind(value)
        except ValueError:
            other[key] = value
    elif key == "Seed" and re.fullmatch(r"\d{1,19}", value, re.ASCII):
        found["seed"] = int(value)
    elif size is not None:
        found["width"], found["height"] = int(size[1]), int(size[2])
    elif key == "Sampler":
        found["scheduler"] = scheduler_of(value) or value
    elif key == "Model":
        found["model"] = value
    elif key in ("Prompt 2", "Negative prompt 2"):
        found[key.lower().replace(" ", "_")] = value
    else:
        other[key] = value


def _unquote(value: str) -> str:
    if not (value.startswith('"') and value.endswith('"')):
        return value
    try:
        return str(json.loads(value))
    except ValueError:
        return value


def scheduler_of(sampler: str) -> str | None:
    """The short name of one of A1111's samplers (``"DPM++ 2M Karras"``), if there is one here."""
    names = {entry.a1111.lower(): name for name, entry in SCHEDULERS.items()}
    text = sampler.lower().strip()
    if text in names:
        return names[text]
    base, _, spacing = text.rpartition(" ")
    if spacing in SPACINGS and base in names:
        return _with_spacing(names[base], spacing)
    return None


def _with_spacing(name: str, spacing: str) -> str:
    return f"{name}-{spacing}" if name in SCHEDULERS and SCHEDULERS[name].spaced else name
