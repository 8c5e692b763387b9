"""Pictures of Canvas workflows, and of the calls in a run of them, as SVG or as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from agentgym_flow._util import __version__
from agentgym_flow.errors import BadSetting
from agentgym_flow.report.rendering import security_policy, source, templates
from agentgym_flow.report.workflow_data import (
    ROLES,
    WorkflowCall,
    in_words,
    operators,
    read_graph,
    read_run,
)
from agentgym_flow.report.workflow_layout import (
    SMALL_SIZE,
    Box,
    Direction,
    Frame,
    Knot,
    Polyline,
    Word,
    WorkflowLayout,
    verdict_marks,
    width,
)

STYLE = "workflow.css"
"""The style sheet that a page with pictures needs."""

Plain = Sequence[Mapping[str, Any]]
"""A graph or a run as plain data, described in `workflow_data.read_graph` and `read_run`."""

_MARGIN = 16.0
_LEAST_LEGEND = 330.0  # the width of the legend of a narrow workflow
_ROW, _SAMPLE = 20.0, 18.0  # in the legend: the height of a row, the width of a sample
_CORNER = 7.0
_SIGNS = {"passed": "\N{CHECK MARK}", "failed": "\N{BALLOT X}", "broken": "!", "more": "\N{HORIZONTAL ELLIPSIS}"}
_STATES = {
    "used": "the result depends on it",
    "unused": "ran, the result does not depend on it",
    "idle": "did not run",
    "broken": "the call failed",
}


def workflow_svg(graph: Plain, run: Plain | None = None, *, direction: Direction = "right") -> str:
    """Return the picture of a workflow as a standalone SVG document, light or dark like the reader's system.

    Args:
        graph: the workflow, as in Canvas's `info["workflow"]["graph"]`; it may be empty.
        run: the calls of a run, as in `info["workflow"]["run"]`. The picture then shows which operators ran, affected
            the result or failed, and the verdicts of checks.
        direction: `"right"`, or `"down"` for a narrow page.

    Raises `BadSetting` if the data or the direction is malformed.
    """
    made = workflow_picture(graph, run, direction=direction)
    return templates().get_template("workflow.svg.j2").render(picture=made, style=Markup(source(STYLE)))


def workflow_html(
    graph: Plain, run: Plain | None = None, *, title: str = "Workflow", direction: Direction = "right"
) -> str:
    """Return the picture on a self-contained page, with a table of all complete instructions below it.

    `title` is the heading. Other arguments and the errors are those of `workflow_svg`.
    """
    made = workflow_picture(graph, run, direction=direction)
    calls = read_run(run or ())
    style = source("page.css", STYLE)
    return (
        templates()
        .get_template("workflow.html.j2")
        .render(
            title=title,
            version=__version__,
            policy=security_policy(style),
            style=Markup(style),
            picture=made,
            ran=run is not None,
            rows=[
                (operator, "\n".join(map(said_of, calls.get(operator.id, ()))) or "did not run")
                for operator in operators(read_graph(graph))
            ],
        )
    )


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle: an operator, an end, a frame, or a sample of the legend.

    `style` has its CSS classes, `lines` are inside it (beside it in the legend), `title` is its tooltip, and `signs`
    are its verdicts: text, class and x.
    """

    x: float
    y: float
    width: float
    height: float
    style: str
    lines: tuple[str, ...] = ()
    title: str = ""
    signs: tuple[tuple[str, str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Path:
    """An SVG path with its CSS classes. `tip` is the path of its arrow head; empty if it has none."""

    d: str
    style: str
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """A text, placed by its centre."""

    x: float
    y: float
    text: str
    style: str


@dataclass(frozen=True, slots=True)
class WorkflowPicture:
    """The data of `templates/workflow.svg.j2`, in pixels. `words` is a description of the picture."""

    width: float
    height: float
    title: str
    words: str
    frames: list[Area]
    paths: list[Path]
    knots: list[Path]
    boxes: list[Area]
    labels: list[Label]
    legend: list[Area]


def workflow_picture(graph: Plain, run: Plain | None = None, *, direction: Direction = "right") -> WorkflowPicture:
    """Return the data of the templates. The arguments and the errors are those of `workflow_svg`."""
    if direction not in ("right", "down"):
        raise BadSetting(f"direction is 'right' or 'down', got {direction!r:.40}")
    chain, calls = read_graph(graph), None if run is None else read_run(run)
    block = WorkflowLayout(calls, direction).all_of(chain)
    down = direction == "down"
    wide, high = (block.breadth, block.length) if down else (block.length, block.breadth)
    marks = block.at(_MARGIN, _MARGIN)
    boxes = [mark for mark in marks if isinstance(mark, Box)]
    legend = _legend(boxes, high + 2 * _MARGIN, max(wide, _LEAST_LEGEND))
    paths = [_line(mark, down) for mark in marks if isinstance(mark, Polyline)]
    count = len(operators(chain))
    return WorkflowPicture(
        width=_round(max([_MARGIN + wide, *(_right(item) for item in legend)]) + _MARGIN),
        height=_round(max([_MARGIN + high, *(item.y + item.height for item in legend)]) + _MARGIN),
        title=f"Workflow of {count} operator{'' if count == 1 else 's'}" + ("" if calls is None else ", as it ran"),
        words=in_words(chain),
        frames=[Area(*_area(mark, down), _style(mark)) for mark in marks if isinstance(mark, Frame)],
        paths=sorted(paths, key=lambda path: "quiet" not in path.style),  # quiet paths are drawn first
        knots=[_knot(mark, down) for mark in marks if isinstance(mark, Knot)],
        boxes=[_box(box, down) for box in boxes],
        labels=[Label(*_xy(mark.u, mark.v, down), mark.text, _style(mark)) for mark in marks if isinstance(mark, Word)],
        legend=legend,
    )


def said_of(call: WorkflowCall) -> str:
    """Return the result of a call in a few words."""
    verdict = {None: "ran", True: "passed", False: "did not pass"}[call.passed] if call.ok else "failed"
    return f"{verdict}: {call.notes}" if call.notes else verdict


# ---------------------------------------------------------------------- marks
def _round(value: float) -> float:
    return round(value, 1)


def _xy(u: float, v: float, down: bool) -> tuple[float, float]:
    return (_round(v), _round(u)) if down else (_round(u), _round(v))


def _area(mark: Box | Frame, down: bool) -> tuple[float, float, float, float]:
    return *_xy(mark.u, mark.v, down), *_xy(mark.length, mark.breadth, down)


def _style(mark: Polyline | Word | Knot | Frame) -> str:
    kind = mark.kind if isinstance(mark, Polyline | Word) else ""
    return " ".join(filter(None, (kind, "quiet" if mark.quiet else "")))


def _box(mark: Box, down: bool) -> Area:
    x, y, wide, high = _area(mark, down)
    if mark.operator is None:
        return Area(x, y, wide, high, "end", mark.lines)
    node = mark.operator
    role = node.role if node.role in ROLES else "other"
    signs = verdict_marks(mark.calls)
    right = x + wide - 12.0
    return Area(
        x,
        y,
        wide,
        high,
        f"{role} {mark.state}",
        mark.lines,
        _tooltip(mark),
        tuple((_SIGNS[sign], sign, _round(right - 12.0 * (len(signs) - 1 - at))) for at, sign in enumerate(signs)),
    )


def _tooltip(mark: Box) -> str:
    node = mark.operator
    assert node is not None
    lines = [f"{node.id}: {node.name} ({node.role})", *([node.instruction] if node.instruction else [])]
    if mark.state != "plain":
        lines.append(f"In this run: {_STATES[mark.state]}.")
    times = len(mark.calls) > 1
    lines += [f"{f'time {at}, ' if times else ''}{said_of(call)}" for at, call in enumerate(mark.calls, 1)]
    return "\n".join(lines)


def _knot(mark: Knot, down: bool) -> Path:
    x, y = _xy(mark.u, mark.v, down)
    if mark.diamond:
        return Path(f"M{x} {y - 13}L{x + 13} {y}L{x} {y + 13}L{x - 13} {y}z", f"choice {_style(mark)}".strip())
    return Path(f"M{x - 3} {y}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z", f"knot {_style(mark)}".strip())


# ---------------------------------------------------------------------- lines
def _line(mark: Polyline, down: bool) -> Path:
    points = list(mark.points)
    end, before = points[-1], points[-2]
    tip = ""
    if mark.arrow:
        ahead = (_sign(end[0] - before[0]), _sign(end[1] - before[1])) if mark.kind == "back" else (1, 0)
        tip = _tip(end, ahead, down)
        # The line ends inside the arrow head, which hides its end.
        points[-1] = (end[0] - 5 * ahead[0], end[1] - 5 * ahead[1])
    drawn = _cornered(points, down) if mark.kind == "back" else _bent(points, down)
    return Path(drawn, _style(mark), tip)


def _bent(points: Sequence[tuple[float, float]], down: bool) -> str:
    """Return a path of curves that are parallel to the flow at both ends."""
    path = f"M{_point(points[0], down)}"
    for (u, v), (to_u, to_v) in pairwise(points):
        if v == to_v:
            path += f"L{_point((to_u, to_v), down)}"
        else:
            middle = (u + to_u) / 2
            path += "C" + " ".join(_point(point, down) for point in ((middle, v), (middle, to_v), (to_u, to_v)))
    return path


def _cornered(points: Sequence[tuple[float, float]], down: bool) -> str:
    """Return a path of straight lines with rounded corners."""
    path = f"M{_point(points[0], down)}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        entry, leave = (_towards(corner, other, _CORNER) for other in (before, after))
        path += f"L{_point(entry, down)}Q{_point(corner, down)} {_point(leave, down)}"
    return f"{path}L{_point(points[-1], down)}"


def _towards(start: tuple[float, float], end: tuple[float, float], by: float) -> tuple[float, float]:
    return start[0] + by * _sign(end[0] - start[0]), start[1] + by * _sign(end[1] - start[1])


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _tip(end: tuple[float, float], ahead: tuple[int, int], down: bool) -> str:
    (u, v), (along, across) = end, ahead
    back = (u - 8 * along, v - 8 * across)
    sides = ((back[0] + 4 * across, back[1] + 4 * along), (back[0] - 4 * across, back[1] - 4 * along))
    return f"M{_point(end, down)}L{_point(sides[0], down)}L{_point(sides[1], down)}z"


def _point(point: tuple[float, float], down: bool) -> str:
    x, y = _xy(*point, down)
    return f"{x:g} {y:g}"


# ---------------------------------------------------------------------- legend
def _legend(boxes: Sequence[Box], top: float, room: float) -> list[Area]:
    """Return samples of the roles and states in the picture, in rows with a width of at most `room`."""
    roles = {box.operator.role for box in boxes if box.operator is not None}
    states = {box.state for box in boxes if box.operator is not None}
    rows = [[(f"{role} plain", role) for role in ROLES if role in roles]]
    rows.append([(f"sample {state}", words) for state, words in _STATES.items() if state in states])
    items: list[Area] = []
    y = top - _ROW
    for row in filter(None, rows):
        x, y = _MARGIN, y + _ROW
        for style, words in row:
            wide = _SAMPLE + 6.0 + width(words, SMALL_SIZE)
            if x > _MARGIN and x + wide > _MARGIN + room:
                x, y = _MARGIN, y + _ROW
            items.append(Area(_round(x), _round(y), _SAMPLE, 12.0, style, (words,)))
            x += wide + 14.0
    return items


def _right(item: Area) -> float:
    return item.x + item.width + 6.0 + width(item.lines[0], SMALL_SIZE)
