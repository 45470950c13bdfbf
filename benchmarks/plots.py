"""Small charts as SVG, without a drawing library: bars for ways of doing one thing, lines for what grows with size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 640
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 44, 46
COLOURS = ("#00796b", "#7e57c2", "#ef6c00", "#1976d2", "#c2185b", "#616161")
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}.t{font-weight:600;font-size:14px}.d{fill:#666}"
    ".g{stroke:#ddd}.a{stroke:#666}"
)


@dataclass(frozen=True)
class Bar:
    """One way: its median, and the smallest and largest that were measured."""

    label: str
    value: float
    low: float
    high: float


def bars(title: str, unit: str, rows: Sequence[Bar]) -> str:
    """Horizontal bars from 0, with the range that was measured as a thin line."""
    left, step = 230, 26
    height = TOP + step * len(rows) + 34
    largest = max(row.high for row in rows) or 1.0
    scale = (WIDTH - left - 90) / largest
    parts = [_text(16, 24, title, "t"), _text(left, height - 10, f"{unit}; median, range as a line", "d")]
    for number, row in enumerate(rows):
        y = TOP + step * number
        colour = COLOURS[0] if row.label.startswith("shardtool") else COLOURS[5]
        parts += [
            _text(left - 8, y + 14, row.label, anchor="end"),
            f'<rect x="{left}" y="{y + 3}" width="{row.value * scale:.1f}" height="15" fill="{colour}"/>',
            _line(left + row.low * scale, y + 10.5, left + row.high * scale, y + 10.5, "a"),
            _text(left + row.high * scale + 6, y + 15, number_text(row.value)),
        ]
    return _svg(height, parts)


def lines(title: str, x_label: str, y_label: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Points joined by lines on logarithmic axes: everything here grows by powers."""
    height = 360
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    across, up = _Axis.over(xs, LEFT, WIDTH - RIGHT - 130), _Axis.over(ys, height - BOTTOM, TOP)
    parts = [_text(16, 24, title, "t"), _text(across.end, height - 8, x_label, "d", anchor="end")]
    parts.append(_text(LEFT, TOP - 7, y_label, "d"))
    for value in up.ticks:
        parts.append(_line(LEFT, up.place(value), across.end, up.place(value), "g"))
        parts.append(_text(LEFT - 6, up.place(value) + 4, number_text(value), anchor="end"))
    for value in across.ticks:
        parts.append(_line(across.place(value), height - BOTTOM, across.place(value), height - BOTTOM + 4, "a"))
        parts.append(_text(across.place(value), height - BOTTOM + 18, number_text(value), anchor="middle"))
    for number, (label, points) in enumerate(series.items()):
        parts += _series(label, sorted(points), COLOURS[number % len(COLOURS)], across, up)
    return _svg(height, parts)


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis between two powers of ten, from pixel ``start`` to pixel ``end``."""

    low: int
    high: int
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> _Axis:
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return cls(low, max(high, low + 1), start, end)

    @property
    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]

    def place(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def _series(label: str, points: Sequence[tuple[float, float]], colour: str, across: _Axis, up: _Axis) -> list[str]:
    places = [(across.place(x), up.place(y)) for x, y in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    end_x, end_y = places[-1]
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places),
        _text(end_x + 8, end_y + 4, label),
    ]


def number_text(value: float) -> str:
    """Three significant digits at most, large numbers with separators."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _svg(height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" role="img"><style>{STYLE}</style>'
        f'<rect width="100%" height="100%" rx="6" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
