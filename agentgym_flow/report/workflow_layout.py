"""The layout of a workflow: every chain, branch and body is a rectangle, and rectangles are nested.

A workflow consists only of chains, branches and bodies (its graph is series-parallel). So one pass gives a picture
without crossings, in which equal chains look equal; a general graph layout would need a search. The flow enters and
leaves a rectangle on its axis. Coordinates are in pixels along the flow (u) and across it (v); `workflow` converts them
to x and y. The width of text is estimated by a fixed metric, so that the layout does not depend on the reader's fonts.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from agentgym_flow.report.workflow_data import (
    Calls,
    Chain,
    Node,
    WorkflowCall,
    WorkflowConditional,
    WorkflowLoop,
    WorkflowOperator,
    WorkflowParallel,
)

Direction: TypeAlias = Literal["right", "down"]
State: TypeAlias = Literal["plain", "used", "unused", "idle", "broken"]
"""The state of an operator: no run is known; the result depends on it; it does not; it did not run; its call failed."""

Case: TypeAlias = Literal["", "passed", "failed"]
"""The case of a branch; empty if it is not part of a conditional."""

MOST_VERDICTS = 4

_GAP = 28.0  # along the flow, between two parts of a chain
_APART = 18.0  # across the flow, between two branches
_FORK, _JOIN = 46.0, 34.0  # length of the lines to and from branches
_BEND = 40.0  # the largest additional length in wide fans
_CASES = 74.0  # like _FORK, with space for the names of the cases
_TIP = 13.0  # from the centre to the corner of the diamond
_NAME_ROOM, _ROOM = 240.0, 158.0  # the largest width of a name, and of a line of an instruction
_PAD, _TURN, _HEAD = 14.0, 18.0, 24.0  # of a loop: inside its frame, at both ends of its back edge, and beside it


@dataclass(frozen=True, slots=True)
class Box:
    """An operator, or an end of the flow: then `operator` is None, and `lines` has its name."""

    u: float
    v: float
    length: float
    breadth: float
    lines: tuple[str, ...]
    operator: WorkflowOperator | None
    state: State = "plain"
    calls: tuple[WorkflowCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of a loop."""

    u: float
    v: float
    length: float
    breadth: float
    quiet: bool


@dataclass(frozen=True, slots=True)
class Knot:
    """A dot where lines meet, or the diamond of a conditional, by its centre."""

    u: float
    v: float
    diamond: bool
    quiet: bool


@dataclass(frozen=True, slots=True)
class Polyline:
    """A line through points, with bends or corners."""

    points: tuple[tuple[float, float], ...]
    arrow: bool
    quiet: bool
    kind: Case | Literal["back"] = ""


@dataclass(frozen=True, slots=True)
class Word:
    """A word beside a line, by its centre."""

    u: float
    v: float
    text: str
    quiet: bool
    kind: Case | Literal["back"]


Mark: TypeAlias = Box | Frame | Knot | Polyline | Word


@dataclass(frozen=True, slots=True)
class Block:
    """A part with its layout: size, axis, drawn marks, and whether a line to it ends in an arrow."""

    length: float
    breadth: float
    axis: float
    marks: tuple[Mark, ...]
    arrow: bool = False

    def at(self, u: float, v: float) -> list[Mark]:
        """Return the marks, moved by (u, v)."""
        return [_moved(mark, u, v) for mark in self.marks]


