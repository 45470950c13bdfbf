"""Bytes arrive as they were, whichever way they go, and the cheapest way that works is taken."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardtool.checkpoint.carry import create
from shardtool.checkpoint.files import OpenFile
from shardtool.checkpoint.layout import BLOCK
from shardtool.checkpoint.move import BUFFER, PIECE, Mover
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


REFUSALS = [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM]


def failing(code: int, after: int, calls: list[int]) -> Callable[..., int]:
    """A ``copy_file_range`` that copies so many pieces and then fails; ``calls`` counts those that failed."""
    real, done = os.copy_file_range, []

    def call(source: int, target: int, count: int, begin: int, at: int) -> int:
        if len(done) < after:
            done.append(count)
            return real(source, target, min(count, 70_001), begin, at)
        calls.append(code)
        raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("code", [*REFUSALS, errno.EIO])
def test_what_the_kernel_will_not_copy_is_copied_by_hand(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: int, after: int
) -> None:
    """Also where it gives up half way. A refusal is remembered for the pair of disks, an error is not."""
    calls: list[int] = []
    monkeypatch.setattr(os, "copy_file_range", failing(code, after, calls))
    mover = moved(folder, 5, 9, 250_000)
    assert mover.bytes_by["copy_file_range"] == 70_001 * after
    assert len(calls) == 1
    fd = create(folder / "again")
    with OpenFile(folder / "source") as source:
        mover.move(source, 5, fd, 0, 250_000, uncounted)
    os.close(fd)
    assert (folder / "again").read_bytes() == CONTENT[5:250_005]
    assert len(calls) == (1 if code in REFUSALS else 2)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_told_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "copy_file_range", failing(code, 1, calls))
    with pytest.raises(OSError, match=os.strerror(code)):
        moved(folder, 0, 0, 250_000)
    assert calls == [code]
    assert (folder / "target").stat().st_size == 70_001


def test_a_source_that_ends_while_the_kernel_copies_is_an_input_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says so by copying nothing, for ever; some filesystems do that in the middle of a file too."""
    monkeypatch.setattr(os, "copy_file_range", lambda *_: 0)
    assert moved(folder, 0, 0, 250_000).bytes_by["read_write"] == 250_000


def test_pieces_end_at_multiples_of_their_size_in_the_target(tmp_path: Path) -> None:
    """Files of many pieces, which are holes here: each way, the first and the last piece may be shorter."""
    with (tmp_path / "source").open("wb") as file:
        file.truncate(3 * PIECE)
    for size, seen in ((PIECE, None), (BUFFER, len)):
        pieces: list[tuple[int, int]] = []
        fd = create(tmp_path / f"target{size}")
        begin, length = 12_345, (2 * size + 99_999)
        with OpenFile(tmp_path / "source") as source:
            Mover().move(source, 777, fd, begin, length, lambda at, by, into=pieces: into.append((at, by)), seen)
        os.close(fd)
        ends = [at + by for at, by in pieces]
        assert [at for at, _ in pieces] == [begin, *ends[:-1]]
        assert ends == [size, 2 * size, begin + length]


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


def test_small_blocks_too_few_to_share_are_copied(sharing: Path) -> None:
    """A range that holds no whole block of the source, and one that holds exactly one."""
    assert moved(sharing, BLOCK - 10, BLOCK - 10, BLOCK + 9).bytes_by["reflink"] == 0
    assert moved(sharing, BLOCK, 0, BLOCK).bytes_by["reflink"] == BLOCK
    assert moved(sharing, BLOCK - 10, BLOCK - 10, BLOCK + 10).bytes_by["reflink"] == BLOCK


def test_where_sharing_is_refused_it_is_not_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def refuse(fd: int, request: int, argument: bytes) -> int:
        tried.append(request)
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    mover = Mover()
    fd = create(folder / "target")
    with OpenFile(folder / "source") as source:
        for position in (0, 10 * BLOCK):
            mover.move(source, position, fd, position, 10 * BLOCK, uncounted)
    os.close(fd)
    assert (folder / "target").read_bytes() == CONTENT[: 20 * BLOCK]
    assert len(tried) == 1


def test_a_disk_that_is_full_while_blocks_are_shared_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, request: int, argument: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fcntl, "ioctl", full)
    with pytest.raises(OSError, match="No space left"):
        moved(folder, 0, 0, 10 * BLOCK)


def test_a_disk_that_takes_a_few_bytes_at_a_time_gets_them_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, memoryview(data)[:1001], at))
    moved(folder, 3, 17, 3_000, seen=[])
