"""Prompts to embeddings, once for each prompt of a run."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, TypeAlias

import torch

from shardtool.images.settings import Settings

_KEPT: Final = 32
"""Encoded prompts kept; at SDXL's size one is 1.3 MB in fp32, so a long prompts file does not fill the memory."""

Embeddings: TypeAlias = dict[str, torch.Tensor]
"""Arguments of a diffusers pipeline: ``prompt_embeds`` and, as the pipeline has them, pooled and negative ones."""

_NAMES: Final = (
    "prompt_embeds",
    "negative_prompt_embeds",
    "pooled_prompt_embeds",
    "negative_pooled_prompt_embeds",
)


class PromptEncoder:
    """Encodes with the pipeline's own ``encode_prompt``, and remembers what it has encoded.

    With ``windows`` a prompt that is longer than the tokenizers take is encoded in several windows set side by side;
    without, its end is cut off, as diffusers does.
    """

    def __init__(self, pipe: Any, *, windows: bool = False) -> None:
        self._pipe = pipe
        self._windows = windows
        self._kept: OrderedDict[tuple[Any, ...], Embeddings] = OrderedDict()

    def encode(self, settings: Settings) -> Embeddings:
        """Embeddings of one picture's prompts, with a batch dimension of 1, on the pipeline's device."""
        guided = settings.guidance > 1 and self._pipe.unet.config.time_cond_proj_dim is None
        prompts = (settings.prompt, settings.prompt_2, settings.negative_prompt, settings.negative_prompt_2, guided)
        found = self._kept.pop(prompts, None)
        if found is None:
            found = self._encode(settings, guided)
        self._kept[prompts] = found
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return found

    def _encode(self, settings: Settings, guided: bool) -> Embeddings:  # noqa: FBT001
        pipe = self._pipe
        if self._windows and _longest(pipe, settings) > 1:
            return _encode_windows(pipe, settings, guided)
        two: dict[str, Any] = {}
        if getattr(pipe, "tokenizer_2", None) is not None:
            two = {"prompt_2": settings.prompt_2, "negative_prompt_2": settings.negative_prompt_2}
        encoded = pipe.encode_prompt(
            prompt=settings.prompt,
            negative_prompt=settings.negative_prompt,
            device=pipe._execution_device,
            num_images_per_prompt=1,
            do_classifier_free_guidance=guided,
            **two,
        )
        return {name: tensor for name, tensor in zip(_NAMES, encoded, strict=False) if tensor is not None}


def _pairs(pipe: Any) -> list[tuple[Any, Any]]:
    """(tokenizer, text encoder), in the order in which their hidden states stand side by side."""
    pairs = [(pipe.tokenizer, pipe.text_encoder)] if pipe.tokenizer is not None else []
    if getattr(pipe, "tokenizer_2", None) is not None:
        pairs.append((pipe.tokenizer_2, pipe.text_encoder_2))
    return pairs


def _texts(settings: Settings) -> tuple[tuple[str, str], tuple[str, str]]:
    """The positive and negative text for the first and the second encoder."""
    negative = settings.negative_prompt or ""
    return (
        (settings.prompt, settings.prompt_2 or settings.prompt),
        (negative, settings.negative_prompt_2 or negative),
    )


def _longest(pipe: Any, settings: Settings) -> int:
    return max(
        len(_windows_of(tokenizer, text))
        for texts in _texts(settings)
        for (tokenizer, _), text in zip(_pairs(pipe), texts, strict=False)
    )


def _windows_of(tokenizer: Any, text: str) -> list[list[int]]:
    """The tokens of ``text`` in windows that leave room for the begin and the end token; one window at least."""
    room = tokenizer.model_max_length - 2
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    return [ids[start : start + room] for start in range(0, len(ids), room)] or [[]]


def _encode_windows(pipe: Any, settings: Settings, guided: bool) -> Embeddings:  # noqa: FBT001
    """Every window encoded by itself, as many for the negative as for the positive prompt.

    The pooled embedding is the first window's. An absent negative prompt is all zeros where the pipeline says so.
    """
    number = _longest(pipe, settings)
    positive, negative = _texts(settings)
    hidden, pooled = _encode_texts(pipe, positive, number)
    embeddings = {"prompt_embeds": hidden}
    if pooled is not None:
        embeddings["pooled_prompt_embeds"] = pooled
    if not guided:
        return embeddings
    zeros = settings.negative_prompt is None and getattr(pipe.config, "force_zeros_for_empty_prompt", False)
    if zeros:
        hidden, pooled = torch.zeros_like(hidden), torch.zeros_like(pooled) if pooled is not None else None
    else:
        hidden, pooled = _encode_texts(pipe, negative, number)
    embeddings["negative_prompt_embeds"] = hidden
    if pooled is not None:
        embeddings["negative_pooled_prompt_embeds"] = pooled
    return embeddings


def _encode_texts(pipe: Any, texts: tuple[str, str], number: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Hidden states (1, number × length, sum of widths) and the pooled projection (1, width) of the last encoder."""
    side_by_side: list[torch.Tensor] = []
    pooled: torch.Tensor | None = None
    pairs = _pairs(pipe)
    for (tokenizer, encoder), text in zip(pairs, texts, strict=False):
        windows = _windows_of(tokenizer, text)
        states: list[torch.Tensor] = []
        for window in range(number):
            ids = windows[window] if window < len(windows) else []
            length = tokenizer.model_max_length
            padded = [tokenizer.bos_token_id, *ids, tokenizer.eos_token_id]
            padded += [tokenizer.pad_token_id] * (length - len(padded))
            tensor = torch.tensor([padded], device=pipe._execution_device)
            output = encoder(tensor, output_hidden_states=True)
            if window == 0:
                pooled = output[0] if output[0].ndim == 2 else pooled
            # SDXL takes the last but one layer; with a single encoder (SD 1.x, 2.x) it is the last one, normed.
            states.append(output.hidden_states[-2] if len(pairs) > 1 else output[0])
        side_by_side.append(torch.cat(states, dim=1))
    return torch.cat(side_by_side, dim=-1), pooled
