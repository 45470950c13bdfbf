"""``shardtool inspect`` from outside: what it prints for people, in a pipe, and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.app import app
from tests.corpus.base import shard_name, weights_file, write_component, write_pipeline
from tests.models import copied, edited


def run(*arguments: object, columns: int = 80) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": str(columns)})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def source_of(*arguments: object) -> dict[str, Any]:
    document = json.loads(run("inspect", *arguments, "--json").stdout)
    assert document["schema"] == "shardtool.inspect/1"
    (source,) = document["data"]["sources"]
    return dict(source)


def test_a_component_shows_class_figures_shards_and_modules(tmp_path: Path) -> None:
    shown = run("inspect", write_component(tmp_path / "unet")).stdout
    assert "UNet2DConditionModel" in shown
    assert "24 parameters · 6 tensors · 96 B · F32 · 3 shards" in shown
    assert "…00002-of-00003" in shown and "100 %" in shown
    assert "block0" in shown and "block2" in shown
    assert "fp32 96 B · fp16 48 B · bf16 48 B" in shown


@pytest.mark.parametrize("columns", [80, 120])
def test_lines_of_the_demo_stay_within_the_terminal(columns: int) -> None:
    for arguments in (["demo"], ["demo:unet"], ["demo:text_encoder", "--depth", "9"]):
        shown = run("inspect", *arguments, columns=columns).stdout
        assert max(len(line.rstrip()) for line in shown.splitlines()) <= columns


def test_a_pipeline_shows_a_row_for_each_component() -> None:
    lines = run("inspect", "demo").stdout.splitlines()
    (unet,) = [line for line in lines if line.startswith("unet ")]
    assert unet.split() == ["unet", "UNet2DConditionModel", "1", "file", "4.35", "M", "8.69", "MB", "F16"]
    assert any(line.startswith("scheduler") and "EulerDiscreteScheduler" in line for line in lines)


def test_the_figures_of_the_demo_are_those_of_the_reference(demo: Path) -> None:
    from safetensors import safe_open

    found = source_of(demo / "unet")
    with safe_open(demo / "unet" / "diffusion_pytorch_model.safetensors", framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    assert found["tensors"] == len(tensors)
    assert found["parameters"] == sum(tensor.size for tensor in tensors.values())
    assert found["bytes"] == sum(tensor.nbytes for tensor in tensors.values())
    assert found["memory"] == {
        "fp32": 4 * found["parameters"],
        "fp16": 2 * found["parameters"],
        "bf16": 2 * found["parameters"],
    }
    assert (
        sum(module["parameters"] for module in found["modules"] if "." not in module["module"]) == found["parameters"]
    )


def test_depth_zero_shows_no_modules(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    assert "block0" not in run("inspect", folder, "--depth", "0").stdout
    assert source_of(folder, "--depth", "0")["modules"] == []


def test_tensors_are_listed_filtered_and_sorted(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(weights_file({"b.10": 1, "b.9": 3, "a": 2, "c": 9}))

    def listed(*arguments: str) -> list[str]:
        return [tensor["name"] for tensor in source_of(path, *arguments)["tensor_list"]]

    assert listed("--tensors") == ["a", "b.9", "b.10", "c"]
    assert listed("--filter", "b.*") == ["b.9", "b.10"]
    assert listed("--filter", "b.*", "--filter", "c", "--sort", "size") == ["c", "b.9", "b.10"]
    assert listed("--tensors", "--sort", "shard") == ["b.10", "b.9", "a", "c"]
    assert [line.split()[-1] for line in run("inspect", path, "--filter", "b.*").stdout.splitlines()[-2:]] == [
        "b.9",
        "b.10",
    ]


def test_metadata_of_files_and_index_is_shown(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    shown = run("inspect", folder, "--metadata").stdout
    assert "total_size" in shown and "index" in shown
    assert "format" in shown and "every file" in shown
    found = source_of(folder)
    assert (found["metadata"], found["index_metadata"]) == ({"format": "pt"}, {"total_size": 96})


def test_a_variant_is_resolved_and_what_would_be_mixed_is_said(tmp_path: Path) -> None:
    pipeline = write_pipeline(tmp_path / "pipeline")
    index = json.loads((pipeline / "model_index.json").read_text())
    index["vae"] = ["diffusers", "AutoencoderKL"]
    (pipeline / "model_index.json").write_text(json.dumps(index))
    (pipeline / "vae").mkdir()
    for name in ("diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.fp16.safetensors"):
        (pipeline / "vae" / name).write_bytes(weights_file({"a": 1}))

    shown = run("inspect", pipeline, "--variant", "fp16").stdout
    assert "mixed: unet would come from the default weights" in shown
    loads = {
        component["name"]: component.get("loads")
        for component in source_of(pipeline, "--variant", "fp16")["components"]
    }
    assert loads["vae"]["outcome"] == "found" and loads["vae"]["files"] == ["diffusion_pytorch_model.fp16.safetensors"]
    assert loads["unet"]["outcome"] == "default_instead" and len(loads["unet"]["files"]) == 4

    refused = run("inspect", pipeline, "--variant", "nf4")
    assert refused.exit_code == 3
    assert "present: default, fp16" in refused.stderr


def test_several_sources_stand_side_by_side(tmp_path: Path) -> None:
    folder, single = write_component(tmp_path / "unet"), tmp_path / "x.safetensors"
    single.write_bytes(weights_file({"block0.weight": 4, "other": 4}))
    shown = run("inspect", folder, single, columns=200).stdout
    (tensors,) = [line.split() for line in shown.splitlines() if line.startswith("tensors")]
    assert tensors == ["tensors", "6", "2"]
    (common,) = [line.split() for line in shown.splitlines() if line.startswith("names in common")]
    assert common[-1] == "1"
    document = json.loads(run("inspect", folder, single, "--json").stdout)
    assert [source["tensors"] for source in document["data"]["sources"]] == [6, 2]


def test_what_is_damaged_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    pipeline = write_pipeline(tmp_path / "pipeline")
    (pipeline / "unet" / shard_name(2)).unlink()
    found = run("inspect", pipeline)
    assert found.exit_code == 3
    assert "damaged" in found.stdout and "EulerDiscreteScheduler" in found.stdout
    assert found.stderr.startswith("error: ") and shard_name(2) in found.stderr
    document = json.loads(run("inspect", pipeline, "--json").stdout)
    assert document["ok"] is False
    assert document["error"]["code"] == "shard_missing"
    assert document["data"]["sources"][0]["kind"] == "pipeline"


def test_the_files_of_a_damaged_component_are_listed(tmp_path: Path) -> None:
    unet = write_pipeline(tmp_path / "pipeline") / "unet"
    (unet / shard_name(2)).unlink()
    lines = run("inspect", unet, columns=120).stdout.splitlines()
    assert "damaged, 2 of 3 files readable" in lines
    for number, said in ((1, "2"), (2, "damaged"), (3, "2")):
        (line,) = [line for line in lines if line.startswith(shard_name(number))]
        assert line.split()[1] == said
    (alone,) = json.loads(run("inspect", unet, "--json").stdout)["data"]["sources"]
    assert [(file["name"], file["tensors"]) for file in alone["files"]] == [
        (shard_name(1), 2),
        (shard_name(2), None),
        (shard_name(3), 2),
    ]
    assert alone["files"][0]["bytes"] == (unet / shard_name(1)).stat().st_size
    (whole,) = json.loads(run("inspect", unet.parent, "--json").stdout)["data"]["sources"]
    assert [part["files"] for part in whole["components"] if part["name"] == "unet"] == [alone["files"]]


def test_foreign_names_are_shown_escaped_everywhere(tmp_path: Path) -> None:
    evil = "\x1b[2Jblock[/bold]\u202e.\nerror: fake.weight"
    path = tmp_path / "x.safetensors"
    path.write_bytes(weights_file({evil: 4}, {"\x1b]0;k\x07": "\x1b[31mv"}))
    shown = (
        run("inspect", path, "--tensors", "--metadata", columns=200).stdout + run("inspect", path, columns=200).stdout
    )
    assert not set(shown) & {"\x1b", "\x07", "\u202e"}
    assert "\\x1b[2Jblock[/bold]\\u202e" in shown
    assert "\nerror: fake" not in shown


def test_nothing_there_is_exit_3() -> None:
    found = run("inspect", "no/such/thing/here")
    assert found.exit_code == 3 and "no such file" in found.stderr


def test_quantised_weights_are_said_to_be_so_and_take_what_they_take(demo: Path, tmp_path: Path) -> None:
    folder = copied(demo, tmp_path / "packed")
    edited(folder / "unet" / "config.json", quantization_config={"quant_method": "torchao[x]"})
    packed, plain = source_of(folder / "unet"), source_of(demo / "unet")
    assert (packed["quantised"], plain["quantised"]) == ("torchao[x]", None)
    assert set(packed["memory"].values()) == {packed["bytes"]} == {plain["bytes"]}
    assert plain["memory"]["fp32"] == 2 * plain["memory"]["fp16"]
    shown = run("inspect", folder / "unet", columns=120).stdout
    assert "quantised with torchao[x]" in shown
    assert "fp32 8.69 MB · fp16 8.69 MB · bf16 8.69 MB" in shown
    assert "F16 (torchao[x])" in run("inspect", folder, columns=120).stdout


def test_a_pipeline_whose_model_index_is_damaged_is_called_so(tmp_path: Path) -> None:
    pipeline = write_pipeline(tmp_path / "pipeline")
    (pipeline / "model_index.json").write_text("{")
    found = run("inspect", pipeline)
    assert found.exit_code == 3
    assert "damaged" in found.stdout and "0 parameters" not in found.stdout
    assert "hint: " in found.stderr
