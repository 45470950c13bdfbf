"""Convert numbers from one floating-point dtype to another, block by block, and count what does not survive.

Heavy: imports torch. ``shardtool.checkpoint.cast`` decides what is cast; this computes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from shardtool.checkpoint.cast import Blocks
from shardtool.dtypes import TORCH_STORED
from shardtool.errors import RunError
from shardtool.events import Note


@dataclass
class Casting:
    """Converts, and remembers by tensor how many finite values became infinite and how many lost all to zero."""

    overflowed: dict[str, int] = field(default_factory=dict)
    vanished: dict[str, int] = field(default_factory=dict)

    def convert(self, name: str, before: str, after: str, blocks: Blocks) -> Iterator[memoryview]:
        """The numbers in ``blocks`` as ``after``; dtypes as headers call them."""
        for block in blocks:
            numbers = torch.frombuffer(bytearray(block), dtype=TORCH_STORED[before])
            cast = numbers.to(TORCH_STORED[after])
            self._count(name, numbers, cast)
            yield cast.view(torch.uint8).numpy().data

    def _count(self, name: str, before: torch.Tensor, after: torch.Tensor) -> None:
        # Eight-bit floats lack most operations; every value of theirs is one of float32.
        wide = before.float() if before.element_size() == 1 else before
        if overflowed := int((wide.isfinite() & after.isinf()).sum()):
            self.overflowed[name] = self.overflowed.get(name, 0) + overflowed
        if vanished := int(((after == 0) & (wide != 0)).sum()):
            self.vanished[name] = self.vanished.get(name, 0) + vanished

    def notes(self) -> Iterator[Note]:
        """What was lost, for people."""
        for code, what, counts in (
            ("cast_overflow", "became infinite", self.overflowed),
            ("cast_underflow", "became zero", self.vanished),
        ):
            if counts:
                worst = max(counts, key=counts.__getitem__)
                yield Note(
                    code,
                    f"{sum(counts.values()):,} values in {len(counts):,} tensors {what}, most of them in {worst!r}",
                    warning=True,
                )

    def check(self) -> None:
        """Raises ``RunError`` where finite values became infinite: such a model makes NaN and black pictures."""
        if self.overflowed:
            name = max(self.overflowed, key=self.overflowed.__getitem__)
            raise RunError(
                f"{sum(self.overflowed.values()):,} values in {len(self.overflowed):,} tensors are too large "
                f"for this dtype, most of them in {name!r}; nothing was written",
                code="cast_overflow",
                tensor=name,
                hint="use --dtype bf16, which has the range of fp32, or accept infinities with --allow-overflow",
            )
