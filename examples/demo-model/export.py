"""Writing the trained networks as the folder of a StableDiffusionXLPipeline."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from string import Template
from typing import Any

from denoiser import SCHEDULE
from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline
from networks import Networks
from vocabulary import PROMPT_LENGTH, Vocabulary

HERE = Path(__file__).parent


def make_pipeline(networks: Networks, vocabulary: Vocabulary) -> StableDiffusionXLPipeline:
    """A pipeline of these networks, in evaluation mode."""
    for network in networks.parts().values():
        network.eval()
    pipeline = StableDiffusionXLPipeline(
        **networks.parts(),
        tokenizer=vocabulary.tokenizer(),
        tokenizer_2=vocabulary.tokenizer(),
        scheduler=EulerDiscreteScheduler(**SCHEDULE),
        force_zeros_for_empty_prompt=True,
        add_watermarker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def export(networks: Networks, vocabulary: Vocabulary, folder: Path, names: list[str]) -> None:
    """Save in fp16 with card and licence, such that a plain `from_pretrained` loads every part as float32."""
    halved = Networks(**{name: copy.deepcopy(network).half() for name, network in networks.parts().items()})
    make_pipeline(halved, vocabulary).save_pretrained(folder)
    for encoder in ("text_encoder", "text_encoder_2"):
        # transformers loads what this entry says; diffusers loads UNet and VAE as float32, and the two must agree.
        _edit_json(folder / encoder / "config.json", lambda config: config | {"dtype": "float32"})
    # SDXL's own scheduler configuration says so too; DDIM would clip the latents without it.
    _edit_json(folder / "scheduler" / "scheduler_config.json", lambda config: config | {"clip_sample": False})
    for tokenizer in ("tokenizer", "tokenizer_2"):
        _write_tokenizer_files(folder / tokenizer, vocabulary)
    licence = (HERE / "LICENSE-fluent-emoji.txt").read_text(encoding="utf-8")
    (folder / "LICENSE").write_text(licence, encoding="utf-8")
    (folder / "README.md").write_text(model_card(networks, folder, names), encoding="utf-8")


def _edit_json(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    config = change(json.loads(path.read_text(encoding="utf-8")))
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _write_tokenizer_files(folder: Path, vocabulary: Vocabulary) -> None:
    """Make tokenizer.json compact, and add the two files that older versions of transformers read."""
    whole = folder / "tokenizer.json"
    whole.write_text(json.dumps(json.loads(whole.read_text()), separators=(",", ":")), encoding="utf-8")
    (folder / "vocab.json").write_text(json.dumps(vocabulary.ids, separators=(",", ":")), encoding="utf-8")
    merges = "".join(f"{left} {right}\n" for left, right in vocabulary.merges)
    (folder / "merges.txt").write_text("#version: 0.2\n" + merges, encoding="utf-8")


def model_card(networks: Networks, folder: Path, names: list[str]) -> str:
    """The README.md of the exported FOLDER, from model-card.md."""
    millions = {
        name: sum(parameter.numel() for parameter in network.parameters()) / 1e6
        for name, network in networks.parts().items()
    }
    megabytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    card = Template((HERE / "model-card.md").read_text(encoding="utf-8"))
    return card.substitute(
        {name: f"{count:.2f}" for name, count in millions.items()},
        total=f"{sum(millions.values()):.1f}",
        megabytes=f"{megabytes:.1f}",
        concepts=len(names),
        length=PROMPT_LENGTH,
        names=", ".join(names),
    )
