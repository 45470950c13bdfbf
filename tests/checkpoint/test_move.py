"""Bytes arrive as they were, whichever way they go, and the cheapest way that works is taken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardtool.checkpoint.carry import create
from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.layout import BLOCK
from shardtool.checkpoint.move import Mover
from shardtool.errors import InputError
from tests.checkpoint.loops import mounted

CONTENT = os.urandom(300_000)


def uncounted(at: int, by: int) -> None:
    """For tests that look at the result alone."""


def moved(folder: Path, offset: int, position: int, length: int, *, seen: list[bytes] | None = None) -> Mover:
    """Move a range of ``folder/source`` into a new ``folder/target``, and check what arrived and was reported."""
    (folder / "target").unlink(missing_ok=True)
    mover = Mover()
    reported = 0

    def count(at: int, by: int) -> None:
        nonlocal reported
        assert at == position + reported
        reported += by

    fd = create(folder / "target")
    with OpenFile(folder / "source") as source:
        mover.move(
            source, offset, fd, position, length, count, None if seen is None else lambda b: seen.append(bytes(b))
        )
    os.close(fd)
    arrived = (folder / "target").read_bytes()
    assert arrived[position:] == CONTENT[offset : offset + length]
    assert arrived[:position].strip(b"\0") == b""
    assert reported == sum(mover.bytes_by.values()) == length
    return mover


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "source").write_bytes(CONTENT)
    return tmp_path


@given(
    offset=st.integers(0, 300_000),
    position=st.integers(0, 20_000),
    length=st.integers(0, 300_000),
    observed=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_any_range_arrives(folder: Path, offset: int, position: int, length: int, *, observed: bool) -> None:
    length = min(length, len(CONTENT) - offset)
    seen: list[bytes] | None = [] if observed else None
    moved(folder, offset, position, length, seen=seen)
    if seen is not None:
        assert b"".join(seen) == CONTENT[offset : offset + length]


def test_the_kernel_copies_where_blocks_cannot_be_shared(folder: Path) -> None:
    mover = moved(folder, 1, 0, 200_000)
    assert mover.bytes_by["copy_file_range"] == 200_000


def test_between_two_filesystems_bytes_are_copied_one_way_or_another(folder: Path, tmp_path: Path) -> None:
    with mounted("tmpfs", tmp_path, 4) as other:
        (other / "source").write_bytes(CONTENT)
        fd = create(tmp_path / "elsewhere")
        with OpenFile(other / "source") as source:
            Mover().move(source, 0, fd, 0, len(CONTENT), uncounted)
        os.close(fd)
    assert (tmp_path / "elsewhere").read_bytes() == CONTENT


def test_a_source_that_ends_early_is_an_input_error_naming_it(folder: Path) -> None:
    fd = create(folder / "target")
    with OpenFile(folder / "source") as source:
        os.truncate(folder / "source", 100_000)
        with pytest.raises(InputError, match="source: ends at byte 100000"):
            Mover().move(source, 0, fd, 0, 200_000, uncounted)
    os.close(fd)


@pytest.fixture(params=["xfs", "btrfs"])
def sharing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A filesystem with reflinks, holding the source."""
    with mounted(request.param, tmp_path, 400) as place:
        (place / "source").write_bytes(CONTENT)
        yield place


def test_whole_blocks_are_shared_and_only_the_ends_copied(sharing: Path) -> None:
    mover = moved(sharing, 5_000, 5_000 % BLOCK, 200_000)
    assert mover.bytes_by["reflink"] == 200_000 // BLOCK * BLOCK
    assert sum(mover.bytes_by.values()) - mover.bytes_by["reflink"] < 2 * BLOCK


def test_unaligned_ranges_are_copied_on_a_filesystem_with_reflinks(sharing: Path) -> None:
    mover = moved(sharing, 5_000, 5_001 % BLOCK, 200_000)
    assert mover.bytes_by["reflink"] == 0


def test_shared_bytes_can_be_observed_too(sharing: Path) -> None:
    seen: list[bytes] = []
    mover = moved(sharing, BLOCK, BLOCK, 200_000, seen=seen)
    assert mover.bytes_by["reflink"] > 0
    assert b"".join(seen) == CONTENT[BLOCK : BLOCK + 200_000]