class WorkflowLayout:
    """Lays out one workflow.

    Args:
        calls: the calls of a run; None without a run.
        direction: the direction of the flow.
    """

    def __init__(self, calls: Calls | None, direction: Direction) -> None:
        self._calls = calls
        self._down = direction == "down"

    def all_of(self, chain: Chain) -> Block:
        """Return the whole workflow, with both ends of the flow."""
        return self._row([self._end("problem"), *(self._node(node, False) for node in chain), self._end("answer")])

    # ------------------------------------------------------------------ chains
    def _chain(self, chain: Chain, quiet: bool, case: Case = "") -> Block:
        if not chain:
            # An empty chain is a line, with space for the name of its case.
            breadth = 80.0 if self._down else 36.0
            line = Polyline(((0.0, breadth / 2), (_GAP, breadth / 2)), False, quiet, case)
            return Block(_GAP, breadth, breadth / 2, (line,))
        return self._row([self._node(node, quiet) for node in chain], quiet)

    def _row(self, blocks: Sequence[Block], quiet: bool = False) -> Block:
        axis = max(block.axis for block in blocks)
        marks: list[Mark] = []
        u = 0.0
        for index, block in enumerate(blocks):
            if index:
                marks.append(Polyline(((u - _GAP, axis), (u, axis)), block.arrow, quiet))
            marks += block.at(u, axis - block.axis)
            u += block.length + _GAP
        breadth = axis + max(block.breadth - block.axis for block in blocks)
        return Block(u - _GAP, breadth, axis, tuple(marks), blocks[0].arrow)

    def _node(self, node: Node, quiet: bool) -> Block:
        match node:
            case WorkflowOperator():
                return self._operator(node)
            case WorkflowParallel(_, branches):
                blocks = [self._chain(branch, quiet) for branch in branches]
                fan = self._fan(blocks, _FORK, [("", quiet)] * len(blocks), quiet)
                return replace(fan, marks=(Knot(0.0, fan.axis, False, quiet), *fan.marks))
            case WorkflowConditional():
                return self._conditional(node, quiet)
            case WorkflowLoop():
                return self._loop(node, quiet)

    # ------------------------------------------------------------------ operators
    def _operator(self, node: WorkflowOperator) -> Block:
        calls = tuple(() if self._calls is None else self._calls.get(node.id, ()))
        name = "".join(shortened(node.name, NAME_SIZE, _NAME_ROOM, 1))
        told = shortened(node.instruction, SMALL_SIZE, _ROOM, 2)
        verdicts = verdict_marks(calls)
        head = width(name, NAME_SIZE) + (8.0 + 12.0 * len(verdicts) if verdicts else 0.0)
        wide = 22.0 + max(head, *(width(line, SMALL_SIZE) for line in told), 44.0)
        high = 34.0 + (15.0 * len(told) - 1.0 if told else 0.0)
        return self._box(wide, high, (name, *told), node, self._state(calls), calls)

    def _end(self, name: str) -> Block:
        return self._box(22.0 + width(name, SMALL_SIZE), 24.0, (name,), None, "plain", ())

    def _box(
        self,
        wide: float,
        high: float,
        lines: tuple[str, ...],
        node: WorkflowOperator | None,
        state: State,
        calls: tuple[WorkflowCall, ...],
    ) -> Block:
        length, breadth = (high, wide) if self._down else (wide, high)
        box = Box(0.0, 0.0, length, breadth, lines, node, state, calls)
        return Block(length, breadth, breadth / 2, (box,), True)

    def _state(self, calls: Sequence[WorkflowCall]) -> State:
        if self._calls is None:
            return "plain"
        if not calls:
            return "idle"
        if not calls[-1].ok:
            return "broken"
        return "used" if any(call.influential for call in calls) else "unused"

    # ------------------------------------------------------------------ structures
    def _fan(self, blocks: Sequence[Block], fork: float, ways: Sequence[tuple[Case, bool]], quiet: bool) -> Block:
        """Return blocks side by side, with lines from a fork at (0, axis) and lines to a join.

        `ways` has the case of each block's line, and whether it is quiet.
        """
        starts, v = [], 0.0
        for block in blocks:
            starts.append(v)
            v += block.breadth + _APART
        axes = [start + block.axis for start, block in zip(starts, blocks, strict=True)]
        axis, longest = (axes[0] + axes[-1]) / 2, max(block.length for block in blocks)
        # Wide fans get longer bends, except for cases, whose names must be near the diamond.
        bend = min(_BEND, v / 8)
        fork += 0.0 if ways[0][0] else bend
        end = fork + longest + _JOIN + bend
        marks: list[Mark] = []
        for start, at, block, (kind, still) in zip(starts, axes, blocks, ways, strict=True):
            u = fork + (longest - block.length) / 2
            marks.append(Polyline(((0.0, axis), (fork, at), (u, at)), block.arrow, still, kind))
            marks += block.at(u, start)
            marks.append(Polyline(((u + block.length, at), (fork + longest, at), (end, axis)), False, still))
        marks.append(Knot(end, axis, False, quiet))
        return Block(end, v - _APART, axis, tuple(marks))

    def _conditional(self, node: WorkflowConditional, quiet: bool) -> Block:
        check = self._operator(node.check)
        verdicts = {call.passed for call in (self._calls or {}).get(node.check.id, ())}
        # Before the check runs, both cases are possible.
        ways: list[tuple[Case, bool]] = [
            ("passed", self._calls is not None and True not in verdicts),
            ("failed", self._calls is not None and False not in verdicts),
        ]
        cases = [
            self._chain(chain, still, kind)
            for chain, (kind, still) in zip((node.passed, node.failed), ways, strict=True)
        ]
        fan = self._fan(cases, _CASES, ways, quiet)
        middle = check.length + 20.0 + _TIP
        axis = max(check.axis, fan.axis)
        moved = [_moved(mark, middle, axis - fan.axis) for mark in (*fan.marks, *self._names(cases, ways))]
        marks = (
            *moved,
            *check.at(0.0, axis - check.axis),
            Polyline(((check.length, axis), (middle - _TIP, axis)), False, quiet),
            Knot(middle, axis, True, quiet),
        )
        breadth = axis + max(check.breadth - check.axis, fan.breadth - fan.axis)
        return Block(middle + fan.length, breadth, axis, marks, True)

    def _names(self, cases: Sequence[Block], ways: Sequence[tuple[Case, bool]]) -> list[Mark]:
        """Return the names of the two cases, placed where their lines are apart."""
        axes = (cases[0].axis, cases[0].breadth + _APART + cases[1].axis)
        u, aside = (_CASES - 10.0, (18.0, 16.0)) if self._down else (_CASES - 32.0, (-9.0, 10.0))
        return [
            Word(u, axis + beside, {"passed": "pass"}.get(kind, "fail"), still, kind)
            for axis, beside, (kind, still) in zip(axes, aside, ways, strict=True)
        ]

    def _loop(self, node: WorkflowLoop, quiet: bool) -> Block:
        body = self._chain(node.body, quiet)
        head = _HEAD + 26.0 if self._down else _HEAD
        axis = head + _PAD + body.axis
        begin, back = _PAD, head / 2 + 4.0
        first = begin + _TURN
        last = first + body.length + _TURN
        length = last + _PAD
        marks: tuple[Mark, ...] = (
            Frame(0.0, 0.0, length, head + 2 * _PAD + body.breadth, quiet),
            Polyline(((0.0, axis), (begin, axis)), False, quiet),
            Polyline(((begin, axis), (first, axis)), body.arrow, quiet),
            *body.at(first, head + _PAD),
            Polyline(((last - _TURN, axis), (length, axis)), False, quiet),
            Polyline(((last, axis), (last, back), (begin, back), (begin, axis)), True, quiet, "back"),
            Knot(begin, axis, False, quiet),
            Knot(last, axis, False, quiet),
            Word(length / 2, back, "once" if node.count == 1 else f"{node.count} times", quiet, "back"),
        )
        return Block(length, head + 2 * _PAD + body.breadth, axis, marks)


