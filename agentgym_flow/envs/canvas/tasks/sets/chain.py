"""The calculations in GSM8K's worked solutions: such as `<<16-3-4=9>>`, as steps that build on each other.

A number in a step that an earlier step computed refers to it (`step0` is the result of the first), so that a simulator
can change an operand or drop a step and compute what follows. Nothing is handed to an interpreter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.tasks.sets.calculation import (
    BadCalculation,
    Expression,
    Name,
    Number,
    Operation,
    evaluate,
    parse,
    parts,
)

_DECIMAL = re.compile(r"-?(?:\d{1,30}(?:\.\d{1,30}|/\d{1,30})?|\.\d{1,30})")
_ANNOTATION = re.compile(r"<<([^<>]*)>>")


class BadChain(ValueError):
    """A solution has no calculations that lead to its answer; the message says why."""


@dataclass(frozen=True, slots=True)
class Calculation:
    """One calculation.

    Attributes:
        tree: what is computed; a `Name` `step0`, `step1`, ... is the result of that step, everything else is given.
        result: its value as the solution has it, rounded perhaps.
        written: the calculation as the solution has it, without its value.
    """

    tree: Expression
    result: Fraction
    written: str

    @property
    def uses(self) -> tuple[int, ...]:
        """The earlier steps whose results are used, each once, in the order of their first use."""
        names = (part.name for part in parts(self.tree) if isinstance(part, Name))
        return tuple(dict.fromkeys(int(name.removeprefix("step")) for name in names if name.startswith("step")))

    @property
    def given(self) -> tuple[Fraction, ...]:
        """The numbers that come from no earlier step, from left to right."""
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
        """How many steps the longest line of steps has, in which each uses the one before, up to the answer."""
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
        """Return the answer when some steps have other trees, or other results; None where there is none.

        Unchanged steps whose operands are unchanged keep their results, rounded as the solution rounds them.
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

    Raises `BadChain` when a calculation cannot be read or its value is not what it gives, or none gives the answer.
    """
    gold = _value(problem.answers[0]) if problem.answers else None
    chain = read_chain(problem.solution)
    last = max((place for place, step in enumerate(chain.steps) if step.result == gold), default=None)
    if last is None:
        raise BadChain(f"no calculation gives the answer {', '.join(problem.answers)}.")
    return CalculationChain(chain.steps[: last + 1])


def read_chain(solution: str) -> CalculationChain:
    """Return all calculations of a solution. Raises `BadChain` when there are none, and as `chain_of` does."""
    steps: list[Calculation] = []
    for annotation in _ANNOTATION.findall(solution):
        steps.append(_step(annotation, steps))
    if not steps:
        raise BadChain("there are no calculations.")
    return CalculationChain(tuple(steps))


def usable(problems: Iterable[Problem]) -> tuple[list[tuple[Problem, CalculationChain]], dict[str, str]]:
    """Return the problems with their chains, and for each id of the others why it has none."""
    found: list[tuple[Problem, CalculationChain]] = []
    why: dict[str, str] = {}
    for problem in problems:
        try:
            found.append((problem, chain_of(problem)))
        except BadChain as error:
            why[problem.id] = str(error)
    return found, why


def _step(annotation: str, before: list[Calculation]) -> Calculation:
    written, _, value = annotation.rpartition("=")
    result = _value(value)
    if result is None:
        raise BadChain(f"{annotation!r:.60} does not end with a number.")
    try:
        tree = parse(written.replace("//", "/").replace(",", ""))
        exact = evaluate(tree)
    except BadCalculation as error:
        raise BadChain(f"{annotation!r:.60} is no calculation: {error}.") from error
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
    """Return the unit of the last digit of a decimal number: a value may be rounded or cut off to it."""
    _, point, decimals = value.strip().partition(".")
    return Fraction(1, 10 ** len(decimals)) if point else Fraction(1)


def _referring(tree: Expression, before: list[Calculation]) -> Expression:
    """Return `tree` with each number that an earlier step computed, the latest one, as that step's name."""
    if isinstance(tree, Operation):
        return Operation(tree.name, tuple(_referring(operand, before) for operand in tree.operands))
    if isinstance(tree, Number):
        place = max((place for place, step in enumerate(before) if step.result == tree.value), default=None)
        return tree if place is None else Name(f"step{place}")
    return tree
