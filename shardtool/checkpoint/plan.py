"""Which tensor goes into which shard: a pure decision over names and sizes.

Tensors stay in the order of their source, so that a shard is one contiguous run of it. The limit is on the file,
header included. No shard is ever empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from shardtool.checkpoint.layout import Draft, FilePlan, Item, lay_out
from shardtool.errors import InputError, RefusedError, UsageError
from shardtool.sizes import format_size

DEFAULT_LIMIT = 5_000_000_000
"""Bytes a shard may have where nothing else is asked for: below the 5 GB that many hosts advise."""


@dataclass(frozen=True)
class Split:
    """How a checkpoint is to be divided.

    ``limit`` bounds each file in bytes (``None``: no bound); ``shards`` asks for that many files of nearly equal size;
    ``balance`` evens out the files that ``limit`` leads to; ``allow_oversize`` lets a single tensor break the limit.
    """

    limit: int | None = DEFAULT_LIMIT
    shards: int | None = None
    balance: bool = False
    allow_oversize: bool = False


WHOLE = Split(limit=None)
"""Everything in one file."""


def plan_files(items: Sequence[Item], metadata: Mapping[str, str], split: Split) -> tuple[FilePlan, ...]:
    """The files that ``split`` asks for, in order: one, or several shards.

    Raises ``RefusedError`` naming a tensor that is alone above the limit, and ``UsageError`` for more shards than
    tensors.
    """
    if split.shards is not None:
        return _in_number(items, metadata, split.shards)
    whole = lay_out(items, metadata, single=True)
    if split.limit is None or whole.fits(split.limit) or len(items) <= 1:
        _check_alone(whole, split)
        return (whole.plan(limit=split.limit),)
    cuts = _cuts(items, metadata, split)
    if split.balance:
        cuts = _even(items, metadata, len(cuts), split.limit)
    return _laid_out(items, metadata, cuts, split.limit)


def _laid_out(
    items: Sequence[Item], metadata: Mapping[str, str], cuts: Sequence[int], limit: int | None
) -> tuple[FilePlan, ...]:
    begins = [0, *cuts[:-1]]
    return tuple(lay_out(items[begin:end], metadata).plan(limit=limit) for begin, end in zip(begins, cuts, strict=True))


def _check_alone(draft: Draft, split: Split) -> None:
    if split.limit is None or split.allow_oversize or not draft.items or draft.fits(split.limit):
        return
    item = draft.items[0]
    raise RefusedError(
        f"tensor {item.name!r} alone needs a file of {draft.least():,} bytes ({format_size(draft.least())}), "
        f"above the limit of {split.limit:,}",
        code="tensor_oversize",
        tensor=item.name,
        hint="raise --max-size, or give it a larger file of its own with --allow-oversize",
    )


def _farthest(items: Sequence[Item], metadata: Mapping[str, str], begin: int, split: Split) -> int:
    """The end of the longest shard that starts at ``begin`` and keeps the limit; at least one item.

    Padding is left out of a header before a tensor is left out of a shard.
    """
    draft = Draft(metadata)
    draft.add(items[begin])
    _check_alone(draft, split)
    for end in range(begin + 1, len(items)):
        draft.add(items[end])
        if split.limit is not None and not draft.fits(split.limit):
            return end
    return len(items)


def _greedy(items: Sequence[Item], metadata: Mapping[str, str], begin: int, split: Split) -> Iterator[int]:
    while begin < len(items):
        begin = _farthest(items, metadata, begin, split)
        yield begin


def _cuts(items: Sequence[Item], metadata: Mapping[str, str], split: Split) -> list[int]:
    """Where each shard ends. A cut moves back to the end of a source file where that costs no further shard."""
    fewest = list(_greedy(items, metadata, 0, split))
    ends = [n for n in range(1, len(items)) if items[n].origin != items[n - 1].origin]
    if not ends:
        return fewest
    cuts: list[int] = []
    begin = 0
    while begin < len(items):
        end = _farthest(items, metadata, begin, split)
        natural = [n for n in ends if begin < n < end] if end < len(items) else []
        if natural:
            rest = sum(1 for _ in _greedy(items, metadata, natural[-1], split))
            end = natural[-1] if len(cuts) + 1 + rest <= len(fewest) else end
        cuts.append(end)
        begin = end
    return cuts


def _even(items: Sequence[Item], metadata: Mapping[str, str], count: int, limit: int) -> list[int]:
    """Cuts into ``count`` nearly equal shards whose largest is as small as can be, found by halving the limit."""
    low, high = 1, limit
    while low < high:
        middle = (low + high) // 2
        if _fits(items, metadata, middle, count):
            high = middle
        else:
            low = middle + 1
    return _spread(items, metadata, count, Split(low, allow_oversize=True))


def _fits(items: Sequence[Item], metadata: Mapping[str, str], limit: int, count: int) -> bool:
    """Whether ``count`` shards under ``limit`` are enough."""
    try:
        ends = _greedy(items, metadata, 0, Split(limit))
        return sum(1 for _ in islice(ends, count + 1)) <= count
    except RefusedError:
        return False


def _spread(items: Sequence[Item], metadata: Mapping[str, str], count: int, split: Split) -> list[int]:
    """Exactly ``count`` shards that keep the limit, each as near to the average of what is left as can be."""
    cuts: list[int] = []
    begin = 0
    for left in range(count, 1, -1):
        farthest = min(_farthest(items, metadata, begin, split), len(items) - left + 1)
        ideal = sum(item.nbytes for item in items[begin:]) / left
        end = _nearest(items, begin, farthest, ideal)
        if sum(1 for _ in islice(_greedy(items, metadata, end, split), left)) >= left:
            end = farthest  # what is left would not fit: take all there is room for
        cuts.append(end)
        begin = end
    return [*cuts, len(items)]


def _nearest(items: Sequence[Item], begin: int, farthest: int, ideal: float) -> int:
    """The end up to ``farthest`` that makes a shard of about ``ideal`` bytes."""
    done, best, distance = 0, begin + 1, float("inf")
    for end in range(begin + 1, farthest + 1):
        done += items[end - 1].nbytes
        if abs(done - ideal) <= distance:
            best, distance = end, abs(done - ideal)
    return best


def _in_number(items: Sequence[Item], metadata: Mapping[str, str], count: int) -> tuple[FilePlan, ...]:
    if count > max(len(items), 1):
        raise UsageError(
            f"--shards {count}: there are only {len(items)} tensors, and no shard may be empty", code="too_many_shards"
        )
    if count == 1:
        return (lay_out(items, metadata, single=True).plan(),)
    cuts = _even(items, metadata, count, lay_out(items, metadata).size())
    return _laid_out(items, metadata, cuts, None)


def plan_like(
    items: Sequence[Item],
    metadata: Mapping[str, str],
    groups: Sequence[tuple[Sequence[str], int]],
    *,
    other: str,
) -> tuple[FilePlan, ...]:
    """The files of another checkpoint: ``groups`` are its files' tensor names in order, and where their data begins.

    Raises ``InputError`` unless both have the same tensor names; ``other`` names the other one in the message.
    """
    by_name = {item.name: item for item in items}
    wanted = {name for names, _ in groups for name in names}
    for name in sorted(by_name.keys() ^ wanted):
        where = f"{other} lacks it" if name in by_name else f"only {other} has it"
        raise InputError(
            f"tensor {name!r}: {where}, so its shards cannot be taken over",
            code="tensor_absent",
            tensor=name,
            path=other,
            hint="--like needs a checkpoint with the same tensor names; leave it out to split by size",
        )
    single = len(groups) == 1
    return tuple(
        lay_out((by_name[name] for name in names), metadata, single=single).plan(start=start) for names, start in groups
    )
