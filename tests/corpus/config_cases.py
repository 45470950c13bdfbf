"""Configs and model indexes that ask for too much, for code, or for nothing that makes sense."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.corpus.base import component, held, pipeline, shard_name, weights_file
from tests.corpus.case import Case, Make, accept, reject

_CONFIG = "config.json"
_PIPELINE = "model_index.json"


def _text(text: str | bytes) -> Make:
    return component(lambda folder: (folder / _CONFIG).write_bytes(text.encode() if isinstance(text, str) else text))


def _values(**values: Any) -> Make:
    return _text(json.dumps({"_class_name": "UNet2DConditionModel", **values}))


def _replaced_by(make: Callable[[Path], object], *, folder: str = "") -> Make:
    def spoil(found: Path) -> None:
        (found / folder / _CONFIG).unlink()
        make(found / folder / _CONFIG)

    return component(spoil)


def _pipeline_text(text: str) -> Make:
    return pipeline(lambda folder: (folder / _PIPELINE).write_text(text))


def _pipeline_values(**values: Any) -> Make:
    def spoil(folder: Path) -> None:
        content = json.loads((folder / _PIPELINE).read_text())
        content.update(values)
        (folder / _PIPELINE).write_text(json.dumps(content))

    return pipeline(spoil)


def _component_elsewhere(folder: Path) -> None:
    outside = folder.parent / "outside"
    (folder / "unet").rename(outside)
    (folder / "unet").symlink_to(outside)


def _empty_component(folder: Path) -> None:
    for path in (folder / "unet").glob("*.safetensors*"):
        path.unlink()


def _own_code(folder: Path) -> None:
    (folder / "pipeline.py").write_text(f"open({str(folder.parent / 'sentinel')!r}, 'w')")
    (folder / "unet" / "evil.py").write_text(f"open({str(folder.parent / 'sentinel')!r}, 'w')")


_BROKEN: dict[str, tuple[str | bytes, str]] = {
    "not-json": ("yes", "not JSON"),
    "empty": ("", "not JSON"),
    "list": ("[]", "not a JSON object"),
    "utf-16": ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
    "nan": ('{"a": NaN}', "NaN"),
    "duplicate-class": ('{"_class_name": "A", "_class_name": "B"}', "twice"),
    "deep": ('{"a":' * 100_000, "nested"),
    "class-number": ('{"_class_name": 7}', "class"),
    "class-list": ('{"_class_name": ["my_unet", "MyUNet"]}', "class"),
    "class-dotted": ('{"_class_name": "os.system"}', "os.system"),
    "class-with-code": ('{"_class_name": "__import__(\'os\')"}', "class"),
    "architectures-number": ('{"architectures": 7}', "class"),
    "architectures-nested": ('{"architectures": [["x"]]}', "class"),
    "five-megabytes": (json.dumps({"x": "y" * 5_000_000}), "4,000,000"),
}

_ABSURD: dict[str, dict[str, Any]] = {
    "ten-million-layers": {"layers_per_block": 10_000_000},
    "ten-million-hidden-layers": {"num_hidden_layers": 10_000_000},
    "layers-listed": {"layers_per_block": [5_000_000, 5_000_000]},
    "layers-nested": {"transformer_layers_per_block": [[1_000_000]]},
    "a-million-channels": {"block_out_channels": [1_048_576, 4]},
    "a-billion-wide": {"cross_attention_dim": 10**9},
    "a-hundred-thousand-blocks": {"down_block_types": ["DownBlock2D"] * 100_000},
    "huge-in-a-part": {"text_config": {"num_hidden_layers": 10**12}},
}


def _unchanged(folder: Path) -> None:
    """Nothing is wrong."""


CASES: list[Case] = [
    *(reject(f"config-{name}", _text(text), "config_invalid", _CONFIG, word) for name, (text, word) in _BROKEN.items()),
    *(reject(f"config-{name}", _values(**values), "config_absurd", _CONFIG) for name, values in _ABSURD.items()),
    reject(
        "config-names-the-absurd", _values(mid_block_layers=10**7), "config_absurd", "mid_block_layers", "10,000,000"
    ),
    reject("config-is-pipe", _replaced_by(os.mkfifo), "not_a_file", _CONFIG, "pipe"),
    reject("config-is-folder", _replaced_by(Path.mkdir), "not_a_file", _CONFIG, "folder"),
    reject("config-is-dev-zero", _replaced_by(lambda p: p.symlink_to("/dev/zero")), "link_outside", _CONFIG),
    reject("config-link-outside", _replaced_by(lambda p: p.symlink_to("/etc/passwd")), "link_outside", "/etc/passwd"),
    reject("config-is-dangling", _replaced_by(lambda p: p.symlink_to("gone")), "dangling_link", _CONFIG),
    reject(
        "config-attention-from-the-hub",
        _values(_attn_implementation_internal="evil/kernel"),
        "custom_code",
        "evil/kernel",
    ),
    accept("config-auto-map", _values(auto_map={"AutoModel": "evil.EvilModel"}), "custom_code"),
    accept("config-missing", component(lambda folder: (folder / _CONFIG).unlink()), "config_missing"),
    accept("config-with-large-ids", _values(eos_token_id=10**9, sample_size=1024, vocab_size=49_408)),
    reject("pipeline-not-json", _pipeline_text("yes"), "model_index_invalid", _PIPELINE, "not JSON"),
    reject("pipeline-list", _pipeline_text("[]"), "model_index_invalid", _PIPELINE),
    reject("pipeline-without-class", _pipeline_text("{}"), "model_index_invalid", "_class_name"),
    reject("pipeline-class-dotted", _pipeline_values(_class_name="os.system"), "model_index_invalid", "_class_name"),
    reject("pipeline-class-of-own-code", _pipeline_values(_class_name=["pipeline", "Evil"]), "custom_code", "Evil"),
    reject("pipeline-library-os", _pipeline_values(unet=["os", "system"]), "foreign_class", "unet", "'os'"),
    reject(
        "pipeline-library-subprocess", _pipeline_values(unet=["subprocess", "Popen"]), "foreign_class", "subprocess"
    ),
    reject("pipeline-library-of-own-code", _pipeline_values(unet=["evil", "EvilUNet"]), "foreign_class", "EvilUNet"),
    reject(
        "pipeline-library-dotted", _pipeline_values(unet=["diffusers.utils", "X"]), "foreign_class", "diffusers.utils"
    ),
    reject("pipeline-class-private", _pipeline_values(unet=["diffusers", "__loader__"]), "foreign_class", "__loader__"),
    reject("pipeline-component-a-path", _pipeline_values(**{"../x": ["diffusers", "A"]}), "unsafe_path", "../x"),
    reject("pipeline-component-absolute", _pipeline_values(**{"/etc": ["diffusers", "A"]}), "unsafe_path", "/etc"),
    reject("pipeline-component-malformed", _pipeline_values(unet=["diffusers"]), "model_index_invalid", "unet"),
    reject("pipeline-component-of-numbers", _pipeline_values(unet=[1, 2]), "model_index_invalid", "unet"),
    reject("pipeline-component-of-text", _pipeline_values(unet="x"), "model_index_invalid", "unet"),
    reject("pipeline-component-of-nothing", _pipeline_values(unet={}), "model_index_invalid", "unet"),
    reject(
        "pipeline-component-missing", _pipeline_values(vae=["diffusers", "AutoencoderKL"]), "component_missing", "vae"
    ),
    reject("pipeline-component-empty", pipeline(_empty_component), "weights_missing", "unet"),
    reject("pipeline-component-outside", pipeline(_component_elsewhere), "link_outside", "unet"),
    reject(
        "pipeline-scheduler-not-json",
        pipeline(lambda f: (f / "scheduler" / "scheduler_config.json").write_text("?")),
        "config_invalid",
        "scheduler_config.json",
    ),
    reject(
        "pipeline-scheduler-is-pipe",
        pipeline(
            lambda f: [
                (f / "scheduler/scheduler_config.json").unlink(),
                os.mkfifo(f / "scheduler/scheduler_config.json"),
            ]
        ),
        "not_a_file",
        "scheduler_config.json",
    ),
    reject(
        "pipeline-index-is-pipe",
        pipeline(lambda f: [(f / _PIPELINE).unlink(), os.mkfifo(f / _PIPELINE)]),
        "not_a_file",
        _PIPELINE,
    ),
    reject(
        "pipeline-shard-missing", pipeline(lambda f: (f / "unet" / shard_name(2)).unlink()), "shard_missing", "unet"
    ),
    reject(
        "pipeline-two-faults",
        pipeline(lambda f: [(f / "unet" / shard_name(2)).unlink(), (f / "unet" / shard_name(3)).write_bytes(b"")]),
        "shard_missing truncated",
        shard_name(2),
        shard_name(3),
    ),
    accept("pipeline", pipeline(_unchanged)),
    accept("pipeline-with-code-beside", pipeline(_own_code), "code_beside"),
    accept("pipeline-with-a-safety-checker", _pipeline_values(safety_checker=[None, None])),
    accept(
        "pipeline-with-a-single-file-beside",
        pipeline(lambda f: (f / "x.safetensors").write_bytes(weights_file(held(1)))),
    ),
]
