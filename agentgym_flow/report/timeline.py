"""Pictures over time as SVG, light or dark like the reader's system: activities in lanes, stacked counts, histograms.

`templates/timeline.svg.j2` draws the data of this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from agentgym_flow import __version__
from agentgym_flow.report.curves import number
from agentgym_flow.report.rendering import security_policy, source, templates

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
        power = 10.0 ** math.floor(math.log10(max(high, 1) / 4))
        step = max(1.0, next(f * power for f in (1, 2, 5, 10) if f * power * 4 >= max(high, 1) * 0.999))
        steps = max(1, math.ceil(high / step - 1e-9))
        for tick in range(steps + 1):
            y = _round(bottom - tick / steps * (bottom - _TOP))
            self.lines.append(("grid", f"M{_LEFT} {y}H{_WIDTH - _RIGHT}"))
            self.texts.append(("tick", _LEFT - 8, y + 4, "end", number(tick * step)))
        return steps * step


def _round(value: float) -> float:
    return round(value, 1)


def _x(seconds: float, whole: float) -> float:
    return _round(_LEFT + seconds / whole * (_WIDTH - _LEFT - _RIGHT))


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
            drawing.texts.append(("name", _LEFT - 8, y + 4, "end", _short(name)))
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


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"
