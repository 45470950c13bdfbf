"""``"2GB"`` to bytes and back. ``GB`` is 10⁹ and ``GiB`` 2³⁰; a bare integer is bytes."""

from __future__ import annotations

import re
from decimal import Decimal

from shardtool.errors import UsageError

_UNITS = {"B": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("KMGT", start=1)
    for suffix, base in (("B", 1000), ("IB", 1024))
}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", re.ASCII)
LIMIT = 2**63
"""No file and no memory has as many bytes."""

ACCEPTED = "write 2GB (2·10⁹ bytes), 2GiB (2·2³⁰), 500MB, 1.5 GiB, or a whole number of bytes"


def parse_size(text: str, *, what: str = "size") -> int:
    """The number of bytes that ``text`` means, at least 1 and below ``LIMIT``.

    Any case, blanks and decimals are allowed: ``"2GB"``, ``"1.5 gib"``, ``"2000000000"``. Raises ``UsageError`` for
    anything else, naming the accepted forms; ``"5G"`` is refused, as it means 10⁹ to some tools and 2³⁰ to others.
    """
    found = _FORM.fullmatch(text)
    if found is not None:
        number, unit = found.groups()
        factor = _UNITS.get(unit.upper()) if unit else (1 if number.isdigit() else None)
        if factor is not None and 0 < (size := int(Decimal(number) * factor)) < LIMIT:
            return size
    raise UsageError(f'{what} "{text}" is not a size', code="size_invalid", hint=ACCEPTED)


def format_size(size: int) -> str:
    """``size`` bytes for people, in powers of ten: ``"5.14 GB"``; three significant digits, whole bytes below 1 kB."""
    return f"{size} B" if size < 1000 else _scaled(size, ("kB", "MB", "GB", "TB", "PB"))


def format_count(count: int) -> str:
    """A number of things for people: ``"4.35 M"``; three significant digits, the number itself below 10,000."""
    return f"{count:,}" if count < 10_000 else _scaled(count, ("k", "M", "G", "T", "P"))


def _scaled(number: int, units: tuple[str, ...]) -> str:
    value, unit = float(number), ""
    for unit in units:  # noqa: B007 (the last one reached is used below)
        value /= 1000
        if value < 999.5:
            break
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {unit}"
