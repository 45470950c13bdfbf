"""One picture's latents: its scheduler, its seed, the diffusers pipeline of its task, and its steps as they pass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import torch

from shardtool.generation.encoding import Embeddings
from shardtool.images.inputs import load_inputs
from shardtool.images.schedulers import parse_scheduler
from shardtool.images.settings import Settings

OnStep: TypeAlias = Callable[[int, torch.Tensor], torch.Tensor]
"""Called after each run of the UNet with the number of runs and the latents; the latents it returns go on."""

_TASKS: Final[Mapping[str, Mapping[str, str]]] = {
    "StableDiffusionXLPipeline": {
        "img2img": "StableDiffusionXLImg2ImgPipeline",
        "inpaint": "StableDiffusionXLInpaintPipeline",
    },
    "StableDiffusionPipeline": {
        "img2img": "StableDiffusionImg2ImgPipeline",
        "inpaint": "StableDiffusionInpaintPipeline",
    },
}


def make_scheduler(own: Any, name: str | None) -> tuple[Any, list[str]]:
    """A fresh scheduler for one picture: ``own``'s kind, or the named one with ``own``'s settings.

    Also returns the settings of ``own`` that the named class does not know, as far as they are not at their default:
    with one of these missing, a model gives worse pictures.
    """
    import diffusers

    if name is None:
        return type(own).from_config(own.config), []
    choice = parse_scheduler(name)
    kind = getattr(diffusers, choice.scheduler.class_name)
    known = inspect.signature(kind.__init__).parameters
    settings = {key: value for key, value in own.config.items() if key in known}
    defaults = inspect.signature(type(own).__init__).parameters
    lost = [
        key
        for key in ("prediction_type", "rescale_betas_zero_snr", "timestep_spacing")
        if key not in known and key in own.config and own.config[key] != defaults[key].default
    ]
    return kind.from_config({**settings, **choice.settings}), lost


def pipeline_for(pipe: Any, task: str) -> Any:
    """``pipe`` itself, or the pipeline of another task around the same components (nothing is copied or moved)."""
    if task == "text2img":
        return pipe
    import diffusers

    kind = getattr(diffusers, _TASKS[type(pipe).__name__][task])
    known = inspect.signature(kind.__init__).parameters
    extras = {key: value for key, value in pipe.config.items() if key in known and key not in pipe.components}
    if "add_watermarker" in known:
        extras["add_watermarker"] = getattr(pipe, "watermark", None) is not None
    made = kind(**{key: value for key, value in pipe.components.items() if key in known}, **extras)
    made.set_progress_bar_config(disable=True)
    return made


def denoise(
    pipe: Any, scheduler: Any, settings: Settings, embeddings: Embeddings, generator: torch.Generator, on_step: OnStep
) -> torch.Tensor:
    """The latents (1, channels, height / 8, width / 8) of one picture.

    ``pipe`` is the pipeline of the task, ``generator`` one of the CPU that belongs to this picture alone, so that the
    picture depends on nothing but its own seed.
    """
    pipe.scheduler = scheduler

    def after_step(_: Any, step: int, __: Any, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"latents": on_step(step + 1, tensors["latents"])}

    arguments: dict[str, Any] = dict(embeddings)
    if settings.task == "text2img":
        arguments |= {"width": settings.width, "height": settings.height}
    else:
        arguments |= load_inputs(settings)
        arguments["strength"] = settings.strength
    made: torch.Tensor = pipe(
        num_inference_steps=settings.steps,
        guidance_scale=settings.guidance,
        generator=generator,
        output_type="latent",
        callback_on_step_end=after_step,
        **arguments,
    ).images
    return made


def generator_for(seed: int) -> torch.Generator:
    """The generator of one picture. On the CPU, whose numbers are the same on every machine."""
    return torch.Generator("cpu").manual_seed(seed)
