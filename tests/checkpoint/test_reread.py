"""``--verify``: one wrong bit anywhere in what was written is found before anybody else can see the result."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardtool.checkpoint.cast import Blocks, Cast
from shardtool.checkpoint.job import Job
from shardtool.checkpoint.move import BUFFER
from shardtool.checkpoint.plan import Split
from shardtool.checkpoint.selection import Choice
from shardtool.checkpoint.shard import Shape, plan_job
from shardtool.checkpoint.write import TASK, Manner, write_job
from shardtool.errors import RunError
from shardtool.events import Advanced, Event, Finished
from tests.checkpoint.referee import Tensor, canonical, tree_sums
from tests.checkpoint.test_shard import component, some_tensors

LIMIT = 3_000
TENSORS: dict[str, Tensor] = {
    **some_tensors(count=6, size=1_000),
    "empty": ("F16", [0], b""),
    "scalar": ("F32", [], b"abcd"),
}


def doubled(name: str, before: str, after: str, blocks: Blocks) -> Blocks:
    """Stands for a conversion from two bytes a number to four."""
    for block in blocks:
        yield bytes(byte for byte in block for _ in range(2))


CAST = Cast("F32", doubled, lambda: None)


def job_of(folder: Path, *, cast: bool = False) -> Job:
    source = component(folder / "unet", TENSORS)
    return plan_job(source, Choice(), Shape(Split(LIMIT), cast=CAST if cast else None))


def spoiling(folder: Path, number: int, spoil: Callable[[Path], object]) -> Callable[[Event], None]:
    """A listener that spoils weights file ``number`` of the stage when everything is written."""

    def listen(event: Event) -> None:
        if event == Finished(TASK):
            spoil(sorted(folder.glob(".out.shardtool-*.new/*.safetensors"))[number])

    return listen


def flip(path: Path, place: float, bit: int) -> int:
    raw = bytearray(path.read_bytes())
    position = min(int(place * len(raw)), len(raw) - 1)
    raw[position] ^= 1 << bit
    path.write_bytes(raw)
    return position


@given(st.integers(0, 2), st.floats(0, 1), st.integers(0, 7), st.booleans(), st.booleans())
@example(0, 0.0, 0, False, False)
@example(2, 1.0, 7, False, False)
@example(2, 1.0, 7, True, False)
@settings(max_examples=60, deadline=None)
def test_one_wrong_bit_anywhere_is_found_and_nothing_published(
    number: int,
    place: float,
    bit: int,
    digests: bool,  # noqa: FBT001
    cast: bool,  # noqa: FBT001
) -> None:
    """In the header, its metadata and padding, or the data; the tensor it lies in is named."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        job = job_of(folder, cast=cast)
        before = tree_sums(folder)
        flipped: list[int] = []
        plan = job.outputs[0].files[number]
        manner = Manner(durable=False, digests=digests, verify=True)
        with pytest.raises(RunError) as caught:
            write_job(
                job,
                folder / "out",
                manner,
                on_event=spoiling(folder, number, lambda path: flipped.append(flip(path, place, bit))),
            )
        assert caught.value.code == "written_differs"
        assert job.outputs[0].filenames[number] in caught.value.message
        begin = len(plan.header)
        inside = None
        for item in plan.items:
            if begin <= flipped[0] < begin + item.nbytes:
                inside = item.name
            begin += item.nbytes
        assert caught.value.tensor == inside
        assert tree_sums(folder) == before


def shorter(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


@pytest.mark.parametrize("spoil", [shorter, longer])
def test_a_byte_too_few_or_too_many_is_found(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    with pytest.raises(RunError) as caught:
        write_job(
            job_of(tmp_path),
            tmp_path / "out",
            Manner(durable=False, verify=True),
            on_event=spoiling(tmp_path, 1, spoil),
        )
    assert caught.value.code == "written_differs"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("digests", [False, True])
@pytest.mark.parametrize("cast", [False, True])
def test_what_was_written_rightly_passes_and_every_byte_is_reported(tmp_path: Path, digests: bool, cast: bool) -> None:  # noqa: FBT001
    events: list[Event] = []
    job = job_of(tmp_path, cast=cast)
    write_job(job, tmp_path / "out", Manner(durable=False, digests=digests, verify=True), on_event=events.append)
    data = sum(item.nbytes for output in job.outputs for item in output.items)
    done = sum(event.by for event in events if isinstance(event, Advanced) and event.task == "verify")
    assert done == data


def test_a_wrong_bit_in_any_block_of_a_large_tensor_is_found(tmp_path: Path) -> None:
    tensors: dict[str, Tensor] = {"a": ("U8", [3 * BUFFER + 5], b"\x07" * (3 * BUFFER + 5)), "b": ("U8", [4], b"abcd")}
    (tmp_path / "x.safetensors").write_bytes(canonical(tensors, {"format": "pt"}))
    job = plan_job(tmp_path / "x.safetensors", Choice(), Shape(Split(None)))
    data = len(job.outputs[0].files[0].header)
    for position in (0, BUFFER, 2 * BUFFER + 77, 3 * BUFFER + 4):

        def spoil(path: Path, position: int = data + position) -> None:
            with path.open("r+b") as file:
                file.seek(position)
                file.write(b"\x06")

        with pytest.raises(RunError) as caught:
            write_job(job, tmp_path / "out", Manner(durable=False, verify=True), on_event=spoiling(tmp_path, 0, spoil))
        assert caught.value.tensor == "a"
