"""Run an image's settings again, and judge whether the result is the same: the verdict, and what differs around it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.header import read_header
from shardtool.checkpoint.strict_json import parse_json_object, read_json_object
from shardtool.errors import InputError, UsageError
from shardtool.images.inputs import read_image
from shardtool.images.reading import read_settings
from shardtool.images.record import SCHEMA, settings_of
from shardtool.images.settings import SETTING_NAMES
from shardtool.replacements import SHORT

if TYPE_CHECKING:
    from PIL import Image

CLOSE_PSNR: Final = 30.0
"""Decibels. Pictures of another GPU or of fp16 instead of fp32 differ by less than that, other pictures by more."""


@dataclass(frozen=True)
class Expectation:
    """What a replay must meet: the same pixels, or a peak signal-to-noise ratio of at least ``psnr`` decibels."""

    psnr: float | None = None

    @classmethod
    def parse(cls, text: str) -> Expectation:
        """``"same"``, ``"close"`` or ``"close:35"``. Raises ``UsageError``."""
        word, colon, number = text.partition(":")
        if text == "same":
            return cls()
        if word == "close":
            try:
                psnr = float(number) if colon else CLOSE_PSNR
            except ValueError:
                psnr = math.nan
            if 0 < psnr < math.inf:
                return cls(psnr)
        raise UsageError(
            f'--expect "{text}" is no expectation', code="expect_invalid", hint="write same, close or close:PSNR in dB"
        )


@dataclass(frozen=True)
class Replay:
    """An earlier image: its options by name, its own record if it has one, and where its pixels are."""

    path: Path
    options: Mapping[str, Any]
    record: Mapping[str, Any] | None = None
    image: Path | None = None
    tool: str | None = None

    @property
    def pixel_sha256(self) -> str | None:
        value = self.record.get("pixel_sha256") if self.record else None
        return value if isinstance(value, str) else None


def read_replay(path: Path) -> Replay:
    """The image or the sidecar at ``path``. Raises ``InputError`` where it does not say how it was made."""
    if path.suffix.lower() == ".json":
        record = read_json_object(path, code="record_invalid")
        if record.get("schema") != SCHEMA:
            raise InputError(f"{path}: no record of an image ({SCHEMA})", code="record_invalid", path=path)
        image = next(
            (one for end in ("", ".png", ".webp", ".jpg", ".jpeg") if (one := _beside(path, end)).exists()), None
        )
        return Replay(path, _options(record), record, None if image == path else image, "shardtool")
    found = read_settings(path)
    if found["tool"] is None or not found["settings"].get("prompt"):
        raise InputError(
            f"{path}: the image does not say how it was made",
            code="record_missing",
            path=path,
            hint="it was saved without metadata, or by something that removes it",
        )
    if found["record"] is not None:
        return Replay(path, _options(found["record"]), found["record"], path, "shardtool")
    settings = {name: found["settings"][name] for name in SETTING_NAMES if name in found["settings"]}
    if "seed" in found["settings"]:
        settings["seed"] = (str(found["settings"]["seed"]),)
    return Replay(path, settings, None, path, found["tool"])


def _beside(path: Path, end: str) -> Path:
    return path.with_suffix(end)


def _options(record: Mapping[str, Any]) -> dict[str, Any]:
    """The options that make the recorded image again. The device is left free, unless it was the CPU."""
    model, environment = record.get("model"), record.get("environment")
    model = model if isinstance(model, Mapping) else {}
    environment = environment if isinstance(environment, Mapping) else {}
    settings = record["settings"] if isinstance(record.get("settings"), Mapping) else {}
    options: dict[str, Any] = {**settings_of(record), "count": 1}
    if "seed" in settings:
        options["seed"] = (str(settings["seed"]),)
    if model.get("source"):
        options["model"] = model["source"]
    overrides = model.get("overrides")
    if isinstance(overrides, Mapping):
        options |= {name: source for name, source in overrides.items() if name in SHORT}
        if others := tuple(f"{name}={source}" for name, source in overrides.items() if name not in SHORT):
            options["component"] = others
    loras = model.get("lora")
    if isinstance(loras, list) and loras:
        options["lora"] = tuple(f"{one.get('source')}:{one.get('scale')}" for one in loras if isinstance(one, Mapping))
    for name in ("vae_tiling", "compile", "variant", "on_long_prompt"):
        if model.get(name) is not None:
            options[name] = model[name]
    if environment.get("dtype") in ("fp32", "fp16", "bf16"):
        options["dtype"] = environment["dtype"]
    if environment.get("device") == "cpu":
        options["device"] = "cpu"
    return options


def read_begun(path: Path) -> dict[str, Any]:
    """The options that go on with a picture whose latents were kept in ``path``. Raises ``InputError``."""
    with OpenFile(path) as file:
        text = read_header(file).metadata.get("shardtool")
    try:
        header = parse_json_object((text or "").encode())
        record = header["record"]
        options = _options(record)
        return {**options, "output": record["path"]} if record.get("path") else options
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: holds no latents of a picture that was stopped", code="latents_invalid", path=path
        ) from error


@dataclass(frozen=True)
class Verdict:
    """How a replay compares. ``psnr`` is decibels, ``None`` if there are no pixels to compare; infinite is ``same``."""

    met: bool
    same: bool
    psnr: float | None
    differences: tuple[tuple[str, Any, Any], ...] = field(default_factory=tuple)

    def as_json(self) -> dict[str, Any]:
        psnr = None if self.psnr is None or math.isinf(self.psnr) else round(self.psnr, 2)
        listed = [{"what": what, "was": was, "is": now} for what, was, now in self.differences]
        return {"met": self.met, "same": self.same, "psnr": psnr, "differences": listed}


def judge(replay: Replay, image: Image.Image, record: Mapping[str, Any], expected: Expectation | None) -> Verdict:
    """Compare ``image``, made now with ``record``, with what was replayed.

    Raises ``InputError`` where there are no pixels to compare with.
    """
    psnr = None
    lossless = replay.image is not None and replay.image.suffix.lower() == ".png"
    before = read_image(replay.image).convert("RGB") if replay.image is not None else None
    if before is not None:
        psnr = _psnr(before, image)
    if replay.pixel_sha256 is not None:
        same = replay.pixel_sha256 == record["pixel_sha256"]
    elif lossless:
        same = psnr == math.inf
    else:
        same = False
    if expected is not None and expected.psnr is not None and psnr is None and not same:
        raise InputError(
            f"{replay.path}: there is no image beside it to compare with",
            code="image_missing",
            path=replay.path,
            hint="replay the image itself",
        )
    close = expected is not None and expected.psnr is not None and psnr is not None and psnr >= expected.psnr
    met = expected is None or same or close
    return Verdict(met, same, math.inf if same and psnr is None else psnr, tuple(_differences(replay.record, record)))


def _psnr(before: Image.Image, after: Image.Image) -> float | None:
    """Decibels between two RGB images of one size; infinite where they are equal, 0 where the sizes differ."""
    from PIL import ImageChops, ImageStat

    if before.size != after.size:
        return 0.0
    squares = ImageStat.Stat(ImageChops.difference(before, after.convert("RGB"))).sum2
    error = sum(squares) / (3 * before.width * before.height)
    return 10 * math.log10(255**2 / error) if error else math.inf


_COMPARED: Final = ("settings", "model", "scheduler", "environment", "inputs")


def _differences(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(what, was, is) for every fact that is recorded on both sides and not equal."""
    for group in _COMPARED:
        old, new = (before or {}).get(group), after.get(group)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _unequal(group, old, new)


def _unequal(group: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in sorted(old.keys() & new.keys()):
        was, now = old[name], new[name]
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            yield from _unequal(f"{group}.{name}", was, now)
        elif json.dumps(was, sort_keys=True) != json.dumps(now, sort_keys=True):
            yield f"{group}.{name}", was, now
