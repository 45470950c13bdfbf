"""Short names of schedulers, with diffusers as the referee."""

from __future__ import annotations

import inspect
from typing import Any

import diffusers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.errors import UsageError
from shardtool.generation.denoising import make_scheduler
from shardtool.images.parameters import scheduler_of
from shardtool.images.schedulers import SCHEDULERS, SPACINGS, parse_scheduler, scheduler_names

# diffusers hands tensors to numpy in a way that numpy is giving up.
pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")

OWN: Any = diffusers.EulerDiscreteScheduler(beta_schedule="scaled_linear", timestep_spacing="trailing")


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_name_is_a_class_of_diffusers_that_knows_its_settings(name: str) -> None:
    entry = SCHEDULERS[name]
    known = inspect.signature(getattr(diffusers, entry.class_name).__init__).parameters
    assert set(entry.settings) <= set(known)
    assert entry.spaced == (set(SPACINGS.values()) <= set(known))


@pytest.mark.parametrize("name", scheduler_names())
def test_every_name_makes_its_scheduler_with_the_models_own_settings(name: str) -> None:
    made, _ = make_scheduler(OWN, name)
    choice = parse_scheduler(name)
    assert type(made).__name__ == choice.scheduler.class_name
    assert made.config.beta_schedule == "scaled_linear"
    if choice.spacing is not None:
        assert made.config[SPACINGS[choice.spacing]] is True
    made.set_timesteps(4)
    assert len(made.timesteps) >= 4


def test_without_a_name_it_is_a_fresh_one_of_the_models_own_kind() -> None:
    made, lost = make_scheduler(OWN, None)
    assert type(made) is type(OWN)
    assert made is not OWN
    assert dict(made.config) == dict(OWN.config)
    assert lost == []


def test_what_the_model_needs_and_the_class_does_not_know_is_told() -> None:
    own: Any = diffusers.EulerDiscreteScheduler(rescale_betas_zero_snr=True, prediction_type="v_prediction")
    assert make_scheduler(own, "heun")[1] == ["rescale_betas_zero_snr"]
    assert make_scheduler(own, "ddim")[1] == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Euler_A", "euler-a"),
        ("DPM++ 2M", "dpmpp-2m"),
        ("dpmpp_2m_karras", "dpmpp-2m-karras"),
        ("EulerDiscreteScheduler", "euler"),
        ("DPMSolverMultistepScheduler", "dpmpp-2m"),
    ],
)
def test_spellings(text: str, name: str) -> None:
    assert parse_scheduler(text).name == name


def test_a_suffix_that_the_class_does_not_know_is_refused() -> None:
    with pytest.raises(UsageError, match="ddim has no karras spacing"):
        parse_scheduler("ddim-karras")


def test_an_unknown_name_brings_the_nearest_ones() -> None:
    with pytest.raises(UsageError) as error:
        parse_scheduler("eular")
    assert "euler" in (error.value.hint or "")


@pytest.mark.parametrize("name", scheduler_names())
def test_a1111s_name_leads_back(name: str) -> None:
    assert scheduler_of(parse_scheduler(name).a1111) == name


@settings(deadline=None, max_examples=100)
@given(st.text())
def test_any_text_is_a_scheduler_or_a_usage_error(text: str) -> None:
    try:
        assert parse_scheduler(text).scheduler in SCHEDULERS.values()
    except UsageError as error:
        assert error.code == "scheduler_invalid"
