"""Do the parts of a pipeline fit each other? Decided from their configs, before any weight or library is read.

diffusers finds out at the first denoising step, after everything is loaded, and says "mat1 and mat2 shapes cannot be
multiplied". What is compared here is what its pipelines do with the parts (0.42.1): see ``encode_prompt`` and
``_get_add_time_ids`` of each pipeline class.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from shardtool.checkpoint.names import SCHEDULER_NAME
from shardtool.checkpoint.strict_json import read_json_object
from shardtool.errors import InputError, Problem
from shardtool.families import Family, family_of, first_int, looks_like
from shardtool.parts import PipelineParts

_TIME_IDS = 6
"""Numbers in SDXL's size conditioning: original size, crop, target size. The refiner has five, with a score."""

_STEPS = 100_000
"""Steps of training that a scheduler may have tables for; real ones have 1000."""

_PREDICTIONS = ("epsilon", "v_prediction", "sample", "original_sample", "flow_prediction")
"""What a denoiser can predict, in the schedulers of diffusers 0.42.1."""

_OWN_SCHEDULER = "use the scheduler of the pipeline's own repo"

_SCALES = ("scaling_factor", "shift_factor", "latents_mean", "latents_std")


def check_partners(parts: PipelineParts) -> tuple[Problem, ...]:
    """Every way in which the parts do not fit each other; empty where they do, or where nothing is known of the family.

    Compared are the widths of cross attention and of the pooled projection with the text encoders, the latent channels
    of the denoiser and the VAE, the tokenizers with their encoders, and the kind of the scheduler; what a picture is
    scaled with must be numbers.
    """
    family = family_of(parts.class_name)
    problems: list[Problem] = []
    if family in ("sd", "sdxl"):
        problems.extend(_unet_problems(parts, family))
    elif family is not None:
        problems.extend(_transformer_problems(parts, family))
    if family is not None:
        problems.extend(_scheduler_problems(parts, family))
    problems.extend(_tokenizer_problems(parts))
    problems.extend(_scaling_problems(parts))
    return tuple(problems)


def require_partners(parts: PipelineParts) -> None:
    """Raises ``InputError`` with every problem of ``check_partners``."""
    if problems := check_partners(parts):
        raise InputError.of_all(problems)


def _misfit(parts: PipelineParts, name: str, fault: str, identity: str | None = None) -> Problem:
    looks = f"; looks like {identity}" if identity else ""
    path = parts.config_path(name)
    return Problem(
        "partner_mismatch",
        f"{path}: this {name} does not fit the pipeline ({parts.class_name}): {fault}{looks}",
        path,
        hint=f"use parts that were made for each other: {_replaced(parts)}",
    )


def _replaced(parts: PipelineParts) -> str:
    """Which parts come from elsewhere, as one of these is the likeliest not to belong."""
    others = [name for name, part in parts.parts.items() if not part.folder.is_relative_to(parts.path)]
    others += parts.given
    if not others:
        return "fetch all of the pipeline from one place"
    return f"{', '.join(others)} came from elsewhere; take another, or the pipeline it belongs to"


def _unet_problems(parts: PipelineParts, family: Family) -> Iterator[Problem]:
    config = parts.config("unet")
    if config is None:
        return
    identity = looks_like(config)

    def misfit(fault: str) -> Problem:
        return _misfit(parts, "unet", fault, identity)

    wanted = _cross_attention_width(config)
    given = _text_width(parts, family)
    if wanted is not None and given is not None and wanted != given:
        yield misfit(f"cross_attention_dim {wanted}, text encoders give {given}")
    conditioned = config.get("addition_embed_type") == "text_time"
    if family == "sdxl" and not conditioned:
        yield misfit("addition_embed_type is not text_time, so it takes no pooled text and no sizes")
    elif family == "sd" and conditioned:
        yield misfit(
            "it wants pooled text and sizes (addition_embed_type text_time), which this pipeline does not give"
        )
    elif family == "sdxl":
        yield from (misfit(fault) for fault in _projection_faults(parts, config))
    yield from (misfit(fault) for fault in _latent_faults(parts, first_int(config.get("in_channels"))))


def _cross_attention_width(config: Mapping[str, Any]) -> int | None:
    """The width of text that a UNet takes: before its own projection, if it has one."""
    return first_int(config.get("encoder_hid_dim")) or first_int(config.get("cross_attention_dim"))


def _text_width(parts: PipelineParts, family: Family) -> int | None:
    """What the text encoders hand to cross attention; SDXL sets the hidden states of its encoders side by side."""
    names = ("text_encoder", "text_encoder_2") if family == "sdxl" else ("text_encoder",)
    widths = [_hidden_size(config) for name in names if (config := parts.config(name)) is not None]
    return None if None in widths or not widths else sum(width for width in widths if width)


def _hidden_size(config: Mapping[str, Any]) -> int | None:
    inner = config.get("text_config")
    if isinstance(inner, dict) and "hidden_size" not in config:
        config = inner
    return first_int(config.get("hidden_size", config.get("d_model")))


def _projection_faults(parts: PipelineParts, config: Mapping[str, Any]) -> Iterator[str]:
    encoder = parts.config("text_encoder_2")
    wanted = config.get("projection_class_embeddings_input_dim")
    per_id = config.get("addition_time_embed_dim")
    if encoder is None or type(wanted) is not int or type(per_id) is not int:
        return
    pooled = first_int(encoder.get("projection_dim"))
    ids = _TIME_IDS - 1 if parts.settings.get("requires_aesthetics_score") else _TIME_IDS
    if pooled is not None and wanted != pooled + ids * per_id:
        given = f"pooled text ({pooled}) and {ids} sizes of {per_id} give {pooled + ids * per_id}"
        yield f"projection_class_embeddings_input_dim {wanted}, {given}"


