"""Tensor names that diffusers translates in single files only.

Attention blocks of 2022 (``AttentionBlock``) called their tensors ``query``, ``key``, ``value`` and ``proj_attn``. When
diffusers loads one file it renames them, when it loads shards it does not: the model then comes out with parameters on
the meta device, and a warning at most. The mapping is that of ``ModelMixin._fix_state_dict_keys_on_load`` in
``diffusers.models.modeling_utils`` (0.42.1), which applies it to the blocks made with ``_from_deprecated_attn_block``.
``proj_attn`` never was a name of anything else, so that its presence tells such a block by the names alone.
"""

from __future__ import annotations

from collections.abc import Collection

from shardtool.checkpoint.names import WeightsName

_PARTS = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}
_KINDS = ("weight", "bias")


def todays_names(names: Collection[str], of: WeightsName) -> dict[str, str]:
    """Legacy tensor name → today's, for the legacy ones among ``names``. Checkpoints of transformers have none."""
    if of.stem == "model":
        return {}
    present = set(names)
    blocks = {name.removesuffix(".proj_attn.weight") for name in present if name.endswith(".proj_attn.weight")}
    found = {
        f"{block}.{old}.{kind}": f"{block}.{new}.{kind}"
        for block in sorted(blocks)
        for old, new in _PARTS.items()
        for kind in _KINDS
        if f"{block}.{old}.{kind}" in present
    }
    return {} if present & set(found.values()) else found
