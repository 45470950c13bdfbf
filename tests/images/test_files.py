"""An image and its metadata in one file, written whole or not at all."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from PIL import Image

from shardtool.errors import RefusedError, RunError
from shardtool.images.files import MADE_BY_AI, MADE_FROM_IMAGE, encode_image, write_whole
from shardtool.images.outputs import ImageFormat
from shardtool.images.parameters import write_parameters
from shardtool.images.reading import read_settings
from shardtool.images.record import SCHEMA, settings_of
from shardtool.images.settings import Settings
from tests.images.records import job, picture, record

FORMATS: tuple[ImageFormat, ...] = ("png", "jpg", "webp")


@pytest.mark.parametrize("kind", FORMATS)
def test_what_was_written_is_read_back(tmp_path: Path, kind: ImageFormat) -> None:
    from tests.images.records import MODEL, SETTINGS

    path = tmp_path / f"a.{kind}"
    parameters = write_parameters(job(), MODEL, "")
    path.write_bytes(encode_image(picture(), kind, record(), parameters))
    found = read_settings(path)
    assert found["tool"] == "shardtool"
    assert found["record"] == record()
    assert settings_of(found["record"]) == {
        key: value for key, value in SETTINGS.as_json().items() if value is not None
    }
    assert found["settings"]["seed"] == 7
    assert found["parameters"] == parameters
    assert found["ai_mark"] == MADE_BY_AI
    assert (found["width"], found["height"]) == (64, 48)


def test_png_keeps_the_pixels_and_the_lossy_ones_are_near() -> None:
    import io

    for kind in FORMATS:
        image = Image.open(io.BytesIO(encode_image(picture(), kind, record(), "x"))).convert("RGB")
        assert (image.tobytes() == picture().tobytes()) == (kind == "png")
        assert image.size == (64, 48)


@pytest.mark.parametrize("kind", FORMATS)
def test_without_a_record_the_file_says_nothing(tmp_path: Path, kind: ImageFormat) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(encode_image(picture(), kind))
    found = read_settings(path)
    assert (found["tool"], found["record"], found["parameters"], found["ai_mark"]) == (None, None, None, None)
    assert b"hardtool" not in path.read_bytes()


def test_an_image_made_from_an_image_is_marked_so(tmp_path: Path) -> None:
    source = tmp_path / "in.png"
    picture().save(source)
    made = record(made=job(Settings("a dog", image=source)))
    assert set(made["inputs"]) == {"image"}
    path = tmp_path / "a.png"
    path.write_bytes(encode_image(picture(), "png", made, "x"))
    assert read_settings(path)["ai_mark"] == MADE_FROM_IMAGE


def test_the_xmp_packet_is_xml_that_a_parser_reads(tmp_path: Path) -> None:
    from xml.etree import ElementTree

    path = tmp_path / "a.webp"
    path.write_bytes(encode_image(picture(), "webp", record(), "x"))
    with Image.open(path) as image:
        tree = ElementTree.fromstring(image.info["xmp"].decode())  # noqa: S314 (written two lines above)
    description = tree.find(".//{http://www.w3.org/1999/02/22-rdf-syntax-ns#}Description")
    assert description is not None
    assert description.get("{http://iptc.org/std/Iptc4xmpExt/2008-02-29/}DigitalSourceType") == MADE_BY_AI


def test_public_metadata_hold_no_path_no_machine_and_no_time() -> None:
    full, public = str(record("full")), str(record("public"))
    for private in ("somebody", "Some GPU", "linux-x86_64", "2026", "shards"):
        assert private in full
        assert private not in public
    for kept in ("größer", "ab" * 32, "style", SCHEMA, "12" * 32):
        assert kept in public


def test_a_file_appears_whole_and_replaces_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.png"
    write_whole(path, b"one", overwrite=False)
    with pytest.raises(RefusedError):
        write_whole(path, b"two", overwrite=False)
    assert path.read_bytes() == b"one"
    write_whole(path, b"two", overwrite=True)
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.png"]


def test_what_a_killed_run_left_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / ".a.png.partial").write_bytes(b"half an image")
    write_whole(tmp_path / "a.png", b"whole", overwrite=False)
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {"a.png": b"whole"}


def test_two_runs_do_not_write_one_file_at_once(tmp_path: Path) -> None:
    with (tmp_path / ".a.png.partial").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RefusedError, match="another run"):
            write_whole(tmp_path / "a.png", b"whole", overwrite=True)
    assert not (tmp_path / "a.png").exists()


def test_a_place_that_cannot_be_written_is_a_run_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError) as error:
        write_whole(tmp_path / "file" / "a.png", b"x", overwrite=False)
    assert error.value.code == "write_failed"


def test_the_files_mode_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "a.png", b"x", overwrite=False)
    finally:
        os.umask(before)
    assert (tmp_path / "a.png").stat().st_mode & 0o777 == 0o640


def test_metadata_that_a_jpeg_cannot_hold_are_refused() -> None:
    long = record(made=job(Settings("word " * 20_000)))
    with pytest.raises(RunError) as error:
        encode_image(picture(), "jpg", long, "x")
    assert error.value.code == "metadata_too_long"
    assert encode_image(picture(), "webp", long, "x")
