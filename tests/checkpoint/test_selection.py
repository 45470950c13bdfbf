"""What goes along with the weights: everything below the source, and nothing of anybody else's."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path, PurePath

import pytest

from shardtool.checkpoint.digests import DIGESTS_NAME
from shardtool.checkpoint.selection import DEFAULT_VARIANT, Choice, select, walk
from shardtool.errors import InputError, UsageError
from tests.corpus.base import INDEX, shard_name, weights_file, write_component, write_pipeline


def code_of(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        select(folder, Choice())
    return caught.value.code


def test_a_link_that_leads_nowhere_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    (folder / "README.md").symlink_to("nothing")
    assert code_of(folder) == "dangling_link"


def test_a_link_to_a_folder_of_the_source_is_followed_once(tmp_path: Path) -> None:
    pipeline = write_pipeline(tmp_path / "pipeline")
    (pipeline / "scheduler_2").symlink_to("scheduler")
    assert PurePath("scheduler_2/scheduler_config.json") in select(pipeline, Choice()).others


@pytest.mark.parametrize("target", [".", "..", "../unet", "../scheduler"])
def test_links_in_a_ring_are_refused(tmp_path: Path, target: str) -> None:
    pipeline = write_pipeline(tmp_path / "pipeline")
    (pipeline / "scheduler" / "ring").symlink_to("../unet")
    (pipeline / "unet" / "ring").symlink_to(target)
    assert code_of(pipeline) == "link_nested"


def test_a_few_links_cannot_stand_for_thousands_of_files(tmp_path: Path) -> None:
    """Twenty folders, each with two links to the next: 2²⁰ paths to one file."""
    for number in range(20):
        (tmp_path / f"d{number:02d}").mkdir()
        for name in ("a", "b"):
            (tmp_path / f"d{number:02d}" / name).symlink_to(f"../d{number + 1:02d}")
    (tmp_path / "d20").mkdir()
    (tmp_path / "d20" / "x").touch()
    with pytest.raises(InputError) as caught:
        list(walk(tmp_path))
    assert caught.value.code == "link_nested"


def test_names_that_are_no_utf8_go_along(tmp_path: Path) -> None:
    folder = write_component(tmp_path / "unet")
    name = os.fsdecode(b"notes\xff.txt")
    (folder / name).write_text("x")
    assert PurePath(name) in select(folder, Choice()).others


FP16 = "diffusion_pytorch_model.fp16.safetensors"


def with_variant(folder: Path, *names: str) -> Path:
    """A sound pipeline with more components, the named ones of which have an fp16 variant beside their shards."""
    pipeline = write_pipeline(folder)
    content = json.loads((pipeline / "model_index.json").read_text())
    for name in ("vae", "controlnet"):
        write_component(pipeline / name)
        content[name] = ["diffusers", "AutoencoderKL"]
    for name in names:
        (pipeline / name / FP16).write_bytes(weights_file({"half": 4}))
    (pipeline / "model_index.json").write_text(json.dumps(content))
    return pipeline


def chosen(source: Path, choice: Choice) -> list[tuple[str, str | None]]:
    return [(part.place.as_posix(), part.checkpoint.name.variant) for part in select(source, choice).parts]


def test_every_variant_of_every_component_is_taken_unless_something_is_chosen(tmp_path: Path) -> None:
    pipeline = with_variant(tmp_path / "p", "unet")
    assert sorted(chosen(pipeline, Choice()), key=str) == [
        ("controlnet", None),
        ("unet", "fp16"),
        ("unet", None),
        ("vae", None),
    ]
    assert [name for name, _ in chosen(pipeline, Choice(components=("vae",)))] == ["vae"]


@pytest.mark.parametrize(("variant", "of_unet"), [("fp16", "fp16"), (DEFAULT_VARIANT, None)])
@pytest.mark.parametrize("one_variant", [False, True])
def test_a_component_without_the_chosen_variant_gives_its_default_weights(
    tmp_path: Path,
    variant: str,
    of_unet: str | None,
    one_variant: bool,  # noqa: FBT001
) -> None:
    """As diffusers' pipelines do; a variant that no component has is another matter."""
    pipeline = with_variant(tmp_path / "p", "unet")
    found = dict(chosen(pipeline, Choice(variant, one_variant)))
    assert found == {"unet": of_unet, "vae": None, "controlnet": None}


