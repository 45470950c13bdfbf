"""Which parts of a pipeline have weights, by the name of their class, against the classes themselves."""

from __future__ import annotations

import diffusers
import pytest
import torch
import transformers

from shardtool.checkpoint.classes import needs_weights

MODELS = {
    "transformers": ["CLIPTextModel", "CLIPTextModelWithProjection", "CLIPVisionModelWithProjection", "T5EncoderModel"],
    "diffusers": ["UNet2DConditionModel", "AutoencoderKL", "FluxTransformer2DModel", "ControlNetModel"],
}
SETTINGS = {
    "transformers": [
        *["CLIPTokenizer", "CLIPTokenizerFast", "T5Tokenizer", "T5TokenizerFast", "CLIPFeatureExtractor"],
        *["CLIPImageProcessor", "CLIPImageProcessorFast", "CLIPImageProcessorPil", "SiglipImageProcessor"],
        *["CLIPProcessor"],
    ],
    "diffusers": ["EulerDiscreteScheduler", "DPMSolverMultistepScheduler", "FlowMatchEulerDiscreteScheduler"],
}


@pytest.mark.parametrize(("library", "name"), [(library, name) for library in MODELS for name in MODELS[library]])
def test_models_have_weights(library: str, name: str) -> None:
    assert issubclass(getattr({"transformers": transformers, "diffusers": diffusers}[library], name), torch.nn.Module)
    assert needs_weights(name)


@pytest.mark.parametrize(("library", "name"), [(library, name) for library in SETTINGS for name in SETTINGS[library]])
def test_settings_have_none(library: str, name: str) -> None:
    found = getattr({"transformers": transformers, "diffusers": diffusers}[library], name, None)
    assert found is None or not issubclass(found, torch.nn.Module)  # older names still stand in checkpoints
    assert not needs_weights(name)
