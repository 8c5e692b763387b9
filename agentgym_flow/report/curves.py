"""Line charts with interval bands: compute the coordinates that `templates/chart.svg.j2` draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentgym_flow.errors import BadSetting

WIDTH, HEIGHT = 680, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 16, 14, 52
_SERIES_STYLES = 6  # the number of colours and dash patterns in the style sheet


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a chart. Curves with the same axis labels are drawn into one chart.

    Attributes:
        name: the entry in the legend.
        x: positions, for example training steps; at least one.
        y: one value per position; NaN leaves a gap.
        low: the lower ends of the intervals, with the length of `y`, or None.
        high: the upper ends of the intervals, with the length of `y`, or None.
        x_label: the label of the horizontal axis.
        y_label: the label of the vertical axis.

    Raises `BadSetting` if the lengths differ, there is no finite point, or only one end of the intervals is given.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    x_label: str = "training step"
    y_label: str = "success"

    def __post_init__(self) -> None:
        lengths = {len(values) for values in (self.x, self.y, self.low, self.high) if values is not None}
        if len(lengths) != 1:
            raise BadSetting(f"curve {self.name!r}: x, y, low and high must have one length, got {sorted(lengths)}")
        if (self.low is None) != (self.high is None):
            raise BadSetting(f"curve {self.name!r}: give both ends of the intervals, low and high, or neither")
        if not any(math.isfinite(x) and math.isfinite(y) for x, y in zip(self.x, self.y, strict=True)):
            raise BadSetting(f"curve {self.name!r} has no finite point to draw")


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis: its pixel position and its text."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A drawn curve: its SVG paths, its points as (x, y, value text) in pixels, and its last value."""

    name: str
    style: int
    path: str
    band: str
    points: list[tuple[float, float, str]]
    last: str


@dataclass(frozen=True, slots=True)
class Chart:
    """The data of the chart template, in pixels of a `WIDTH` x `HEIGHT` picture."""

    x_label: str
    y_label: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    lines: list[ChartLine]
    columns: list[str]
    rows: list[list[str]]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


def charts(curves: Iterable[Curve]) -> list[Chart]:
    """Return one chart for each pair of axis labels, in order of first occurrence."""
    by_axes: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        by_axes.setdefault((curve.x_label, curve.y_label), []).append(curve)
    return [_chart(members) for members in by_axes.values()]


def _chart(curves: Sequence[Curve]) -> Chart:
    xs = [v for curve in curves for v in curve.x if math.isfinite(v)]
    heights = [v for c in curves for values in (c.y, c.low, c.high) for v in values or () if math.isfinite(v)]
    x_axis = _Axis(xs, _LEFT, WIDTH - _RIGHT, tight=True)
    y_axis = _Axis(heights, HEIGHT - _BOTTOM, _TOP, tight=False)
    lines = [_line(curve, i % _SERIES_STYLES, x_axis, y_axis) for i, curve in enumerate(curves)]
    columns, rows = _table(curves)
    return Chart(curves[0].x_label, curves[0].y_label, x_axis.ticks(), y_axis.ticks(), lines, columns, rows)


class _Axis:
    """Maps values to pixels. The range includes 0, and ends at round numbers unless `tight`."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, tight: bool) -> None:
        low, high = min(0.0, *values), max(0.0, *values)
        if low == high:  # zeros only
            high = 1.0
        self.step = _round_step((high - low) / 5)
        if not tight:
            low, high = math.floor(low / self.step + 1e-9) * self.step, math.ceil(high / self.step - 1e-9) * self.step
        self.low, self.high, self.start, self.end = low, high, start, end

    def pixel(self, value: float) -> float:
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 2)

    def ticks(self) -> list[Tick]:
        first, last = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
        return [Tick(self.pixel(i * self.step), number(i * self.step)) for i in range(first, last + 1)]


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


def number(value: float) -> str:
    """Return `value` as text with four significant digits, a true minus sign, and an exponent only if needed."""
    if not math.isfinite(value):
        return "\N{EN DASH}"
    magnitude = abs(value)
    if magnitude and not 1e-4 <= magnitude < 1e7:
        text = f"{value:.3g}"
    elif magnitude >= 1000 or value == int(value):
        text = f"{value:,.0f}"
    else:
        text = f"{value:.4g}"
    return text.replace("-", "\N{MINUS SIGN}")


def _line(curve: Curve, style: int, x_axis: _Axis, y_axis: _Axis) -> ChartLine:
    rows = list(zip(curve.x, curve.y, strict=True))
    points = [
        (x_axis.pixel(x), y_axis.pixel(y), f"{curve.name}: {number(y)} at {number(x)}")
        for x, y in rows
        if math.isfinite(x) and math.isfinite(y)
    ]
    path = " ".join("M" + " L".join(f"{x_axis.pixel(x)} {y_axis.pixel(y)}" for x, y in run) for run in _runs(rows))
    band = ""
    if curve.low is not None and curve.high is not None:
        for run in _runs(list(zip(curve.x, curve.low, curve.high, strict=True))):
            upper = [f"{x_axis.pixel(x)} {y_axis.pixel(high)}" for x, _, high in run]
            lower = [f"{x_axis.pixel(x)} {y_axis.pixel(low)}" for x, low, _ in reversed(run)]
            band += "M" + " L".join(upper + lower) + "Z "
    finite = [y for _, y in rows if math.isfinite(y)]
    return ChartLine(curve.name, style, path, band.strip(), points, number(finite[-1]))


def _runs(rows: Sequence[tuple[float, ...]]) -> list[list[tuple[float, ...]]]:
    """Split `rows` where a value is missing."""
    runs: list[list[tuple[float, ...]]] = [[]]
    for row in rows:
        if all(math.isfinite(value) for value in row):
            runs[-1].append(row)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _table(curves: Sequence[Curve]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table of the values, one row per distinct position."""
    cells: dict[float, dict[int, str]] = {}
    for column, curve in enumerate(curves):
        for i, (x, y) in enumerate(zip(curve.x, curve.y, strict=True)):
            text = number(y)
            if curve.low is not None and curve.high is not None:
                text += f" ({number(curve.low[i])} to {number(curve.high[i])})"
            cells.setdefault(x, {})[column] = text
    rows = [[number(x), *(cells[x].get(i, "") for i in range(len(curves)))] for x in sorted(cells)]
    return [curves[0].x_label, *(curve.name for curve in curves)], rows
