"""The calculations in GSM8K's worked solutions, such as `<<16-3-4=9>>`, as steps that build on each other.

A number that an earlier step computed becomes a reference to this step (`step0` is the result of the first), so a
simulator can change an operand or drop a step and compute the following steps. No text reaches a Python interpreter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.tasks.sets.calculation import (
    BadCalculation,
    Expression,
    Name,
    Number,
    evaluate,
    parse,
    parts,
    with_leaves,
)

_DECIMAL = re.compile(r"-?(?:\d{1,30}(?:\.\d{1,30}|/\d{1,30})?|\.\d{1,30})")
_ANNOTATION = re.compile(r"<<([^<>]*)>>")


class BadChain(ValueError):
    """A solution has no calculations that lead to its answer; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Calculation:
    """One calculation.

    Attributes:
        tree: the calculation; the names `step0`, `step1`, ... are the results of earlier steps.
        result: its value in the solution, possibly rounded.
        written: its text in the solution, without the value.
    """

    tree: Expression
    result: Fraction
    written: str

    @property
    def uses(self) -> tuple[int, ...]:
        """The earlier steps whose results it uses, in the order of their first use."""
        names = (part.name for part in parts(self.tree) if isinstance(part, Name))
        return tuple(dict.fromkeys(int(name.removeprefix("step")) for name in names if name.startswith("step")))

    @property
    def given(self) -> tuple[Fraction, ...]:
        """The numbers that are not results of earlier steps, from left to right."""
        return tuple(part.value for part in parts(self.tree) if isinstance(part, Number))


@dataclass(frozen=True, slots=True)
class CalculationChain:
    """The calculations of a solution, at least one; the result of the last is the answer."""

    steps: tuple[Calculation, ...]

    @property
    def answer(self) -> Fraction:
        """The result of the last step."""
        return self.steps[-1].result

    @property
    def depth(self) -> int:
        """The length of the longest chain of steps up to the answer in which each uses the previous one."""
        depths: list[int] = []
        for step in self.steps:
            depths.append(1 + max((depths[used] for used in step.uses), default=0))
        return depths[-1]

    def needed(self) -> tuple[int, ...]:
        """Return the steps that the answer depends on, in order, the last one included."""
        wanted = {len(self.steps) - 1}
        for place in range(len(self.steps) - 1, -1, -1):
            if place in wanted:
                wanted.update(self.steps[place].uses)
        return tuple(sorted(wanted))

    def compute(self, changed: Mapping[int, Fraction | Expression] | None = None) -> Fraction | None:
        """Return the answer with other trees or results for some steps; None if it cannot be computed.

        Steps whose tree and operands are unchanged keep the results of the solution, including its rounding.
        """
        values: dict[str, Fraction] = {}
        moved: set[int] = set()
        for place, step in enumerate(self.steps):
            other = (changed or {}).get(place)
            if isinstance(other, Fraction):
                value = other
            elif other is None and moved.isdisjoint(step.uses):
                value = step.result
            else:
                try:
                    value = evaluate(step.tree if other is None else other, values)
                except BadCalculation:
                    return None
            values[f"step{place}"] = value
            if value != step.result:
                moved.add(place)
        return values[f"step{len(self.steps) - 1}"]


def chain_of(problem: Problem) -> CalculationChain:
    """Return the calculations of a problem of GSM8K, up to the last one that gives its answer.

    Raises `BadChain` if a calculation cannot be parsed, its value is wrong, or none gives the answer.
    """
    gold = _value(problem.answers[0]) if problem.answers else None
    chain = read_chain(problem.solution)
    last = max((place for place, step in enumerate(chain.steps) if step.result == gold), default=None)
    if last is None:
        raise BadChain(f"no calculation gives the answer {', '.join(problem.answers)}.")
    return CalculationChain(chain.steps[: last + 1])


def read_chain(solution: str) -> CalculationChain:
    """Return all calculations of a solution. Raises `BadChain` if one is invalid or there are none."""
    steps: list[Calculation] = []
    for annotation in _ANNOTATION.findall(solution):
        steps.append(_step(annotation, steps))
    if not steps:
        raise BadChain("there are no calculations.")
    return CalculationChain(tuple(steps))


def _step(annotation: str, before: list[Calculation]) -> Calculation:
    written, _, value = annotation.rpartition("=")
    result = _value(value)
    if result is None:
        raise BadChain(f"{annotation!r:.60} does not end with a number.")
    try:
        tree = parse(written.replace("//", "/").replace(",", ""))
        exact = evaluate(tree)
    except BadCalculation as error:
        raise BadChain(f"{annotation!r:.60} is not a calculation: {error}.") from error
    if abs(exact - result) >= _last_place(value):
        raise BadChain(f"{annotation!r:.60} is not right.")
    return Calculation(_referring(tree, before), result, written.strip())


def _value(text: str) -> Fraction | None:
    text = text.strip().replace(",", "").lstrip("$")
    try:
        return Fraction(text) if _DECIMAL.fullmatch(text) else None
    except ZeroDivisionError:
        return None


def _last_place(value: str) -> Fraction:
    """Return the unit of the last digit of a decimal number, to which a value may be rounded or truncated."""
    _, point, decimals = value.strip().partition(".")
    return Fraction(1, 10 ** len(decimals)) if point else Fraction(1)


def _referring(tree: Expression, before: list[Calculation]) -> Expression:
    """Return `tree` with each number that earlier steps computed replaced by the name of the latest of them."""
    places = {step.result: place for place, step in enumerate(before)}

    def name(leaf: Number | Name) -> Expression:
        if isinstance(leaf, Number) and leaf.value in places:
            return Name(f"step{places[leaf.value]}")
        return leaf

    return with_leaves(tree, name)
