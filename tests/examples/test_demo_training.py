"""The programs that made the demo model run as they are, and what they make is a pipeline of diffusers."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]
MAKING = ROOT / "examples" / "demo-model"


@pytest.fixture(scope="module", autouse=True)
def making() -> Iterator[None]:
    """The programs' folder on the path, as when one of them is run; neither it nor its modules stay."""
    names = {path.stem for path in MAKING.glob("*.py")}
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(MAKING)
        yield
    torch.set_num_threads(threads)
    for name in names & sys.modules.keys():
        del sys.modules[name]


def program(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What train.py leaves after a step or two of every stage on six concepts, in two calls."""
    folder = tmp_path_factory.mktemp("training")
    with np.load(MAKING / "data.npz") as data:
        np.savez(folder / "few.npz", **{name: data[name][:6] for name in data.files})
    short = ["--data", str(folder / "few.npz"), "--out", str(folder), "--threads", "1", "--max-steps", "2"]
    small = ["--batch", "4", "--vae-batch", "2"]
    program("train").main([*short, *small])
    program("train").main([*short, *small, "--resume", "--vae-share", "0", "--polish-share", "0.5"])
    return folder


def test_a_trained_folder_is_a_pipeline_that_makes_pictures(trained: Path) -> None:
    from diffusers import StableDiffusionXLPipeline

    pipeline = StableDiffusionXLPipeline.from_pretrained(trained / "model")
    image = pipeline("dog", num_inference_steps=2).images[0]

    assert image.size == (64, 64)
    assert {part.dtype for part in (pipeline.unet, pipeline.vae, pipeline.text_encoder, pipeline.text_encoder_2)} == {
        torch.float32
    }
    assert pipeline.tokenizer("a dog").input_ids == pipeline.tokenizer_2("a dog").input_ids


def test_resuming_keeps_the_vocabulary_that_the_embeddings_belong_to(trained: Path) -> None:
    from transformers import CLIPTokenizer

    networks, vocabulary = program("networks").load_state(trained / "state.pt")

    assert networks.averaged_steps == 4
    assert CLIPTokenizer.from_pretrained(trained / "model" / "tokenizer").get_vocab() == vocabulary.ids
    assert networks.text_encoder.get_input_embeddings().num_embeddings == len(vocabulary.ids)


def test_the_shipped_model_draws_what_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["dog", "banana", "rocket", "blue heart"]
    program("evaluate").main(["--threads", "1", "--seeds", "3", "--steps", "8", "--only", *names])

    assert "own 1.000 by pixels, 1.000 by latents" in capsys.readouterr().out


def test_no_filler_word_names_a_concept() -> None:
    captions = program("captions")
    pictures = program("pictures").load_pictures(MAKING / "data.npz")
    named = {word for several in pictures.names for name in several for word in name.split()}
    fillers = captions.ADJECTIVES + captions.VERBS + captions.PLACES + captions.LINKS + captions.OTHERS

    assert not named.intersection(fillers)
