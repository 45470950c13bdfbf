"""What diffusers, transformers, safetensors and shardtool say to each kind of damage: writes docs/damage.md.

    python benchmarks/damage_table.py

A tiny UNet and a tiny text encoder are saved by the libraries themselves in shards, damaged in one way, and loaded by
the library they belong to, in a process of its own with a time limit; ``safetensors`` opens every file and reads it;
``shardtool verify`` looks at the UNet. The kinds of damage are in ``tests/corpus/damage.py``.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", OMP_NUM_THREADS="1")

import diffusers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors import safe_open  # noqa: E402

from tests.corpus.damage import KINDS, Damage, Model, victim  # noqa: E402

PAGE = ROOT / "docs" / "damage.md"
SECONDS = 8
"""After which a loader is said to hang."""

LOADERS: dict[str, Any] = {
    "diffusers": diffusers.UNet2DConditionModel,
    "transformers": transformers.CLIPTextModel,
}


def save_models(folder: Path) -> None:
    """A UNet and a text encoder, each twice with different values, each in three shards or more."""
    for seed, name in enumerate(("model", "twin")):
        torch.manual_seed(seed)
        unet = diffusers.UNet2DConditionModel(
            sample_size=8,
            block_out_channels=(4,),
            down_block_types=("DownBlock2D",),
            up_block_types=("UpBlock2D",),
            layers_per_block=1,
            norm_num_groups=2,
            cross_attention_dim=8,
            attention_head_dim=2,
        )
        unet.save_pretrained(folder / "diffusers" / name, max_shard_size="5KB")
        config = transformers.CLIPTextConfig(
            hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, vocab_size=99,
            max_position_embeddings=8,
        )  # fmt: skip
        encoder = transformers.CLIPTextModel(config)
        encoder.save_pretrained(folder / "transformers" / name, max_shard_size="5KB")


def damaged(models: Path, library: str, damage: Damage, place: Path) -> Model:
    """A fresh copy of the library's model with that damage."""
    model = Model(place / "model", place / "twin")
    for name in ("model", "twin"):
        shutil.copytree(models / library / name, place / name)
    damage.apply(model)
    return model


def within_limit(function: Callable[..., str], *arguments: object) -> str:
    """What ``function`` says, run in a child that is killed when it takes too long."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_say, args=(there, function, arguments))
    child.start()
    there.close()
    if here.poll(SECONDS):
        try:
            return str(here.recv())
        except EOFError:
            return "the process dies"
        finally:
            child.join()
    child.kill()
    child.join()
    return f"hangs (over {SECONDS} s)"


def _say(there: Connection, function: Callable[..., str], arguments: tuple[Any, ...]) -> None:
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    there.send(function(*arguments))


def load(library: str, model: Model, sound: Path, culprits: list[str]) -> str:
    """How the library's own loader takes it."""
    try:
        loaded = LOADERS[library].from_pretrained(model.folder)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is the answer)
        return _refusal(error, culprits)
    if (model.folder.parent / "sentinel").exists():
        return "**runs the code**"
    want = LOADERS[library].from_pretrained(sound).state_dict()
    have = loaded.state_dict()
    empty = sum(tensor.is_meta for tensor in have.values())
    other = sum(
        not tensor.is_meta and not torch.equal(tensor, want[name]) for name, tensor in have.items() if name in want
    )
    if empty:
        return f"**loads**, {empty} of {len(have)} parameters empty"
    return f"**loads**, {other} of {len(have)} parameters other" if other else "loads"


def read(model: Model, culprits: list[str]) -> str:
    """How safetensors alone takes it: every file on its own."""
    paths = sorted(model.folder.glob("*.safetensors"))
    try:
        for path in paths:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (no mapping)
                    file.get_tensor(name)
    except Exception as error:  # noqa: BLE001
        return _refusal(error, culprits)
    return "reads" if paths else "–"


def _refusal(error: Exception, culprits: list[str]) -> str:
    named = any(culprit in str(error) for culprit in culprits)
    return f"{type(error).__name__}, {'names it' if named else 'does not say where'}"


def culprits_in(model: Model, damage: Damage) -> list[str]:
    """What a good message names: the files or the tensor that the damage concerns."""
    shard, tensor = victim(model)
    words = damage.label.split()
    if "config.json" in words:
        return ["config.json"]
    if damage.label.startswith(("the index", "total_size", "only a")):
        return [model.index.name, "pickle", ".bin", "fp16"]
    return [shard.name, tensor, model.shards[-1].name, model.single.name, "lora_extra.weight", "00099"]


def verdict(model: Model, damage: Damage) -> str:
    """The codes that ``shardtool verify`` gives; for warnings, which stop nothing, the word."""
    from typer.testing import CliRunner

    from cli.app import app

    arguments = ["verify", str(model.folder), "--json", "-q", *(["--deep"] if damage.deep else [])]
    document = json.loads(CliRunner().invoke(app, arguments).stdout)
    if document["error"]:
        return f"`{document['error']['code']}`"
    problems = [problem for component in document["data"]["components"] for problem in component["problems"]]
    errors = sorted({problem["code"] for problem in problems if problem["severity"] == "error"})
    warnings = sorted({problem["code"] for problem in problems if problem["severity"] == "warning"})
    return ", ".join(f"`{code}`" for code in errors) or ", ".join(f"warning `{code}`" for code in warnings) or "whole"


def row(models: Path, damage: Damage) -> list[str]:
    cells = [damage.label]
    for library in LOADERS:
        with tempfile.TemporaryDirectory() as place:
            sound = Model(models / library / "model", models / library / "twin")
            culprits = culprits_in(sound, damage)
            model = damaged(models, library, damage, Path(place))
            cells.append(within_limit(load, library, model, models / library / "model", culprits))
    with tempfile.TemporaryDirectory() as place:
        culprits = culprits_in(Model(models / "diffusers" / "model", models / "diffusers" / "twin"), damage)
        model = damaged(models, "diffusers", damage, Path(place))
        cells.append(within_limit(read, model, culprits))
        cells.append(verdict(model, damage))
    return cells


def page(rows: list[list[str]]) -> str:
    names = ("diffusers", "transformers", "safetensors", "torch")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    head = ["damage", *LOADERS, "safetensors, file by file", "shardtool verify"]
    lines = ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]
    return INTRODUCTION.format(versions=versions, python=platform.python_version()) + "\n".join(lines) + "\n"


INTRODUCTION = """# Damage, tool by tool

One kind of damage a row, done to a tiny UNet (for diffusers, safetensors and shardtool) and a tiny text encoder (for
transformers) in shards, as the libraries save them. `python benchmarks/damage_table.py` writes this page; a test
compares shardtool's column with what it says today. Measured with {versions},
Python {python}.

- **loads**: no error, and the model is not the one that was saved: parameters are *empty* (on the meta device) or
  hold *other* values, from elsewhere or from a random start.
- *names it* / *does not say where*: whether the error names the file or the tensor concerned.
- *hangs*: killed after some seconds.
- shardtool's answers are the stable codes of `verify`; each message names the file, and the tensor where one is
  concerned. `not_finite` and `digest_mismatch` are found by `--deep`.

"""


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        models = Path(temporary)
        save_models(models)
        rows = []
        for damage in KINDS:
            rows.append(row(models, damage))
            print(" | ".join(rows[-1]), flush=True)
    PAGE.write_text(page(rows), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
