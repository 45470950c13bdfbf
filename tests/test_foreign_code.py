"""Which failures of other libraries are short memory, and what becomes of the others."""

from __future__ import annotations

import errno

import pytest
import torch

from shardtool.errors import InputError
from shardtool.foreign_code import failing_as, reason_of, short_of_memory

SHORT = [
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    OSError("libgomp.so.1: failed to map segment from shared object"),
    RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"),
]
OTHER = [
    ValueError("out of memory"),
    OSError(errno.ENOENT, "No such file"),
    RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
    ImportError("No module named 'memory'"),
]


def told(reason: str) -> InputError:
    return InputError(reason, code="component_invalid")


@pytest.mark.parametrize("error", SHORT, ids=repr)
def test_short_memory_is_told_as_such(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, failing_as(told):
        raise error
    assert caught.value is error
    assert short_of_memory(error)


@pytest.mark.parametrize("error", OTHER, ids=repr)
def test_anything_else_is_not(error: Exception) -> None:
    with pytest.raises(InputError), failing_as(told):
        raise error
    assert short_of_memory(error) is None


def test_what_the_cpu_allocator_says() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert short_of_memory(caught.value)


def test_a_cause_counts_and_a_circle_ends() -> None:
    outer, inner = RuntimeError("Failed to import diffusers.x"), MemoryError()
    outer.__cause__ = inner
    inner.__cause__ = outer
    assert short_of_memory(outer) == "MemoryError"
    circle = ValueError("a")
    circle.__cause__ = ValueError("b")
    circle.__cause__.__cause__ = circle
    assert short_of_memory(circle) is None


def test_a_fault_on_the_way_out_of_short_memory_is_one_of_its_own() -> None:
    fault = KeyError("x")
    fault.__context__ = MemoryError()
    assert short_of_memory(fault) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "ValueError"),
        ("a\n  b\n", "a b"),
        ("Validation error for 'x':\n    must be > 0", "Validation error for 'x': must be > 0"),
    ],
)
def test_a_reason_is_one_line(text: str, reason: str) -> None:
    assert reason_of(ValueError(text)) == reason
    assert len(reason_of(ValueError("x" * 10_000))) == 300
