"""All charts: lines with interval bands, activities in lanes, stacked counts over time, and histograms.

Line charts are data for `templates/chart.svg.j2` on a page. Pictures over time are SVG documents, light or dark like
the reader's system, which `templates/timeline.svg.j2` draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from agentgym_flow._util import __version__
from agentgym_flow.errors import BadSetting
from agentgym_flow.report.rendering import security_policy, shortened, source, templates

_SERIES_STYLES = 6  # the number of colours and dash patterns in the style sheet of pages

STYLE = "timeline.css"
"""The style sheet of the pictures."""

Span = tuple[str, float, float]
"""An activity with its start and end in seconds."""

_WIDTH, _LEFT, _RIGHT, _TOP = 960.0, 150.0, 20.0, 34.0
_ROW, _BAR = 15.0, 11.0  # the height of a row, and of the bar in it
_PLOT = 240.0  # the height of a histogram
_MOST_ROWS = 60
_LONGEST = 22  # characters of a name
_CLOCK = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


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
        joined: whether a line joins the points; without one, all points are drawn, however many.

    Raises `BadSetting` if the lengths differ, there is no finite point, or only one end of the intervals is given.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    x_label: str = "training step"
    y_label: str = "success"
    joined: bool = True

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
    joined: bool


@dataclass(frozen=True)
class Chart:
    """The data of the chart template, in pixels of a `width` x `height` picture."""

    x_label: str
    y_label: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    lines: list[ChartLine]
    columns: list[str]
    rows: list[list[str]]
    width: int = 680
    height: int = 340
    left: int = 62
    right: int = 664
    top: int = 14
    bottom: int = 288


def charts(curves: Iterable[Curve]) -> list[Chart]:
    """Return one chart for each pair of axis labels, in order of first occurrence."""
    by_axes: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        by_axes.setdefault((curve.x_label, curve.y_label), []).append(curve)
    return [_chart(members) for members in by_axes.values()]


def _chart(curves: Sequence[Curve]) -> Chart:
    xs = [v for curve in curves for v in curve.x if math.isfinite(v)]
    heights = [v for c in curves for values in (c.y, c.low, c.high) for v in values or () if math.isfinite(v)]
    x_axis = _Axis(xs, Chart.left, Chart.right, tight=True)
    y_axis = _Axis(heights, Chart.bottom, Chart.top, tight=False)
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
    path = path if curve.joined else ""
    band = ""
    if curve.low is not None and curve.high is not None:
        for run in _runs(list(zip(curve.x, curve.low, curve.high, strict=True))):
            upper = [f"{x_axis.pixel(x)} {y_axis.pixel(high)}" for x, _, high in run]
            lower = [f"{x_axis.pixel(x)} {y_axis.pixel(low)}" for x, low, _ in reversed(run)]
            band += "M" + " L".join(upper + lower) + "Z "
    finite = [y for _, y in rows if math.isfinite(y)]
    return ChartLine(curve.name, style, path, band.strip(), points, number(finite[-1]), curve.joined)


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


# ---------------------------------------------------------------- pictures over time
@dataclass
class _Drawing:
    """The data of the template. Styles are classes of `templates/timeline.css`."""

    title: str
    words: str
    height: float
    width: float = _WIDTH
    lines: list[tuple[str, str]] = field(default_factory=list)  # style, path
    areas: list[tuple[str, str]] = field(default_factory=list)
    texts: list[tuple[str, float, float, str, str]] = field(default_factory=list)  # style, x, y, anchor, text
    legend: list[tuple[str, float, float, str]] = field(default_factory=list)  # style, x, y, text

    def svg(self) -> str:
        return templates().get_template("timeline.svg.j2").render(picture=self, style=Markup(source(STYLE)))

    def explain(self, kinds: Mapping[str, str]) -> None:
        x = _LEFT
        for kind, style in kinds.items():
            self.legend.append((style, x, 12.0, kind))
            x += 34 + 7.0 * len(kind)

    def time_axis(self, seconds: float, bottom: float) -> None:
        """Draw ticks at round times, in seconds, minutes or hours, depending on the total time."""
        step = next((one for one in _CLOCK if one >= seconds / 8), 86400 * max(1, math.ceil(seconds / 8 / 86400)))
        unit, name = (3600, "h") if step >= 1800 else (60, "min") if step >= 60 else (1, "s")
        for tick in range(math.floor(seconds / step + 1e-9) + 1):
            x = _x(tick * step, seconds)
            self.lines.append(("grid", f"M{x} {_TOP}V{bottom}"))
            self.texts.append(("tick", x, bottom + 16, "middle", f"{number(tick * step / unit)} {name}"))

    def count_axis(self, high: float, bottom: float) -> float:
        """Draw ticks at round numbers; return the number at the top."""
        step = max(1.0, _round_step(max(high, 1) / 4))
        steps = max(1, math.ceil(high / step - 1e-9))
        for tick in range(steps + 1):
            y = _round(bottom - tick / steps * (bottom - _TOP))
            self.lines.append(("grid", f"M{_LEFT} {y}H{_WIDTH - _RIGHT}"))
            self.texts.append(("tick", _LEFT - 8, y + 4, "end", number(tick * step)))
        return steps * step


def _round(value: float) -> float:
    return round(value, 1)


def _x(seconds: float, total: float) -> float:
    return _round(_LEFT + seconds / total * (_WIDTH - _LEFT - _RIGHT))


def lanes_svg(rows: Sequence[tuple[str, Sequence[Span]]], kinds: Mapping[str, str], title: str) -> str:
    """Return a picture with one lane for each of the first 60 `rows`.

    Args:
        rows: (name, spans in the order of time); the spans of a row must not overlap.
        kinds: activity -> its colour, `k0` to `k5`.
        title: the title.
    """
    shown = rows[:_MOST_ROWS]
    left_out = len(rows) - len(shown)
    seconds = max([end for _, spans in rows for _, _, end in spans], default=0.0) or 1.0
    bottom = _TOP + _ROW * max(1, len(shown))
    words = f"{len(rows)} rows over {number(seconds)} seconds"
    drawing = _Drawing(title, words, bottom + (44 if left_out else 26))
    drawing.time_axis(seconds, bottom)
    paths: dict[str, list[str]] = {kind: [] for kind in kinds}
    for place, (name, spans) in enumerate(shown):
        y = _round(_TOP + _ROW * (place + 0.5))
        if place == 0 or shown[place - 1][0] != name:
            drawing.texts.append(("name", _LEFT - 8, y + 4, "end", shortened(name, _LONGEST)))
        for kind, start, end in spans:
            x = _x(start, seconds)
            paths[kind].append(f"M{x} {y}H{_round(max(_x(end, seconds) - 1, x + 0.3))}")  # a gap before the next
    drawing.lines += [(f"bar {style}", "".join(paths[kind])) for kind, style in kinds.items() if paths[kind]]
    drawing.explain(kinds)
    if left_out:
        drawing.texts.append(("tick", _LEFT, bottom + 36, "start", f"{number(left_out)} more rows are not drawn"))
    return drawing.svg()


def layers_svg(samples: Sequence[tuple[float, Mapping[str, float]]], kinds: Mapping[str, str], title: str) -> str:
    """Return a picture of stacked counts over time. A count is valid until the next sample.

    Args:
        samples: (seconds, the count of each kind).
        kinds: kind -> its colour, `k0` to `k5`, from bottom to top.
        title: the title.
    """
    seconds = max([at for at, _ in samples], default=0.0) or 1.0
    high = max([sum(counts.get(kind, 0) for kind in kinds) for _, counts in samples], default=0)
    bottom = _TOP + _PLOT
    drawing = _Drawing(title, f"the most are {number(high)}", bottom + 26)
    top = drawing.count_axis(high, bottom)
    drawing.time_axis(seconds, bottom)
    below = [0.0] * len(samples)
    for kind, style in kinds.items():
        above = [base + counts.get(kind, 0) for base, (_, counts) in zip(below, samples, strict=True)]
        upper, lower = _steps(samples, above, seconds, top), _steps(samples, below, seconds, top)
        if any(counts.get(kind, 0) for _, counts in samples):
            path = "M" + "L".join(f"{x} {y}" for x, y in [*upper, *reversed(lower)]) + "Z"
            drawing.areas.append((style, path))
        below = above
    drawing.explain(kinds)
    return drawing.svg()


def _steps(
    samples: Sequence[tuple[float, Mapping[str, float]]], heights: Sequence[float], seconds: float, top: float
) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    for (at, _), height in zip(samples, heights, strict=True):
        x, y = _x(at, seconds), _round(_TOP + _PLOT * (1 - height / top))
        if points:
            points.append((x, points[-1][1]))
        points.append((x, y))
    return points


def bars_svg(counts: Sequence[tuple[str, int]], title: str, x_label: str = "") -> str:
    """Return a histogram with one bar for each (name, number) in `counts`."""
    bottom = _TOP + _PLOT
    drawing = _Drawing(title, ", ".join(f"{name}: {count}" for name, count in counts), bottom + 44)
    top = drawing.count_axis(max([count for _, count in counts], default=0), bottom)
    wide = (_WIDTH - _LEFT - _RIGHT) / max(1, len(counts))
    for place, (name, count) in enumerate(counts):
        x, y = _round(_LEFT + wide * (place + 0.15)), _round(bottom - count / top * _PLOT)
        drawing.areas.append(("k0", f"M{x} {bottom}V{y}h{_round(wide * 0.7)}V{bottom}Z"))
        middle = _round(_LEFT + wide * (place + 0.5))
        drawing.texts.append(("tick", middle, bottom + 16, "middle", name))
        drawing.texts.append(("name", middle, y - 5, "middle", number(count)))
    drawing.texts.append(("tick", (_LEFT + _WIDTH - _RIGHT) / 2, bottom + 36, "middle", x_label))
    return drawing.svg()


def timeline_page(title: str, told: Mapping[str, str], pictures: Mapping[str, str]) -> str:
    """Return a self-contained page with a table of names and values, and pictures with headings."""
    style = source("page.css", STYLE)
    # The page's policy allows only one style sheet, so the pictures must not have their own.
    bare = {heading: Markup(svg.replace(f"<style>{source(STYLE)}</style>", "")) for heading, svg in pictures.items()}
    return (
        templates()
        .get_template("timeline.html.j2")
        .render(
            title=title,
            version=__version__,
            policy=security_policy(style),
            style=Markup(style),
            told=told,
            pictures=bare,
        )
    )
