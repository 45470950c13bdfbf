"""Code of other libraries at work on files from elsewhere: whatever goes wrong in it becomes an error of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shardtool.errors import ShardtoolError


def is_fault(error: BaseException) -> bool:
    """Whether it is a failure, and no wish to stop; pyo3 raises a Rust library's panic beside ``Exception``."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def reason_of(error: BaseException) -> str:
    """What it says, in one short line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


@contextmanager
def failing_as(told: Callable[[str], ShardtoolError]) -> Iterator[None]:
    """What goes wrong in the block is raised as ``told(reason)``; errors of ours pass as they are."""
    try:
        yield
    except ShardtoolError:
        raise
    except BaseException as error:
        if not is_fault(error):
            raise
        raise told(reason_of(error)) from error
