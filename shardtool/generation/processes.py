"""One process for each device, started by ``torchrun`` or ``accelerate launch``: who makes what, and who speaks.

Each process makes its share of the pictures with its own device, and adds each to the one ledger when it is there. The
first process draws the seeds and decides what is left to do for all, shows the progress of all, and writes what belongs
to the whole run: contact sheet, gallery. Without a launcher there is one process, and nothing of this costs anything.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from shardtool.events import Advanced, Listener
from shardtool.images.settings import Job

T = TypeVar("T")

_POLL_SECONDS = 0.2


def launched() -> bool:
    """Whether a launcher started this process as one of several.

    Clusters and notebooks leave single variables of these behind; a launcher sets all of them, and to numbers that fit.
    """
    rank, size, port = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    if not (os.environ.get("MASTER_ADDR") and all(re.fullmatch("[0-9]{1,9}", text) for text in (rank, size, port))):
        return False
    return int(size) > 1 and int(rank) < int(size)


@dataclass
class Processes:
    """This process among those of a launch. ``rank`` 0 is the first; ``size`` 1 means that there is no launch."""

    rank: int = 0
    size: int = 1
    _state: Any = None
    _seen: int = 0

    @classmethod
    def join(cls, device: str) -> Processes:
        """Meet the other processes, if there are any; on the CPU through gloo, else as accelerate does."""
        if not launched():
            return cls()
        from accelerate import PartialState

        state = PartialState(cpu=device == "cpu")
        return cls(state.process_index, state.num_processes, state)

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def agree(self, value: T) -> T:
        """The first process's ``value``, in all of them."""
        if self.size == 1:
            return value
        from accelerate.utils import broadcast_object_list

        agreed: list[T] = broadcast_object_list([value])
        return agreed[0]

    def meet(self) -> None:
        """Wait until all have come this far: who looks for finished pictures later would find those of the others."""
        if self.size > 1:
            self._state.wait_for_everyone()

    def share(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """The part of ``jobs`` that this process makes."""
        if self.size == 1:
            return jobs
        with self._state.split_between_processes(list(jobs)) as mine:
            return tuple(mine)

    def step_done(self, listener: Listener) -> None:
        """Count a step for all to see; the first process reports what the others have counted."""
        store = self._store()
        if store is None:
            listener(Advanced("denoise"))
            return
        store.add("shardtool/steps", 1)
        if self.is_first:
            self._report(listener)

    def _report(self, listener: Listener) -> None:
        store = self._store()
        done = store.add("shardtool/steps", 0) if store is not None else self._seen
        if done > self._seen:
            listener(Advanced("denoise", done - self._seen))
            self._seen = done

    def gather(self, values: Sequence[T], listener: Listener) -> list[T]:
        """Everything of all processes, on the first one; waits for them. The others get their own back."""
        store = self._store()
        if store is None:
            return list(values)
        store.add("shardtool/arrived", 1)
        while self.is_first and store.add("shardtool/arrived", 0) < self.size:
            self._report(listener)
            time.sleep(_POLL_SECONDS)
        if self.is_first:
            self._report(listener)
        from accelerate.utils import gather_object

        gathered: list[T] = gather_object(list(values))
        return gathered if self.is_first else list(values)

    def leave(self) -> None:
        """End the meeting in good order, so that nobody complains at exit."""
        if self.size > 1:
            self._state.destroy_process_group()

    def _store(self) -> Any:
        if self.size == 1:
            return None
        from torch.distributed.distributed_c10d import _get_default_store

        return _get_default_store()


def drawing(processes: Processes, draw: Callable[[], int]) -> Callable[[], int]:
    """``draw``, with the same results in every process: a seed drawn once grows into as many as are asked for."""
    if processes.size == 1:
        return draw
    import random

    shared = random.Random(processes.agree(draw()))  # noqa: S311 (seeds of pictures, no secrets)
    return lambda: shared.randrange(2**32)
