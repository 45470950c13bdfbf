"""Sharding and merging change files, never tensors; safetensors itself is the referee."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from shardtool.checkpoint.job import Job
from shardtool.checkpoint.plan import DEFAULT_LIMIT, WHOLE, Split
from shardtool.checkpoint.selection import Choice
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import Manner, Written, write_job
from shardtool.errors import InputError, RefusedError
from tests.checkpoint.loops import mounted
from tests.checkpoint.referee import Tensor, by_hand, canonical, checkpoints, read, read_folder, tree_sums

QUICK = Manner(durable=False)
STEM = "diffusion_pytorch_model"


def shard(source: Path, target: Path, limit: int, manner: Manner = QUICK, **choice: str) -> Job:
    job = plan_job(source, Choice(**choice), Shape(Split(limit, allow_oversize=True)))
    write_job(job, target, manner)
    return job


def merge(source: Path, target: Path, manner: Manner = QUICK) -> Written:
    return write_job(plan_job(source, Choice(), Shape(WHOLE)), target, manner)


@pytest.fixture
def scratch() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        yield Path(folder)


@given(checkpoints(), st.integers(300, 60_000))
@settings(max_examples=40, deadline=None)
def test_merging_what_was_sharded_gives_the_first_file_byte_for_byte(tensors: dict[str, Tensor], limit: int) -> None:
    """The first file is what safetensors writes, with the one key that older loaders insist on."""
    with TemporaryDirectory() as folder:
        first = Path(folder) / "first.safetensors"
        first.write_bytes(canonical(tensors, {"format": "pt"}))
        job = shard(first, Path(folder) / "shards", limit)
        for output in job.outputs:
            for name, plan in zip(output.filenames, output.files, strict=True):
                size = (Path(folder) / "shards" / name).stat().st_size
                assert size == plan.size
                assert size <= limit or len(plan.items) == 1
        assert read_folder(Path(folder) / "shards") == tensors
        merge(Path(folder) / "shards", Path(folder) / "merged.safetensors")
        assert (Path(folder) / "merged.safetensors").read_bytes() == first.read_bytes()


@given(
    checkpoints(("BOOL", "U8", "F16", "F32", "F64", "F4", "F6_E2M3", "F6_E3M2", "F8_E4M3")),
    st.integers(0, 9),
    st.integers(300, 9_000),
)
@settings(max_examples=40, deadline=None)
def test_files_of_other_writers_keep_every_tensor(tensors: dict[str, Tensor], padding: int, limit: int) -> None:
    """Any order, any alignment, no metadata, six-bit floats: what safetensors reads before, it reads after."""
    with TemporaryDirectory() as folder:
        first = Path(folder) / "first.safetensors"
        first.write_bytes(by_hand(tensors, None, padding))
        before = read(first)
        shard(first, Path(folder) / "shards", limit)
        assert read_folder(Path(folder) / "shards") == before
        merge(Path(folder) / "shards", Path(folder) / "merged")
        assert read_folder(Path(folder) / "merged") == before


@given(checkpoints(("F16", "F32", "I64")), st.integers(300, 9_000), st.integers(300, 9_000))
@settings(max_examples=30, deadline=None)
def test_resharding_and_merging_give_the_first_file(tensors: dict[str, Tensor], one: int, two: int) -> None:
    with TemporaryDirectory() as folder:
        first = Path(folder) / "first.safetensors"
        first.write_bytes(canonical(tensors, {"format": "pt"}))
        shard(first, Path(folder) / "one", one)
        shard(Path(folder) / "one", Path(folder) / "two", two)
        assert read_folder(Path(folder) / "two") == tensors
        merge(Path(folder) / "two", Path(folder) / "merged.safetensors")
        assert (Path(folder) / "merged.safetensors").read_bytes() == first.read_bytes()


def some_tensors(count: int = 40, size: int = 5_000, seed: int = 0) -> dict[str, Tensor]:
    return {f"block.{n}.weight": ("F16", [size // 2], bytes([(n * 7 + seed) % 251]) * size) for n in range(count)}


def component(folder: Path, tensors: dict[str, Tensor], *, variant: str = "", stem: str = STEM) -> Path:
    """A component folder with one file of weights and a config."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "config.json").write_text('{"_class_name": "UNet2DConditionModel"}')
    (folder / f"{stem}{variant}.safetensors").write_bytes(canonical(tensors, {"format": "pt"}))
    return folder


