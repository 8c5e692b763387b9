"""How likely which operator makes, finds and mends which kind of mistake: all numbers of the simulator in one place.

They are set so that the design decides (specification, section 6): one operator alone solves about half of the tasks,
no fixed workflow more than four in five, and one that is fitted to the task and to what its checks say nearly all.
`tests/envs/canvas/test_canvas_calibration.py` measures it.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentgym_flow.envs.canvas.simulated.task import Kind

_ALL = ("Custom", "AnswerGenerate", "Programmer", "CustomCodeGenerate")


def _risk(custom: float, answer: float, programmer: float, generate: float) -> dict[str, float]:
    return dict(zip(_ALL, (custom, answer, programmer, generate), strict=True))


RISK: Mapping[Kind, Mapping[str, float]] = {
    Kind.SLIP: _risk(0.65, 0.55, 0.00, 0.00),
    Kind.NUANCE: _risk(0.06, 0.90, 0.90, 0.85),
    Kind.TRAP: _risk(0.85, 0.85, 0.85, 0.85),
    Kind.OMISSION: _risk(0.80, 0.80, 0.80, 0.80),
    Kind.PART: _risk(0.90, 0.90, 0.90, 0.90),
    Kind.WOBBLE: _risk(0.53, 0.53, 0.53, 0.53),
    Kind.EDGE: _risk(0.85, 0.90, 0.65, 0.65),
    Kind.CORNER: _risk(0.85, 0.90, 0.85, 0.85),
    Kind.HOP: _risk(0.70, 0.10, 0.95, 0.95),
    Kind.DISTRACTION: _risk(0.75, 0.75, 0.95, 0.95),
}
"""Kind -> solver -> the probability that it makes such a mistake."""

UNLIKELY = 0.07
"""Of a mistake that is seldom made (`Fault.likely` is False) the probability is so many times smaller."""

PLANNED: Mapping[Kind, float] = {Kind.OMISSION: 0.04, Kind.HOP: 0.60}
"""With a plan the probability is so many times smaller; the same for kinds that are not here."""

WARNED: Mapping[Kind, float] = {
    Kind.TRAP: 0.10,
    Kind.NUANCE: 0.80,
    Kind.CORNER: 0.35,
    Kind.DISTRACTION: 0.40,
    Kind.OMISSION: 0.60,
}
"""The same for an instruction that names the mistake's words."""

ATTENTION = 240
"""An instruction with more characters warns against nothing."""

SENSITIVITY: Mapping[str, Mapping[Kind, float]] = {
    "Verify": {
        Kind.SLIP: 0.72,
        Kind.NUANCE: 0.10,
        Kind.TRAP: 0.10,
        Kind.OMISSION: 0.30,
        Kind.PART: 0.10,
        Kind.WOBBLE: 0.08,
        Kind.EDGE: 0.30,
        Kind.CORNER: 0.08,
        Kind.HOP: 0.30,
        Kind.DISTRACTION: 0.94,
    },
    "Review": {
        Kind.SLIP: 0.10,
        Kind.NUANCE: 0.25,
        Kind.TRAP: 0.94,
        Kind.OMISSION: 0.30,
        Kind.PART: 0.10,
        Kind.WOBBLE: 0.08,
        Kind.EDGE: 0.10,
        Kind.CORNER: 0.94,
        Kind.HOP: 0.30,
        Kind.DISTRACTION: 0.10,
    },
}
"""Checker -> kind -> the probability that it finds such a mistake. Test runs the public tests and draws nothing."""

LOST_SEEN = 0.45
"""The probability that a checker sees that a solution has nothing to do with the task."""

FALSE_ALARM = 0.05
"""The probability that a checker finds fault with what it finds no mistake in."""

MENDED: Mapping[Kind, float] = {
    Kind.SLIP: 0.95,
    Kind.NUANCE: 0.60,
    Kind.TRAP: 0.95,
    Kind.OMISSION: 0.35,
    Kind.PART: 0.10,
    Kind.WOBBLE: 0.30,
    Kind.EDGE: 0.95,
    Kind.CORNER: 0.95,
    Kind.HOP: 0.35,
    Kind.DISTRACTION: 0.95,
}
"""The probability that Revise takes out a mistake that the notes name."""

TOLD = 0.50
"""So many times that, where it is named by the instruction of Revise and not by notes."""

SPOILT_UNPROMPTED = 0.08
"""The probability that Revise spoils a solution when no notes say what to change."""

SPOILT_MISLED = 0.25
"""The probability that it does when the notes find fault with what is right."""

TELLING = 0.03
"""The probability that Custom explains at length where others just answer."""

RAMBLING = 0.50
"""The probability that Custom buries its answer in words, in a task that tempts to it."""

PUT_TOGETHER = 0.50
"""The probability that Aggregate makes a whole of pieces that are none."""

VOTES = 5
"""So often MdEnsemble votes."""
