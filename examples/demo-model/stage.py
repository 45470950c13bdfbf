"""One stage of training: how far it is, what it reports, when it saves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

SAVE_SECONDS = 60
LOG_STEPS = 50


def log(*words: object) -> None:
    """One line with the time of day."""
    print(time.strftime("%H:%M:%S"), *words, flush=True)


class Stage:
    """Counts the steps of a stage until its MINUTES have passed or MAX_STEPS are done; calls SAVE now and then."""

    def __init__(self, name: str, minutes: float, max_steps: int, save: Callable[[], None]) -> None:
        self.name = name
        self.seconds = minutes * 60
        self.max_steps = max_steps
        self.save = save
        self.losses: list[float] = []

    def steps(self) -> Iterator[tuple[int, float]]:
        """The number of each step and the share of the stage that is done before it. Saves at the end."""
        start = saved = logged = time.monotonic()
        for step in range(self.max_steps):
            now = time.monotonic()
            if now - start >= self.seconds:
                break
            done = max((now - start) / self.seconds, step / self.max_steps)
            yield step, done
            if len(self.losses) == LOG_STEPS:
                self._log(step + 1, done, time.monotonic() - logged)
                logged = time.monotonic()
            if time.monotonic() - saved > SAVE_SECONDS:
                self.save()
                saved = time.monotonic()
        self.save()

    def _log(self, step: int, done: float, seconds: float) -> None:
        loss = sum(self.losses) / len(self.losses)
        log(f"{self.name} {step} loss {loss:.4f} done {done:.3f} {seconds / LOG_STEPS:.2f} s/step")
        self.losses.clear()