def verdict_marks(calls: Sequence[WorkflowCall]) -> list[Literal["passed", "failed", "broken", "more"]]:
    """Return the signs of a box: one for each verdict and failure of its calls; too many are replaced by `more`."""
    signs: list[Literal["passed", "failed", "broken", "more"]] = []
    for call in calls:
        if not call.ok:
            signs.append("broken")
        elif call.passed is not None:
            signs.append("passed" if call.passed else "failed")
    return signs if len(signs) <= MOST_VERDICTS else [*signs[: MOST_VERDICTS - 1], "more"]


def _moved(mark: Mark, u: float, v: float) -> Mark:
    if isinstance(mark, Polyline):
        return replace(mark, points=tuple((a + u, b + v) for a, b in mark.points))
    return replace(mark, u=mark.u + u, v=mark.v + v)


# ---------------------------------------------------------------------- lettering
NAME_SIZE, SMALL_SIZE = 13.0, 11.0
"""The font sizes of names and of other texts."""

_BOLD = 1.12
_NARROW = frozenset("iljtfI.,:;'|!()[] ")
_BROAD = frozenset("mwMW@%&")


def width(text: str, size: float) -> float:
    """Return an upper estimate of the width of `text` in letters of `size` pixels; names are bold."""
    return size * (_BOLD if size == NAME_SIZE else 1.0) * sum(map(_advance, text))


def shortened(text: str, size: float, room: float, lines: int) -> tuple[str, ...]:
    """Return the start of `text` in at most `lines` lines of `room` pixels, with an ellipsis if it is cut.

    Runs of white space become one space, and unprintable characters, such as direction marks, become U+FFFD.
    """
    found: list[str] = []
    # Only as much is read as can fit, so that long texts are cheap.
    words = _pieces(text[: 40 * lines * max(1, int(room / size))], size, room)
    line = ""
    for word in words:
        longer = f"{line} {word}" if line else word
        if width(longer, size) <= room:
            line = longer
            continue
        found.append(line)
        line = word
        if len(found) == lines:
            last = found.pop()
            while last and width(f"{last}\N{HORIZONTAL ELLIPSIS}", size) > room:
                last = last[:-1]
            return (*found, f"{last.rstrip()}\N{HORIZONTAL ELLIPSIS}")
    return (*found, line) if line else tuple(found)


def _advance(mark: str) -> float:
    if unicodedata.east_asian_width(mark) in "WF":
        return 1.05
    if mark in _NARROW:
        return 0.4
    if mark in _BROAD:
        return 0.95
    return 0.72 if mark.isupper() else 0.62 if mark.isascii() else 0.8


def _pieces(text: str, size: float, room: float) -> Iterator[str]:
    """Yield the words of `text`, with words that are wider than a line split."""
    for word in text.split():
        piece = ""
        for mark in (mark if mark.isprintable() else "\N{REPLACEMENT CHARACTER}" for mark in word):
            if piece and width(piece + mark, size) > room:
                yield piece
                piece = ""
            piece += mark
        yield piece