def test_a_variant_that_nobody_has_is_refused_with_what_there_is(tmp_path: Path) -> None:
    pipeline = with_variant(tmp_path / "p", "unet")
    for source, choice, present in (
        (pipeline, Choice("bf16"), "default"),
        (pipeline, Choice("fp16", components=("vae",)), "default"),
        (pipeline / "unet", Choice("bf16"), "fp16"),
    ):
        with pytest.raises(InputError, match=f"present: .*{present}") as caught:
            select(source, choice)
        assert caught.value.code == "variant_absent"


def test_one_variant_of_a_component_is_the_wanted_or_the_default_or_the_only_one(tmp_path: Path) -> None:
    pipeline = with_variant(tmp_path / "p", "unet")
    only = tmp_path / "only"
    only.mkdir()
    (only / FP16).write_bytes(weights_file({"half": 4}))
    for source, variant, expected in (
        (pipeline / "unet", "fp16", "fp16"),
        (pipeline / "unet", None, None),
        (pipeline / "unet", "bf16", None),
        (pipeline / "vae", "fp16", None),
        (only, None, "fp16"),
        (only, "bf16", "fp16"),
    ):
        assert chosen(source, Choice(variant, one_variant=True)) == [(".", expected)]


def test_components_are_chosen_in_pipelines_only(tmp_path: Path) -> None:
    for source in (write_component(tmp_path / "unet"), tmp_path / "unet" / shard_name(1)):
        with pytest.raises(UsageError) as caught:
            select(source, Choice(components=("unet",)))
        assert caught.value.code == "contradiction"


def test_a_component_that_has_no_weights_cannot_be_chosen(tmp_path: Path) -> None:
    pipeline = with_variant(tmp_path / "p")
    with pytest.raises(InputError) as caught:
        select(pipeline, Choice(components=("unet", "scheduler")))
    assert caught.value.code == "component_absent"
    assert "'scheduler'" in caught.value.message
    assert all(name in (caught.value.hint or "") for name in ("unet", "vae", "controlnet"))
    assert "scheduler" not in (caught.value.hint or "")


def test_a_pipeline_without_any_weights_is_refused(tmp_path: Path) -> None:
    pipeline = write_pipeline(tmp_path / "p")
    shutil.rmtree(pipeline / "unet")
    assert code_of(pipeline) == "weights_missing"


def test_what_goes_along_and_what_is_left_out(tmp_path: Path) -> None:
    """Everything below the source but the weights, what git and caches keep, and the digests, which are made anew."""
    pipeline = with_variant(tmp_path / "p", "unet", "vae")
    plain = ["README.md", "unet/mine.safetensors", "unet/deep/er/x.txt", "assets/diffusion_pytorch_model.safetensors"]
    own = [".git/HEAD", ".cache/x", "unet/__pycache__/x.pyc", f"unet/{DIGESTS_NAME}"]
    pickled = ["unet/diffusion_pytorch_model.bin", "vae/diffusion_pytorch_model.fp16.bin", "vae/pytorch_model.bin"]
    for name in [*plain, *own, *pickled]:
        (pipeline / name).parent.mkdir(parents=True, exist_ok=True)
        (pipeline / name).write_bytes(b"{}")
    found = select(pipeline, Choice("fp16", components=("unet", "vae")))
    configs = ["model_index.json", "scheduler/scheduler_config.json", "tokenizer/tokenizer_config.json"]
    configs += ["unet/config.json", "vae/config.json"]
    untouched = [f"controlnet/{path.name}" for path in (pipeline / "controlnet").iterdir()]
    assert {str(path) for path in found.others} == {*plain, *configs, *untouched}
    shards = [INDEX, *(shard_name(number) for number in (1, 2, 3))]
    assert {str(path) for path in found.left_out} == {*pickled, *(f"{c}/{n}" for c in ("unet", "vae") for n in shards)}
    assert list(found.others) == sorted(found.others, key=lambda path: path.parts)


def test_parts_are_called_what_people_call_them(tmp_path: Path) -> None:
    pipeline = with_variant(tmp_path / "p", "unet")
    labels = {part.label for part in select(pipeline, Choice(components=("unet", "vae"))).parts}
    assert labels == {"unet", "unet (fp16)", "vae"}
    single = tmp_path / "sd_xl.safetensors"
    single.write_bytes(weights_file({"a": 4}))
    assert [part.label for part in select(single, Choice()).parts] == ["sd_xl"]
