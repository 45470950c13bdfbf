"""What one picture looks like, and a picture to be made: its settings, its seed and where it goes."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal

from shardtool.errors import UsageError
from shardtool.images.schedulers import parse_scheduler

MAX_STEPS: Final = 1000
"""Schedulers of this family are trained on 1000 noise levels; more steps than that have nowhere to go."""

MAX_SIDE: Final = 16384
"""Pixels; a decoder's memory grows with the area, so anything beyond is a slip of the finger."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""What Python makes of bytes that are no UTF-8, and what JSON can spell."""


@dataclass(frozen=True)
class Settings:
    """What a picture depends on besides the model and the seed.

    ``width`` and ``height`` are pixels, ``None`` for the model's own size. ``scheduler`` is a short name of
    ``shardtool.images.schedulers``, ``None`` for the model's own. ``image`` makes it image to image, ``mask`` with it
    inpainting; ``strength`` (0 to 1) says how much of ``image`` is redrawn.
    """

    prompt: str = ""
    prompt_2: str | None = None
    negative_prompt: str | None = None
    negative_prompt_2: str | None = None
    width: int | None = None
    height: int | None = None
    steps: int = 30
    guidance: float = 5.0
    scheduler: str | None = None
    image: Path | None = None
    mask: Path | None = None
    strength: float = 0.6

    def __post_init__(self) -> None:
        """Raises ``UsageError`` where a value is outside what any model takes."""
        for name in ("prompt", "prompt_2", "negative_prompt", "negative_prompt_2"):
            if (at := _SURROGATE.search(getattr(self, name) or "")) is not None:
                raise UsageError(
                    f"the {name.replace('_', ' ')} is no text: not UTF-8 at character {at.start() + 1}",
                    code="prompt_invalid",
                    hint="write it in UTF-8",
                )
        if not 1 <= self.steps <= MAX_STEPS:
            raise _outside("steps", self.steps, f"1 to {MAX_STEPS}")
        if not 0 <= self.guidance <= 100:
            raise _outside("guidance", self.guidance, "0 to 100; up to 1 means none")
        if not 0 <= self.strength <= 1:
            raise _outside("strength", self.strength, "0 to 1: how much of the image is redrawn")
        for name, side in (("width", self.width), ("height", self.height)):
            if side is not None and not 1 <= side <= MAX_SIDE:
                raise _outside(name, side, f"1 to {MAX_SIDE} pixels")
        if self.mask is not None and self.image is None:
            raise UsageError("--mask needs --image", code="mask_without_image", hint="add --image FILE")
        if self.image is not None and int(self.steps * self.strength) < 1:
            raise UsageError(
                f"--strength {self.strength:g} of --steps {self.steps} leaves no step to run",
                code="strength_invalid",
                hint=f"--strength {1 / self.steps:.3g} is the least for that many steps",
            )
        if self.scheduler is not None:
            parse_scheduler(self.scheduler)

    @property
    def task(self) -> Literal["text2img", "img2img", "inpaint"]:
        if self.image is None:
            return "text2img"
        return "img2img" if self.mask is None else "inpaint"

    @property
    def steps_run(self) -> int:
        """How many steps are denoised: all of them, or the share that ``strength`` leaves of an image."""
        return self.steps if self.image is None else min(int(self.steps * self.strength), self.steps)

    def as_json(self) -> dict[str, Any]:
        """Every setting; paths as text, and nothing of an image where there is none."""
        values = {name: str(value) if isinstance(value, Path) else value for name, value in vars(self).items()}
        if self.image is None:
            for key in ("image", "mask", "strength"):
                del values[key]
        return values


SETTING_NAMES: Final = tuple(field.name for field in fields(Settings))


def _outside(name: str, value: float, allowed: str) -> UsageError:
    default = getattr(Settings, name)
    hint = f"--{name} {default:g} is the default" if default is not None else "left out, it is the model's own"
    return UsageError(f"--{name} {value} is outside {allowed}", code=f"{name}_invalid", hint=hint)


@dataclass(frozen=True)
class Job:
    """One picture to be made. ``index`` counts from 1 over the whole run, and ``path`` is ``None`` for stdout."""

    index: int
    seed: int
    settings: Settings
    path: Path | None

    def key(self, model: str) -> str:
        """What the picture depends on, as 32 hex digits: equal keys mean equal pictures on the same machine.

        ``model`` identifies the weights. An input image counts by its content, not by its name.
        """
        values = self.settings.as_json()
        for name, path in (("image", self.settings.image), ("mask", self.settings.mask)):
            if path is not None:
                values[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        text = json.dumps([model, self.seed, values], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
