"""The JSON that goes with every image: enough to make it again, and to say why it came out differently.

::

    {"schema": "shardtool.image/1",
     "settings": {"prompt": …, "seed": 7, "steps": 30, …},     what was asked for
     "model": {"name": …, "source": …, "class": …, "fingerprint": …, "components": {…}, "lora": […]},
     "scheduler": {"_class_name": …, …},                        its whole config
     "environment": {"shardtool": …, "torch": …, "device": …, "dtype": …, "threads": …, …},
     "inputs": {"image": SHA-256 of the file, …},               only where there are any
     "key": …,                                                  stands for all that the pixels depend on
     "pixel_sha256": SHA-256 of the RGB bytes, row by row,
     "created": "2026-12-01T04:00:00+00:00"}

At level ``public`` local paths, the machine's name of the device and the time are left out; the prompt stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from shardtool import __version__
from shardtool.checkpoint.strict_json import plain
from shardtool.images.settings import SETTING_NAMES, Job
from shardtool.source import DEMO

SCHEMA: Final = "shardtool.image/1"
Level: TypeAlias = Literal["full", "public", "none"]

_PRIVATE_ENVIRONMENT: Final = ("device_name", "platform")


@dataclass(frozen=True)
class Lora:
    """A LoRA as given, the scale it is used with, and the SHA-256 of its file."""

    source: str
    scale: float
    sha256: str | None = None

    @property
    def name(self) -> str:
        return Path(self.source.rstrip("/")).stem


@dataclass(frozen=True)
class Model:
    """What made a picture. ``source`` and ``overrides`` (component → source) are as typed, ``fingerprints`` is
    component → identity of its tensors, however they are sharded, ``configs`` component → digest of its class and
    config. ``options`` are those that change the pixels.
    """

    name: str
    class_name: str
    source: str
    overrides: Mapping[str, str] = field(default_factory=dict)
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    loras: Sequence[Lora] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """One text for all that the pixels depend on: the tensors where they are known, else the sources."""
        parts = sorted((self.fingerprints or {"": self.source, **self.overrides}).items())
        loras = [(lora.sha256 or lora.source, lora.scale) for lora in self.loras]
        return repr((self.class_name, parts, sorted(self.configs.items()), loras, sorted(self.options.items())))

    @property
    def fingerprint(self) -> str | None:
        """One hash over those of the components."""
        if not self.fingerprints:
            return None
        text = "\n".join(f"{name} {value}" for name, value in sorted(self.fingerprints.items()))
        return hashlib.sha256(text.encode()).hexdigest()

    def as_json(self, level: Level) -> dict[str, Any]:
        public = level == "public"
        shown: dict[str, Any] = {
            "name": self.name,
            "class": self.class_name,
            "source": None if public and _is_path(self.source) else self.source,
            "overrides": {
                name: Path(source).name if public and _is_path(source) else source
                for name, source in self.overrides.items()
            },
            "fingerprint": self.fingerprint,
            "components": dict(self.fingerprints),
            "configs": dict(self.configs),
            "lora": [
                {"source": lora.name if public else lora.source, "scale": lora.scale, "sha256": lora.sha256}
                for lora in self.loras
            ],
        }
        return shown | dict(self.options)


def _is_path(source: str) -> bool:
    return source != DEMO and (source.startswith((".", "/", "~")) or Path(source).exists())


def build_record(
    job: Job,
    model: Model,
    scheduler: Mapping[str, Any],
    environment: Mapping[str, Any],
    *,
    key: str,
    pixel_sha256: str | None,
    level: Level,
    now: datetime,
) -> dict[str, Any]:
    """The record of a finished picture, as JSON holds it."""
    settings = {**job.settings.as_json(), "seed": job.seed}
    inputs = {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in (("image", job.settings.image), ("mask", job.settings.mask))
        if path is not None
    }
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "settings": settings,
        "model": model.as_json(level),
        "scheduler": plain(
            {key: value for key, value in scheduler.items() if not key.startswith("_") or key == "_class_name"}
        ),
        "environment": {"shardtool": __version__, **environment},
        "key": key,
        "pixel_sha256": pixel_sha256,
    }
    if inputs:
        record["inputs"] = inputs
    if level == "public":
        for name in inputs:
            settings[name] = Path(settings[name]).name
        for name in _PRIVATE_ENVIRONMENT:
            record["environment"].pop(name, None)
    else:
        record["created"] = now.isoformat(timespec="seconds")
    return record


def settings_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a record holds, those of this program alone; ``seed`` is left out."""
    found = record.get("settings")
    if not isinstance(found, Mapping):
        return {}
    return {name: found[name] for name in SETTING_NAMES if found.get(name) is not None}
