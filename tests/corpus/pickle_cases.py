"""Pickles that write a file when they are loaded. Nothing here may load them, whatever they are called."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path

from tests.corpus.base import (
    INDEX,
    component,
    held,
    pipeline,
    shard_name,
    weights_file,
    with_index,
    write_component,
    write_pipeline,
)
from tests.corpus.case import SENTINEL, Case, Make, accept, reject


class _Writes:
    """Unpickling this creates the file ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


def payload(folder: Path, protocol: int = 2) -> bytes:
    """A pickle that leaves the sentinel in ``folder``."""
    return pickle.dumps({"weight": _Writes(folder / SENTINEL)}, protocol=protocol)


def archive(folder: Path) -> bytes:
    """The same as ``torch.save`` packs it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr("archive/data.pkl", payload(folder))
        made.writestr("archive/version", "3\n")
    return packed.getvalue()


def _only(name: str, *, packed: bool = False) -> Make:
    """A component whose only weights are a pickle of this name."""

    def make(folder: Path) -> Path:
        unet = folder / "unet"
        unet.mkdir()
        (unet / "config.json").write_text(json.dumps({"_class_name": "UNet2DConditionModel"}))
        (unet / name).write_bytes(archive(folder) if packed else payload(folder))
        return unet

    return make


def _file(name: str, *, packed: bool = False, protocol: int = 2) -> Make:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(archive(folder) if packed else payload(folder, protocol))
        return path

    return make


def _sharded(folder: Path) -> Path:
    """A sharded pickle with its own kind of index."""
    unet = write_component(folder / "unet")
    for number in (1, 2, 3):
        (unet / shard_name(number)).unlink()
    (unet / INDEX).unlink()
    (unet / "diffusion_pytorch_model-00001-of-00001.bin").write_bytes(archive(folder))
    names = {"weight": "diffusion_pytorch_model-00001-of-00001.bin"}
    (unet / "diffusion_pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return unet


def _component_of_pipeline(folder: Path) -> Path:
    made = write_pipeline(folder / "pipeline")
    for path in (made / "unet").glob("*.safetensors*"):
        path.unlink()
    (made / "unet" / "diffusion_pytorch_model.bin").write_bytes(archive(folder))
    return made


CASES: list[Case] = [
    reject(
        "pickle-only", _only("diffusion_pytorch_model.bin"), "pickle", "diffusion_pytorch_model.bin", "--allow-pickle"
    ),
    reject("pickle-only-packed", _only("diffusion_pytorch_model.bin", packed=True), "pickle", "pickled"),
    reject("pickle-only-of-transformers", _only("pytorch_model.bin", packed=True), "pickle", "pytorch_model.bin"),
    reject("pickle-only-pt", _only("model.pt", packed=True), "pickle", "model.pt"),
    reject("pickle-only-ckpt", _only("model.ckpt"), "pickle", "model.ckpt"),
    reject("pickle-as-safetensors", _file("x.safetensors"), "pickle", "x.safetensors", "pickle"),
    reject("pickle-as-safetensors-packed", _file("x.safetensors", packed=True), "pickle", "ZIP"),
    reject("pickle-as-safetensors-protocol-0", _file("x.safetensors", protocol=0), "not_safetensors", "x.safetensors"),
    reject("pickle-as-safetensors-protocol-4", _file("x.safetensors", protocol=4), "pickle", "x.safetensors"),
    reject("pickle-file", _file("x.bin"), "pickle", "x.bin"),
    reject("pickle-file-packed", _file("x.ckpt", packed=True), "pickle", "x.ckpt"),
    reject(
        "pickle-as-shard",
        component(lambda f: (f / shard_name(2)).write_bytes(archive(f.parent))),
        "pickle",
        shard_name(2),
    ),
    reject("pickle-as-index", component(lambda f: (f / INDEX).write_bytes(payload(f.parent))), "pickle", INDEX),
    reject(
        "pickle-as-config",
        component(lambda f: (f / "config.json").write_bytes(payload(f.parent))),
        "pickle",
        "config.json",
    ),
    reject(
        "pickle-in-index",
        with_index(lambda c: c["weight_map"].update({"block1.bias": "x.bin"})),
        "unsafe_path",
        "x.bin",
    ),
    reject("pickle-sharded", _sharded, "pickle", "-00001-of-00001.bin"),
    reject("pickle-in-pipeline", _component_of_pipeline, "pickle", "unet", "diffusion_pytorch_model.bin"),
    reject(
        "pickle-as-model-index",
        pipeline(lambda f: (f / "model_index.json").write_bytes(payload(f.parent))),
        "pickle",
        "model_index.json",
    ),
    accept(
        "pickle-beside",
        component(lambda f: (f / "diffusion_pytorch_model.bin").write_bytes(archive(f.parent))),
        "pickle_beside",
    ),
    accept(
        "pickle-optimizer-beside",
        component(lambda f: (f / "optimizer.bin").write_bytes(payload(f.parent))),
        "pickle_beside",
    ),
    accept(
        "pickle-after-safetensors-name",
        component(lambda f: (f / "weights.safetensors.bin").write_bytes(payload(f.parent))),
        "pickle_beside",
    ),
    accept("weights-after-pickle-name", lambda folder: _safe_named(folder)),
]


def _safe_named(folder: Path) -> Path:
    path = folder / "pytorch_model.bin.safetensors"
    path.write_bytes(weights_file(held(1)))
    return path
