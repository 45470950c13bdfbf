"""File names: those that diffusers and transformers write are taken apart rightly, and unsafe ones are refused."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardtool.checkpoint.names import WeightsName, parse_name, parse_pickle, plain_name_fault

TABLE: dict[str, tuple[str, str | None, int | None, int | None, bool, bool]] = {
    # name: stem, variant, number, count, is it an index, is it an older spelling
    "model.safetensors": ("model", None, None, None, False, False),
    "diffusion_pytorch_model.fp16.safetensors": ("diffusion_pytorch_model", "fp16", None, None, False, False),
    "model-00001-of-00002.safetensors": ("model", None, 1, 2, False, False),
    "model.fp16-00002-of-00002.safetensors": ("model", "fp16", 2, 2, False, False),
    "model-00001-of-00002.fp16.safetensors": ("model", "fp16", 1, 2, False, True),
    "model.safetensors.index.json": ("model", None, None, None, True, False),
    "model.safetensors.index.fp16.json": ("model", "fp16", None, None, True, False),
    "model.safetensors.fp16.index.json": ("model", "fp16", None, None, True, True),
    "sd_xl_base_1.0.safetensors": ("sd_xl_base_1.0", None, None, None, False, False),
    "model-٠٠٠٠١-of-٠٠٠٠٢.safetensors": ("model-٠٠٠٠١-of-٠٠٠٠٢", None, None, None, False, False),
    "model-100000-of-100000.safetensors": ("model", None, 100000, 100000, False, False),
}


@pytest.mark.parametrize("filename", TABLE)
def test_a_name_is_taken_apart(filename: str) -> None:
    found = parse_name(filename)
    assert found is not None
    assert (found.name.stem, found.name.variant, found.number, found.count, found.is_index, found.legacy) == TABLE[
        filename
    ]


PICKLES: dict[str, WeightsName | None] = {
    "diffusion_pytorch_model.bin": WeightsName("diffusion_pytorch_model"),
    "diffusion_pytorch_model.fp16.bin": WeightsName("diffusion_pytorch_model", "fp16"),
    "pytorch_model.bin": WeightsName("model"),
    "pytorch_model.fp16.bin": WeightsName("model", "fp16"),
    "pytorch_model-00001-of-00002.bin": WeightsName("model"),
    "pytorch_model.fp16-00001-of-00002.bin": WeightsName("model", "fp16"),
    "pytorch_model-00001-of-00002.fp16.bin": WeightsName("model", "fp16"),
    "pytorch_model.bin.index.json": WeightsName("model"),
    "pytorch_model.bin.index.fp16.json": WeightsName("model", "fp16"),
    "pytorch_model.bin.fp16.index.json": WeightsName("model", "fp16"),
    "pytorch_model.bin.safetensors": None,
    "pytorch_model.binary.safetensors": None,
    "pytorch_model.bin.json": None,
    "training_args.bin": None,
    "model.safetensors": None,
}


@pytest.mark.parametrize("filename", PICKLES)
def test_the_pickled_twin_of_a_name_is_known(filename: str) -> None:
    assert parse_pickle(filename) == PICKLES[filename]


@pytest.mark.parametrize(
    "filename", ["model.bin", "model.safetensors.tmp", ".safetensors", "config.json", "model.json", ""]
)
def test_other_names_mean_nothing(filename: str) -> None:
    assert parse_name(filename) is None


@given(
    st.sampled_from(["model", "diffusion_pytorch_model"]),
    st.none() | st.text(string.ascii_letters + string.digits + "_", min_size=1, max_size=8),
    st.integers(1, 123_456),
    st.integers(1, 123_456),
)
def test_what_is_written_is_taken_apart_again(stem: str, variant: str | None, number: int, count: int) -> None:
    name = WeightsName(stem, variant)
    for written, expected in (
        (name.single, (None, None, False)),
        (name.index, (None, None, True)),
        (name.shard(number, count), (number, count, False)),
    ):
        found = parse_name(written)
        assert found is not None and found.name == name and not found.legacy
        assert (found.number, found.count, found.is_index) == expected


@given(st.text())
def test_a_plain_name_stays_in_its_folder_on_every_system(name: str) -> None:
    if plain_name_fault(name) is None:
        import ntpath
        import posixpath

        for paths in (posixpath, ntpath):
            assert paths.split(paths.normpath(paths.join("folder", name)))[0] == "folder"
        assert "\0" not in name and len(name.encode("utf-8", "surrogatepass")) <= 255


@pytest.mark.parametrize(
    "name", ["x.safetensors", "a b.safetensors", "ü.safetensors", "..x.safetensors", "-x.safetensors"]
)
def test_odd_but_plain_names_are_plain(name: str) -> None:
    assert plain_name_fault(name) is None


@pytest.mark.parametrize("character", [*map(chr, range(32)), "\x7f"], ids=repr)
def test_control_characters_are_no_part_of_a_plain_name(character: str) -> None:
    assert plain_name_fault(f"a{character}.safetensors") == "holds control characters"


@pytest.mark.parametrize("letter", ["x", "ü", "字", "😀", "\udcff"])
def test_a_plain_name_has_at_most_as_many_bytes_as_filesystems_take(letter: str) -> None:
    width = len(letter.encode("utf-8", "surrogatepass"))
    fitting = (letter * 255)[: (255 - len(".safetensors")) // width] + ".safetensors"
    assert plain_name_fault(fitting) is None
    assert plain_name_fault("y" * (256 - len(fitting.encode("utf-8", "surrogatepass"))) + fitting) is not None


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b.safetensors",
        "/x.safetensors",
        "a\\b.safetensors",
        "C:x.safetensors",
        "c:",
        "x.bin",
        "safetensors",
    ],
)
def test_what_leads_elsewhere_or_is_no_weights_file_is_not_plain(name: str) -> None:
    assert plain_name_fault(name) is not None


@pytest.mark.parametrize("name", [None, 7, ["x.safetensors"], {"x.safetensors": 1}, True])
def test_what_is_no_text_is_not_a_name(name: object) -> None:
    assert type(name).__name__ in (plain_name_fault(name) or "")
