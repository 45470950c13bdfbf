"""Short names for diffusers' schedulers: ``euler-a``, ``dpmpp-2m-karras`` …

A name is a base name, and for some of them a suffix that chooses how the noise levels are spaced. diffusers' own class
names are accepted too. What is not named (betas, prediction type, spacing) stays as the model's own scheduler has it.
Those that need scipy (LMS, and spacing by a beta distribution) are left out: scipy is no dependency of this program.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shardtool.errors import UsageError

SPACINGS: Final[Mapping[str, str]] = {
    "karras": "use_karras_sigmas",
    "exponential": "use_exponential_sigmas",
}


@dataclass(frozen=True)
class Scheduler:
    """A class of diffusers and the settings that make it the named scheduler.

    ``a1111`` is what A1111's users call it. ``spaced`` says that the class knows the spacings.
    """

    class_name: str
    a1111: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    spaced: bool = False


_MULTISTEP = "DPMSolverMultistepScheduler"

SCHEDULERS: Final[Mapping[str, Scheduler]] = {
    "ddim": Scheduler("DDIMScheduler", "DDIM"),
    "ddpm": Scheduler("DDPMScheduler", "DDPM"),
    "deis": Scheduler("DEISMultistepScheduler", "DEIS", spaced=True),
    "dpmpp-2m": Scheduler(_MULTISTEP, "DPM++ 2M", {"algorithm_type": "dpmsolver++"}, spaced=True),
    "dpmpp-2m-sde": Scheduler(_MULTISTEP, "DPM++ 2M SDE", {"algorithm_type": "sde-dpmsolver++"}, spaced=True),
    "dpmpp-2s": Scheduler("DPMSolverSinglestepScheduler", "DPM++ 2S", spaced=True),
    "dpm2": Scheduler("KDPM2DiscreteScheduler", "DPM2", spaced=True),
    "dpm2-a": Scheduler("KDPM2AncestralDiscreteScheduler", "DPM2 a", spaced=True),
    "euler": Scheduler("EulerDiscreteScheduler", "Euler", spaced=True),
    "euler-a": Scheduler("EulerAncestralDiscreteScheduler", "Euler a"),
    "heun": Scheduler("HeunDiscreteScheduler", "Heun", spaced=True),
    "lcm": Scheduler("LCMScheduler", "LCM"),
    "pndm": Scheduler("PNDMScheduler", "PLMS"),
    "tcd": Scheduler("TCDScheduler", "TCD"),
    "unipc": Scheduler("UniPCMultistepScheduler", "UniPC", spaced=True),
}

_BY_CLASS: Final = {entry.class_name: name for name, entry in reversed(tuple(SCHEDULERS.items()))}


@dataclass(frozen=True)
class Choice:
    """A scheduler and, where one was named, its spacing."""

    name: str
    scheduler: Scheduler
    spacing: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What is laid over the config of the model's own scheduler."""
        if not self.scheduler.spaced:
            return dict(self.scheduler.settings)
        # All of them, so that a spacing that the model's own config has switched on does not survive beside another.
        spacings = {key: suffix == self.spacing for suffix, key in SPACINGS.items()} if self.spacing else {}
        return {**self.scheduler.settings, **spacings}

    @property
    def a1111(self) -> str:
        """The sampler's name in A1111's parameters, with the spacing as older versions wrote it."""
        return f"{self.scheduler.a1111} {self.spacing.capitalize()}" if self.spacing else self.scheduler.a1111


def parse_scheduler(text: str) -> Choice:
    """The scheduler that ``text`` names, in any case and with ``_`` for ``-``. Raises ``UsageError`` otherwise."""
    if text in _BY_CLASS:
        return Choice(_BY_CLASS[text], SCHEDULERS[_BY_CLASS[text]])
    name = text.strip().lower().replace("_", "-").replace("+", "p").replace(" ", "-")
    if name in SCHEDULERS:
        return Choice(name, SCHEDULERS[name])
    base, _, suffix = name.rpartition("-")
    if suffix in SPACINGS and base in SCHEDULERS:
        if SCHEDULERS[base].spaced:
            return Choice(name, SCHEDULERS[base], suffix)
        raise UsageError(
            f'--scheduler "{text}": {base} has no {suffix} spacing', code="scheduler_invalid", hint=f"write {base}"
        )
    near = difflib.get_close_matches(name, scheduler_names(), n=3, cutoff=0.5)
    raise UsageError(
        f'--scheduler "{text}" is unknown',
        code="scheduler_invalid",
        hint=(f"did you mean {', '.join(near)}? " if near else "") + "--list-schedulers lists them all",
    )


def scheduler_names() -> tuple[str, ...]:
    """Every name that ``parse_scheduler`` takes, class names left out."""
    return tuple(
        name + suffix
        for name, entry in SCHEDULERS.items()
        for suffix in ("", *(f"-{spacing}" for spacing in SPACINGS if entry.spaced))
    )