def test_thousands_of_tensors(scratch: Path) -> None:
    tensors: dict[str, Tensor] = {f"t{n}": ("U8", [n % 7], b"x" * (n % 7)) for n in range(5_000)}
    (scratch / "x.safetensors").write_bytes(canonical(tensors, {"format": "pt"}))
    shard(scratch / "x.safetensors", scratch / "out", 20_000)
    assert read_folder(scratch / "out") == tensors


def test_names_and_index_are_those_of_diffusers(scratch: Path) -> None:
    source = component(scratch / "unet", some_tensors())
    shard(source, scratch / "out", 80_000)
    assert sorted(path.name for path in (scratch / "out").iterdir()) == [
        "config.json",
        f"{STEM}-00001-of-00003.safetensors",
        f"{STEM}-00002-of-00003.safetensors",
        f"{STEM}-00003-of-00003.safetensors",
        f"{STEM}.safetensors.index.json",
    ]
    index = json.loads((scratch / "out" / f"{STEM}.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 200_000}


def test_equal_input_gives_equal_bytes(scratch: Path) -> None:
    source = component(scratch / "unet", some_tensors())
    shard(source, scratch / "one", 80_000)
    shard(source, scratch / "two", 80_000)
    assert tree_sums(scratch / "one") == tree_sums(scratch / "two")


def test_the_metadata_is_kept_in_every_file(scratch: Path) -> None:
    told = {"format": "pt", "modelspec.title": "a « title »", "\x1b[31m": "kept as it is"}
    (scratch / "x.safetensors").write_bytes(canonical(some_tensors(), told))
    shard(scratch / "x.safetensors", scratch / "out", 80_000)
    for path in (scratch / "out").glob("*.safetensors"):
        raw = path.read_bytes()
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        assert header["__metadata__"] == told


def test_a_missing_format_is_added_and_said(scratch: Path) -> None:
    (scratch / "x.safetensors").write_bytes(canonical(some_tensors(), None))
    job = shard(scratch / "x.safetensors", scratch / "out", 10**9)
    assert [note.code for note in job.notes] == ["format_added"]
    with safe_open(scratch / "out" / "x.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
    assert read_folder(scratch / "out") == some_tensors()


def test_each_variant_is_sharded_for_itself(scratch: Path) -> None:
    source = component(scratch / "unet", some_tensors())
    component(source, some_tensors(seed=1), variant=".fp16")
    shard(source, scratch / "out", 80_000)
    assert (scratch / "out" / f"{STEM}.safetensors.index.json").exists()
    assert (scratch / "out" / f"{STEM}.safetensors.index.fp16.json").exists()
    assert len(list((scratch / "out").glob(f"{STEM}.fp16-0000*-of-00003.safetensors"))) == 3


@pytest.mark.parametrize(("variant", "expected"), [("fp16", 1), ("default", 0)])
def test_one_variant_can_be_chosen(scratch: Path, variant: str, expected: int) -> None:
    source = component(scratch / "unet", some_tensors())
    component(source, some_tensors(seed=1), variant=".fp16")
    job = shard(source, scratch / "out", 10**9, variant=variant)
    assert read_folder(scratch / "out") == some_tensors(seed=expected)
    assert "left_out" in [note.code for note in job.notes]


def test_an_absent_variant_is_refused_naming_those_present(scratch: Path) -> None:
    source = component(scratch / "unet", some_tensors())
    with pytest.raises(InputError, match="no bf16 variant; present: default"):
        plan_job(source, Choice("bf16"), Shape(WHOLE))


def test_the_old_spellings_of_variants_are_read_and_todays_written(scratch: Path) -> None:
    source = component(scratch / "unet", some_tensors(), variant=".fp16")
    shard(source, scratch / "today", 80_000)
    old = shutil.copytree(scratch / "today", scratch / "old")
    index = old / f"{STEM}.safetensors.index.fp16.json"
    content = json.loads(index.read_text())
    renamed = {
        name: f"{STEM}{name.removeprefix(f'{STEM}.fp16').removesuffix('.safetensors')}.fp16.safetensors"
        for name in set(content["weight_map"].values())
    }
    for name, legacy in renamed.items():
        (old / name).rename(old / legacy)
    content["weight_map"] = {tensor: renamed[name] for tensor, name in content["weight_map"].items()}
    index.unlink()
    (old / f"{STEM}.safetensors.fp16.index.json").write_text(json.dumps(content))
    shard(old, scratch / "again", 80_000)
    assert tree_sums(scratch / "again") == tree_sums(scratch / "today")


def test_like_makes_fine_tunes_share_their_equal_shards(scratch: Path) -> None:
    base, tuned = some_tensors(), some_tensors()
    tuned["block.0.weight"] = ("F16", [2_500], b"\x01" * 5_000)
    shard(component(scratch / "base", base), scratch / "base-out", 80_000)
    odd = {name: tuned[name] for name in sorted(tuned, reverse=True)}
    (scratch / "tuned").mkdir()
    (scratch / "tuned" / f"{STEM}.safetensors").write_bytes(by_hand(odd, {"format": "pt"}, padding=3))
    job = plan_job(scratch / "tuned", Choice(), Shape(WHOLE, like=scratch / "base-out"))
    write_job(job, scratch / "tuned-out", QUICK)
    assert read_folder(scratch / "tuned-out") == tuned
    ours, theirs = tree_sums(scratch / "tuned-out"), tree_sums(scratch / "base-out")
    differing = {name for name in ours if ours[name] != theirs[name]}
    assert len(differing) == 1
    assert len(ours) == 4


def test_a_whole_pipeline_keeps_everything_else(demo: Path, scratch: Path) -> None:
    before = tree_sums(demo)
    shard(demo, scratch / "out", 1_000_000)
    after = tree_sums(scratch / "out")
    weights = {name for name in before if name.endswith(".safetensors")}
    assert {name: after[name] for name in before if name not in weights} == {
        name: digest for name, digest in before.items() if name not in weights
    }
    assert max(path.stat().st_size for path in (scratch / "out").rglob("*.safetensors")) <= 1_000_000
    merge(scratch / "out", scratch / "merged")
    assert tree_sums(scratch / "merged") == before
    assert tree_sums(demo) == before


def test_components_that_are_not_chosen_go_along_as_they_are(demo: Path, scratch: Path) -> None:
    job = plan_job(demo, Choice(components=("vae",)), Shape(Split(1_000_000)))
    write_job(job, scratch / "out", QUICK)
    changed = {
        name.split("/")[0] for name, digest in tree_sums(demo).items() if tree_sums(scratch / "out").get(name) != digest
    }
    assert changed == {"vae"}


def test_an_unknown_component_is_refused_naming_the_known_ones(demo: Path) -> None:
    with pytest.raises(InputError, match="no component 'unte'") as caught:
        plan_job(demo, Choice(components=("unte",)), Shape(WHOLE))
    assert caught.value.hint is not None
    assert "unet" in caught.value.hint


def test_links_of_a_hub_cache_are_followed(demo: Path, scratch: Path) -> None:
    """Every file of a snapshot is a link out of its folder; the result holds files."""
    repo = scratch / "models--org--name"
    snapshot, blobs = repo / "snapshots" / "abc", repo / "blobs"
    blobs.mkdir(parents=True)
    for name, digest in tree_sums(demo).items():
        if not (blobs / digest).exists():
            shutil.copyfile(demo / name, blobs / digest)
        place = snapshot / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(Path(*[".."] * (2 + len(Path(name).parts) - 1), "blobs", digest))
    shard(snapshot, scratch / "out", 10**9)
    assert tree_sums(scratch / "out") == tree_sums(demo)
    assert not any(path.is_symlink() for path in (scratch / "out").rglob("*"))


def test_a_link_out_of_the_source_is_refused(scratch: Path) -> None:
    source = component(scratch / "unet", some_tensors())
    (scratch / "secret").write_text("private")
    (source / "README.md").symlink_to("../secret")
    with pytest.raises(InputError, match=r"README\.md: is a link that leads out"):
        plan_job(source, Choice(), Shape(WHOLE))


def test_a_damaged_source_is_refused_before_anything_is_written(scratch: Path) -> None:
    source = component(scratch / "unet", some_tensors())
    path = source / f"{STEM}.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="truncated"):
        shard(source, scratch / "out", 80_000)
    assert not (scratch / "out").exists()


def test_a_source_that_changes_after_the_plan_is_refused(scratch: Path) -> None:
    source = component(scratch / "unet", some_tensors())
    job = plan_job(source, Choice(), Shape(Split(80_000)))
    component(source, some_tensors(seed=9))
    with pytest.raises(InputError, match="changed"):
        write_job(job, scratch / "out", QUICK)
    assert list(scratch.iterdir()) == [source]


def test_too_little_space_is_refused_with_the_numbers(scratch: Path) -> None:
    source = component(scratch / "unet", some_tensors(size=100_000))
    with mounted("tmpfs", scratch, 1) as small:
        with pytest.raises(RefusedError, match=r"needs 4\.0\d MB \(4,0\d\d,\d\d\d bytes\)") as caught:
            shard(source, small / "out", 10**9)
        assert caught.value.code == "disk"
        assert list(small.iterdir()) == []


@pytest.mark.parametrize("limit", [None, 3000])
def test_a_name_that_is_no_utf8_is_refused_as_no_index_could_hold_it(scratch: Path, limit: int | None) -> None:
    source = scratch / os.fsdecode(b"mod\xffel.safetensors")
    source.write_bytes(canonical(some_tensors(), {}))
    with pytest.raises(RefusedError) as caught:
        plan_job(source, Choice(), Shape(Split(limit, allow_oversize=True)))
    assert caught.value.code == "name_not_utf8"


def test_a_header_that_no_reader_takes_is_never_written(scratch: Path) -> None:
    """Two shards with 50.1 MB of metadata each can be read, one file with both could not."""
    weight_map: dict[str, str] = {}
    for number in (1, 2):
        file = f"{STEM}-{number:05d}-of-00002.safetensors"
        tensors: dict[str, Tensor] = {f"tensor{number}": ("U8", [1], b"x")}
        (scratch / file).write_bytes(by_hand(tensors, {f"key{number}": "x" * 50_100_000}))
        weight_map |= dict.fromkeys(tensors, file)
    (scratch / f"{STEM}.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    with pytest.raises(RefusedError) as caught:
        plan_job(scratch, Choice(), Shape(WHOLE))
    assert caught.value.code == "header_too_large"


def test_verify_passes_and_the_default_limit_is_below_five_gigabytes(scratch: Path) -> None:
    source = component(scratch / "unet", some_tensors())
    shard(source, scratch / "out", DEFAULT_LIMIT, Manner(verify=True))
    assert read_folder(scratch / "out") == some_tensors()
    assert DEFAULT_LIMIT == 5_000_000_000


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_on_a_filesystem_with_reflinks_no_block_is_used_twice(scratch: Path, kind: str) -> None:
    """Sharding, resharding and merging share the source's blocks; only headers and ragged ends are new."""
    tensors: dict[str, Tensor] = {f"t{n}": ("F16", [500_000], bytes([n]) * 1_000_000) for n in range(60)}
    with mounted(kind, scratch, 400) as place:
        (place / "x.safetensors").write_bytes(canonical(tensors, {"format": "pt"}))
        shard(place / "x.safetensors", place / "out", 20_000_000)
        shard(place / "out", place / "again", 33_000_000)
        written = merge(place / "again", place / "merged.safetensors", Manner())
        assert written.moved["reflink"] > 59_900_000
        assert sum(written.moved.values()) - written.moved["reflink"] < 100_000
        assert (place / "merged.safetensors").read_bytes() == (place / "x.safetensors").read_bytes()
