"""ComfyUI's metadata: the graph of nodes that was run, as ``prompt`` in the image.

``{"3": {"class_type": "KSampler", "inputs": {"seed": 7, "positive": ["6", 0], …}}, "6": {…}}``: an input is a value, or
the id of another node and the number of its output. The settings are those of the sampler and of what leads to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_SAMPLERS: Final = ("KSampler", "KSamplerAdvanced", "SamplerCustom", "SamplerCustomAdvanced")
_NAMES: Final = {
    "ddim": "ddim",
    "ddpm": "ddpm",
    "deis": "deis",
    "dpm_2": "dpm2",
    "dpm_2_ancestral": "dpm2-a",
    "dpmpp_2m": "dpmpp-2m",
    "dpmpp_2m_sde": "dpmpp-2m-sde",
    "euler": "euler",
    "euler_ancestral": "euler-a",
    "heun": "heun",
    "lcm": "lcm",
    "uni_pc": "unipc",
}
_DEPTH: Final = 64
"""Nodes followed from one input; a graph from elsewhere may lead in a circle."""


def settings_of_graph(graph: Mapping[str, Any]) -> dict[str, Any] | None:
    """The settings of the first sampler in the graph under this program's names; ``None`` where there is none."""
    nodes = {
        key: node for key, node in graph.items() if isinstance(node, dict) and isinstance(node.get("inputs"), dict)
    }
    samplers = [node["inputs"] for node in nodes.values() if node.get("class_type") in _SAMPLERS]
    if not samplers:
        return None
    sampler = samplers[0]
    found: dict[str, Any] = {}
    for ours, theirs in (
        ("seed", ("seed", "noise_seed")),
        ("steps", ("steps",)),
        ("guidance", ("cfg",)),
        ("strength", ("denoise",)),
    ):
        for name in theirs:
            value = _value(nodes, sampler.get(name))
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                found[ours] = value
    if found.get("strength") == 1:
        del found["strength"]
    _take_scheduler(sampler, found)
    for ours, name in (("prompt", "positive"), ("negative_prompt", "negative")):
        if prompt := _text(nodes, sampler.get(name)):
            found[ours] = prompt
    latent = _upstream(nodes, sampler.get("latent_image"), ("width", "height"))
    found |= {name: latent[name] for name in ("width", "height") if isinstance(latent.get(name), int)}
    model = _upstream(nodes, sampler.get("model"), ("ckpt_name", "unet_name"))
    names = [model[key] for key in ("ckpt_name", "unet_name") if isinstance(model.get(key), str)]
    if names:
        found["model"] = names[0]
    return found


def _take_scheduler(sampler: Mapping[str, Any], found: dict[str, Any]) -> None:
    name, schedule = sampler.get("sampler_name"), sampler.get("scheduler")
    if not isinstance(name, str):
        return
    ours = _NAMES.get(name, name)
    found["scheduler"] = f"{ours}-{schedule}" if schedule in ("karras", "exponential") else ours


def _node(nodes: Mapping[str, Any], link: Any) -> Mapping[str, Any] | None:
    """The node that an input leads to; ``None`` where the input is a value of its own."""
    if isinstance(link, list) and len(link) == 2 and isinstance(link[0], str):
        node: Mapping[str, Any] | None = nodes.get(link[0])
        return node
    return None


def _value(nodes: Mapping[str, Any], given: Any) -> Any:
    """A number or a text, followed through nodes that only hold one."""
    for _ in range(_DEPTH):
        node = _node(nodes, given)
        if node is None:
            return None if isinstance(given, list) else given
        inputs = node["inputs"]
        given = next((inputs[key] for key in ("value", "seed", "text", "string", "int") if key in inputs), None)
    return None


def _text(nodes: Mapping[str, Any], link: Any) -> str | None:
    """The prompt at the end of a chain of conditioning nodes."""
    for _ in range(_DEPTH):
        node = _node(nodes, link)
        if node is None:
            return None
        inputs = node["inputs"]
        for key in ("text", "text_g", "text_l", "t5xxl"):
            text = _value(nodes, inputs.get(key))
            if isinstance(text, str) and text:
                return text
        link = next((inputs[key] for key in ("conditioning", "conditioning_1", "positive") if key in inputs), None)
    return None


def _upstream(nodes: Mapping[str, Any], link: Any, wanted: tuple[str, ...]) -> Mapping[str, Any]:
    """The inputs of the first node up the chain that has one of ``wanted``."""
    for _ in range(_DEPTH):
        node = _node(nodes, link)
        if node is None:
            return {}
        inputs: Mapping[str, Any] = node["inputs"]
        if any(key in inputs for key in wanted):
            return inputs
        link = next((inputs[key] for key in ("model", "samples", "latent", "pixels") if key in inputs), None)
    return {}
