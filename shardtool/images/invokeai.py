"""InvokeAI's metadata: ``invokeai_metadata`` since 3.0, ``sd-metadata`` before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shardtool.images.foreign_json import json_object

_SCHEDULERS: Final = {
    "ddim": "ddim",
    "ddpm": "ddpm",
    "deis": "deis",
    "deis_k": "deis-karras",
    "dpmpp_2m": "dpmpp-2m",
    "dpmpp_2m_k": "dpmpp-2m-karras",
    "dpmpp_2m_sde": "dpmpp-2m-sde",
    "dpmpp_2m_sde_k": "dpmpp-2m-sde-karras",
    "dpmpp_2s": "dpmpp-2s",
    "dpmpp_2s_k": "dpmpp-2s-karras",
    "euler": "euler",
    "euler_k": "euler-karras",
    "euler_a": "euler-a",
    "heun": "heun",
    "heun_k": "heun-karras",
    "kdpm_2": "dpm2",
    "kdpm_2_k": "dpm2-karras",
    "kdpm_2_a": "dpm2-a",
    "kdpm_2_a_k": "dpm2-a-karras",
    "k_euler": "euler",
    "k_euler_a": "euler-a",
    "k_heun": "heun",
    "lcm": "lcm",
    "pndm": "pndm",
    "tcd": "tcd",
    "unipc": "unipc",
    "unipc_k": "unipc-karras",
}
_NAMES: Final = {
    "positive_prompt": "prompt",
    "negative_prompt": "negative_prompt",
    "positive_style_prompt": "prompt_2",
    "negative_style_prompt": "negative_prompt_2",
    "width": "width",
    "height": "height",
    "steps": "steps",
    "cfg_scale": "guidance",
    "seed": "seed",
    "strength": "strength",
}


def settings_of_invokeai(texts: Mapping[str, str]) -> dict[str, Any] | None:
    """The settings under this program's names; ``None`` where there is no metadata of InvokeAI."""
    for key, take in (("invokeai_metadata", _of_present), ("sd-metadata", _of_past)):
        found = json_object(texts.get(key))
        if found is not None:
            return take(found)
    return None


def _of_present(data: Mapping[str, Any]) -> dict[str, Any]:
    found = {ours: data[theirs] for theirs, ours in _NAMES.items() if data.get(theirs) not in (None, "")}
    scheduler = data.get("scheduler")
    if isinstance(scheduler, str):
        found["scheduler"] = _SCHEDULERS.get(scheduler, scheduler)
    model = data.get("model")
    if isinstance(model, dict):
        name = model.get("name") or model.get("model_name")
        if isinstance(name, str):
            found["model"] = name
    return found


def _of_past(data: Mapping[str, Any]) -> dict[str, Any]:
    image = data.get("image")
    if not isinstance(image, dict):
        return {}
    names = {"width": "width", "height": "height", "steps": "steps", "cfg_scale": "guidance", "seed": "seed"}
    found = {ours: image[theirs] for theirs, ours in names.items() if image.get(theirs) is not None}
    prompt = image.get("prompt")
    if isinstance(prompt, list):
        prompt = " ".join(str(one.get("prompt", "")) for one in prompt if isinstance(one, dict))
    if isinstance(prompt, str):
        found["prompt"] = prompt
    sampler = image.get("sampler")
    if isinstance(sampler, str):
        found["scheduler"] = _SCHEDULERS.get(sampler, sampler)
    if isinstance(data.get("model_weights"), str):
        found["model"] = data["model_weights"]
    return found