def _latent_faults(parts: PipelineParts, channels: int | None, *, packed: int = 1) -> Iterator[str]:
    """``packed`` latents stand side by side in one token of the denoiser (four in Flux)."""
    vae = parts.config("vae")
    latent = first_int(vae.get("latent_channels")) if vae else None
    # Other jobs than text to image add channels to the latents: the masked picture, a mask, a depth map.
    only_text = not any(
        word in parts.class_name for word in ("Inpaint", "Pix2Pix", "Upscale", "Depth", "Control", "Fill")
    )
    if channels is not None and latent is not None and only_text and channels != latent * packed:
        yield f"in_channels {channels}, the VAE has {latent * packed} latent channels"


def _transformer_problems(parts: PipelineParts, family: Family) -> Iterator[Problem]:
    config = parts.config("transformer")
    if config is None:
        return
    packed = 4 if family == "flux" else 1
    faults = list(_latent_faults(parts, first_int(config.get("in_channels")), packed=packed))
    text, clip = _transformer_text(parts, family)
    text_key = "caption_channels" if family == "pixart" else "joint_attention_dim"
    for key, given in ((text_key, text), ("pooled_projection_dim", clip)):
        wanted = first_int(config.get(key))
        if wanted is not None and given is not None and wanted != given:
            faults.append(f"{key} {wanted}, the text encoders give {given}")
    yield from (_misfit(parts, "transformer", fault) for fault in faults)


def _transformer_text(parts: PipelineParts, family: Family) -> tuple[int | None, int | None]:
    """The width of the text's tokens, and of the pooled text."""
    encoders = [parts.config(name) for name in ("text_encoder", "text_encoder_2", "text_encoder_3")]
    if family == "pixart":
        return (_hidden_size(encoders[0]) if encoders[0] else None), None
    if family == "flux":
        return (
            _hidden_size(encoders[1]) if encoders[1] else None,
            _hidden_size(encoders[0]) if encoders[0] else None,
        )
    pooled = [first_int(encoder.get("projection_dim")) for encoder in encoders[:2] if encoder]
    both = sum(width for width in pooled if width) if len(pooled) == 2 and None not in pooled else None
    return (_hidden_size(encoders[2]) if encoders[2] else None), both


def _scheduler_problems(parts: PipelineParts, family: Family) -> Iterator[Problem]:
    scheduler = parts.parts.get("scheduler")
    if scheduler is None:
        return
    path = scheduler.folder / SCHEDULER_NAME
    config = read_json_object(path, code="config_invalid") if path.exists() else {}
    for fault in _scheduler_faults(config):
        yield Problem("config_invalid", f"{path}: {fault}", str(path), hint=_OWN_SCHEDULER)
    flow = "FlowMatch" in scheduler.class_name or config.get("use_flow_sigmas") is True
    needs_flow = family in ("sd3", "flux")
    if flow != needs_flow:
        kind = "of flow matching" if flow else "of diffusion by noise prediction"
        yield Problem(
            "partner_mismatch",
            f"{path}: {scheduler.class_name} is a scheduler {kind}, which {parts.class_name} cannot use",
            str(path),
            hint=_OWN_SCHEDULER,
        )


def _scheduler_faults(config: Mapping[str, Any]) -> Iterator[str]:
    """Settings that diffusers stumbles over at the first step, or makes tables of without end."""
    steps = config.get("num_train_timesteps")
    if steps is not None and not (type(steps) is int and 0 < steps <= _STEPS):
        yield f"num_train_timesteps is {steps!r:.80}, no number of steps from 1 to {_STEPS:,}"
    predicted = config.get("prediction_type")
    if predicted is not None and predicted not in _PREDICTIONS:
        yield f"prediction_type is {predicted!r:.80}, none of {', '.join(_PREDICTIONS)}"


def _tokenizer_problems(parts: PipelineParts) -> Iterator[Problem]:
    """A CLIP encoder has a fixed number of positions; a longer prompt than that ends in an index error."""
    for name, part in parts.parts.items():
        encoder = parts.config(name.replace("tokenizer", "text_encoder", 1)) if name.startswith("tokenizer") else None
        path = part.folder / "tokenizer_config.json"
        if encoder is None or not part.class_name.startswith("CLIPTokenizer") or not path.exists():
            continue
        longest = read_json_object(path, code="config_invalid").get("model_max_length")
        inner = encoder.get("text_config")
        positions = (inner if isinstance(inner, dict) else encoder).get("max_position_embeddings")
        if type(longest) is int and type(positions) is int and longest > positions:
            yield Problem(
                "partner_mismatch",
                f"{path}: cuts prompts at {longest} tokens, and the text encoder has {positions} positions",
                str(path),
                hint=f"use the tokenizer that belongs to this {name.replace('tokenizer', 'text encoder', 1)}",
            )


def _scaling_problems(parts: PipelineParts) -> Iterator[Problem]:
    """The VAE's numbers, which are first used when the picture is decoded, after all the steps."""
    path = parts.config_path("vae")
    for key, value in (parts.config("vae") or {}).items():
        numbers = value if key in ("latents_mean", "latents_std") and isinstance(value, list) else [value]
        if key not in _SCALES or value is None or all(_is_finite(number) for number in numbers):
            continue
        fault = f"{key} is {value!r:.80}, no number"
        yield Problem("config_invalid", f"{path}: {fault}", path, hint="fetch the config.json of these weights")


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # an integer may be larger than any float
