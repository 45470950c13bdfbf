"""Seeds: lists and ranges as typed, and random ones.

An image depends on its own seed alone, so a run is a list of seeds for each prompt: every seed ``s`` that was typed
stands for ``s, s+1, …`` as far as ``count`` goes, each of them once.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from shardtool.errors import UsageError

LARGEST: Final = 2**63 - 1
MOST: Final = 100_000
"""Images of one prompt in one run; a range such as 1-99999999 is a slip of the finger."""

_FORM = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?", re.ASCII)


def parse_seeds(text: str) -> tuple[int, ...]:
    """``"7"``, ``"1-4,9"`` → the seeds in the order written, each once. Raises ``UsageError`` for anything else."""
    seeds: list[int] = []
    for piece in text.split(","):
        found = _FORM.fullmatch(piece.strip())
        if found is None:
            raise UsageError(
                f'--seed "{text}" is not a list of seeds',
                code="seed_invalid",
                hint="write 7, 1-4, or 1-4,9; whole numbers from 0",
            )
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last > LARGEST:
            raise UsageError(
                f'--seed "{text}": {piece.strip()} is no range of seeds',
                code="seed_invalid",
                hint=f"the smaller number first, at most {LARGEST}",
            )
        _check_number(last - first + 1 + len(seeds))
        seeds.extend(range(first, last + 1))
    return tuple(dict.fromkeys(seeds))


def expand_seeds(seeds: Sequence[int], count: int) -> tuple[int, ...]:
    """Every seed followed by the next ``count - 1`` numbers, each seed once."""
    if count < 1:
        raise UsageError(f"--count {count} is less than 1", code="count_invalid")
    _check_number(len(seeds) * count)
    return tuple(dict.fromkeys(min(seed + i, LARGEST) for seed in seeds for i in range(count)))


def draw_seed() -> int:
    """A random seed below 2³², which every other tool can take too."""
    return secrets.randbelow(2**32)


def seeds_for(typed: Sequence[int], count: int, draw: Callable[[], int] = draw_seed) -> tuple[int, ...]:
    """The seeds of one prompt: those typed, or a drawn one, with ``count`` from each."""
    return expand_seeds(typed or (draw(),), count)


def _check_number(number: int) -> None:
    if number > MOST:
        raise UsageError(f"{number} images of one prompt; the most is {MOST}", code="count_invalid")
