"""Tensor names that diffusers translates in single files only: exactly those, and into its own names."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from diffusers import AutoencoderKL
from hypothesis import given
from hypothesis import strategies as st

from shardtool.checkpoint.legacy_names import todays_names
from shardtool.checkpoint.names import WeightsName
from tests.checkpoint.test_shard_peers import OLD, vae

DIFFUSERS = WeightsName("diffusion_pytorch_model")


@pytest.fixture(scope="module")
def model() -> AutoencoderKL:
    return vae(1)


def test_names_become_what_diffusers_makes_of_them(model: AutoencoderKL) -> None:
    """Asked of diffusers itself: the names that its own translation gives a state dict of 2022."""
    state = {}
    for name, tensor in model.state_dict().items():
        for new, old in OLD.items():
            if ".attentions." in name:
                name = name.replace(f".{new}.", f".{old}.")
        state[name] = tensor
    translated = copy.copy(state)
    model._fix_state_dict_keys_on_load(translated)
    assert translated.keys() == model.state_dict().keys()
    found = todays_names(state, DIFFUSERS)
    assert {found.get(name, name) for name in state} == translated.keys()
    assert all(torch.equal(translated[new], state[old]) for old, new in found.items())
    assert todays_names(translated, DIFFUSERS) == {}
    assert todays_names(state, WeightsName("diffusion_pytorch_model", "fp16")) == found


def test_checkpoints_of_transformers_are_left_alone() -> None:
    """There ``key`` and ``query`` are names of today."""
    names = [f"block.{part}.{kind}" for part in OLD.values() for kind in ("weight", "bias")]
    assert len(todays_names(names, DIFFUSERS)) == 8
    assert todays_names(names, WeightsName("model")) == {}


PARTS = [*OLD, *OLD.values(), "norm"]
NAMES = st.sets(st.sampled_from([".".join(parts) for parts in itertools.product("ab", PARTS, ("weight", "bias"))]))


@given(NAMES)
def test_nothing_is_renamed_without_the_mark_of_2022_and_no_two_tensors_get_one_name(names: set[str]) -> None:
    """``query`` and ``key`` alone prove nothing; and where a name is taken already, all stay as they are."""
    found = todays_names(names, DIFFUSERS)
    after = {found.get(name, name) for name in names}
    assert len(after) == len(names)
    assert found.keys() <= names
    marked = {name.removesuffix(".proj_attn.weight") for name in names if name.endswith(".proj_attn.weight")}
    expected = {
        name for name in names for block, part, _ in [name.split(".", 2)] if block in marked and part in OLD.values()
    }
    new = {old: name for name, old in OLD.items()}
    clash = any(f"{b}.{new[p]}.{k}" in names for b, p, k in (name.split(".", 2) for name in expected))
    assert found.keys() == (set() if clash else expected)
