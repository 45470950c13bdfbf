"""Code of other libraries at work on files from elsewhere: whatever goes wrong in it becomes an error of ours."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shardtool.errors import ShardtoolError

_NO_MEMORY = re.compile(
    r"(out of|not enough|allocate) memory"  # torch: CUDA's, MPS's and the CPU's allocator
    r"|failed to map segment from shared object"  # the dynamic loader
    r"|can't start new thread"  # no room for its stack
)


def is_fault(error: BaseException) -> bool:
    """Whether it is a failure, and no wish to stop; pyo3 raises a Rust library's panic beside ``Exception``."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def short_of_memory(error: BaseException) -> str | None:
    """What ``error`` or a cause of it says of memory that is short, which is no fault of the files; else ``None``."""
    seen: list[BaseException] = []  # an exception can be its own cause
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        said = isinstance(cause, RuntimeError | OSError | ImportError) and _NO_MEMORY.search(str(cause)) is not None
        number = cause.errno if isinstance(cause, OSError) else None
        if said or number == errno.ENOMEM or isinstance(cause, MemoryError):
            return reason_of(cause)
        cause = cause.__cause__
    return None


def reason_of(error: BaseException) -> str:
    """What it says, in one short line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


@contextmanager
def failing_as(told: Callable[[str], ShardtoolError]) -> Iterator[None]:
    """What goes wrong in the block is raised as ``told(reason)``; errors of ours pass as they are, and short memory."""
    try:
        yield
    except ShardtoolError:
        raise
    except BaseException as error:
        if not is_fault(error) or short_of_memory(error) is not None:
            raise
        raise told(reason_of(error)) from error
