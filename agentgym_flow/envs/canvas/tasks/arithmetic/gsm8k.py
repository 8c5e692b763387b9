"""Tasks of GSM8K: their mistakes are derived from the calculations of the worked solution."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from agentgym_flow.core import Stream
from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.tasks.arithmetic.calculation import (
    Calculation,
    CalculationChain,
    Expression,
    Name,
    Number,
    Operation,
    chain_of,
    parts,
    with_leaves,
)
from agentgym_flow.envs.canvas.tasks.arithmetic.make import misprint, omission, omitted, owners_of, slip, slipped
from agentgym_flow.envs.canvas.tasks.arithmetic.task import ArithmeticTask, ChainMistake
from agentgym_flow.envs.canvas.tasks.task import Fault, demanded, unusual

MOST_SLIPS = 3
"""The maximum number of steps with a slip; the hardest steps have one."""

MOST_TRAPS = 2
"""The maximum number of steps that are traps; the last ones are chosen."""

LONG = 4
"""The depth from which on a step is easily left out."""

_SHARES = (
    "percent", "%", "half", "third", "quarter", "fourth", "fifth", "fraction", "discount", "interest", "remaining",
    "sales tax",
)  # fmt: skip
_QUESTION = re.compile(r"[^.!?]*\?")
_BIG = 100

_Faults = list[tuple[Fault, ChainMistake]]


def from_gsm8k(problem: Problem) -> ArithmeticTask:
    """Return the task of a problem with a worked solution in the form of GSM8K.

    Percentages and fractions are traps; long solutions allow omissions; large numbers and divisions make slips likely;
    results that only the last step combines are parts. A problem with none of these is easy. In some problems, a
    checker takes a number of the text for a misprint.

    Raises:
        BadChain: the solution has no calculations that lead to the answer.
    """
    chain = chain_of(problem)
    needed = chain.needed()
    places = _parts(chain)
    mixed = _mixed_up(chain, places)
    if mixed is None:
        places = ()
    owners = owners_of(chain, places)
    faults = _traps(problem, chain, needed, owners)
    if chain.depth >= LONG:
        faults += _omissions(chain, needed, owners)
    if mixed is not None:
        note = "Numbers that belong to different parts of the problem are mixed up."
        faults.append((Fault("part", Mistake.PART, (), note), mixed))
    faults += _slips(chain, needed, owners)
    wanted, chance = demanded("arithmetic", "gsm8k", problem.text), Stream("canvas", "gsm8k", "unusual", problem.text)
    odd = misprint(chain, problem.text, chance) if wanted else None
    if wanted and odd:  # a checker demands that a number which looks like a misprint is replaced
        faults.append((unusual(wanted, "arithmetic", "test", chance, figure=odd[0]), odd[1]))
    asked = [problem.text, *_QUESTION.findall(problem.text)][-1].strip()  # the question at the end
    count = len(needed)
    plan = tuple(f"Work out step {number} of {count} towards this: {asked}" for number in range(1, count + 1))
    pieces = tuple((place, f"Work out part {n} of {len(places)} of this: {asked}") for n, place in enumerate(places, 1))
    wordy = Stream("canvas", "gsm8k", "wordy", problem.text).below(3) == 0
    money = "$" in problem.text
    return ArithmeticTask(problem, _kind(faults), chain, tuple(faults), plan, pieces, wordy=wordy, money=money)


def _kind(faults: _Faults) -> str:
    """Return what makes a task hard, one of `make.KINDS`."""
    found = {fault.kind for fault, _ in faults if fault.likely}
    hard = found - {Mistake.SLIP}
    if len(hard) > 1:
        return "mixed"
    names = {Mistake.TRAP: "trap", Mistake.OMISSION: "steps", Mistake.PART: "parts"}
    return next((names[kind] for kind in hard), "calculation" if found else "easy")


def _parts(chain: CalculationChain) -> tuple[int, ...]:
    """Return the independent steps, at least two, that the last step combines; empty if there are none.

    None of them has the result of the whole, so a part alone is never right.
    """
    joined = chain.steps[-1].uses
    if len(joined) < 2 or any(chain.steps[place].result == chain.answer for place in joined):
        return ()
    seen: set[int] = set()
    for place in joined:
        own = set(CalculationChain(chain.steps[: place + 1]).needed())
        if not own.isdisjoint(seen):
            return ()
        seen |= own
    return joined


def _mixed_up(chain: CalculationChain, places: tuple[int, ...]) -> ChainMistake | None:
    """Return the mistake that the last step confuses two parts or drops the last; None if that has no effect."""
    if not places:
        return None
    last = len(chain.steps) - 1
    tree = chain.steps[last].tree
    names = [f"step{place}" for place in places]
    for other in (_renamed(tree, names[-1], names[0]), _renamed(tree, names[0], names[-1]), Name(names[0])):
        if _differs(chain, last, other):
            return ChainMistake({last: other})
    return None


def _renamed(tree: Expression, old: str, new: str) -> Expression:
    return with_leaves(tree, lambda leaf: Name(new) if leaf == Name(old) else leaf)


def _differs(chain: CalculationChain, place: int, other: Expression) -> bool:
    """Return whether another tree for a step gives another answer, up to the sign, that is not 0."""
    value = chain.compute({place: other})
    return isinstance(value, Fraction) and abs(value) != abs(chain.answer) and value != 0


def _traps(problem: Problem, chain: CalculationChain, needed: tuple[int, ...], owners: Mapping[int, int]) -> _Faults:
    lowered = problem.text.lower()
    words = tuple(word for word in _SHARES if word in lowered)
    found: _Faults = []
    for place in needed:
        if not _is_share(chain.steps[place]):
            continue
        other = next((tree for tree in _misread(chain, place) if _differs(chain, place, tree)), None)
        if other is not None:
            note = f"What the share in step {needed.index(place) + 1} is a share of should be read again."
            fault = Fault(f"trap-{place}", Mistake.TRAP, words, note, owners.get(place))
            found.append((fault, ChainMistake({place: other})))
    return found[-MOST_TRAPS:]


def _is_share(step: Calculation) -> bool:
    """Return whether a step computes a percentage or a fraction of something."""
    for part in parts(step.tree):
        if isinstance(part, Operation) and part.name == "%":
            return True
        if isinstance(part, Number) and 0 < part.value < 1:
            return True
        if isinstance(part, Operation) and part.name == "/" and all(isinstance(side, Number) for side in part.operands):
            top, bottom = (side.value for side in part.operands if isinstance(side, Number))
            if part is not step.tree and top < bottom:
                return True
    return any(number == 100 for number in step.given) and "/" in step.written


def _misread(chain: CalculationChain, place: int) -> Iterator[Expression]:
    """Yield wrong calculations for a share: the whole minus the share, plus the share, and the whole alone."""
    step = chain.steps[place]
    leaves = [part for part in parts(step.tree) if not isinstance(part, Operation)]
    values = {leaf: _leaf_value(chain, leaf) for leaf in leaves}
    for whole in sorted((leaf for leaf in values if values[leaf] > 1), key=lambda leaf: values[leaf] == 100):
        yield Operation("-", (whole, step.tree))
        yield Operation("+", (whole, step.tree))
        yield whole
    yield Operation("*", (step.tree, Number(Fraction(10))))


def _leaf_value(chain: CalculationChain, leaf: Expression) -> Fraction:
    if isinstance(leaf, Number):
        return leaf.value
    if isinstance(leaf, Name) and leaf.name.startswith("step"):
        return chain.steps[int(leaf.name.removeprefix("step"))].result
    return Fraction(0)


def _omissions(chain: CalculationChain, needed: tuple[int, ...], owners: Mapping[int, int]) -> _Faults:
    """Return up to two steps, neither the first nor the last, whose omission changes the answer."""
    found: _Faults = []
    for place in needed[-2:0:-1]:
        change = omitted(chain, place)
        if chain.steps[place].uses and _differs(chain, place, change.trees[place]):
            note = f"Something is left out on the way: step {needed.index(place) + 1} of {len(needed)}."
            found.append((omission(place, note, owners.get(place)), change))
    return found[:2][::-1]


def _slips(chain: CalculationChain, needed: tuple[int, ...], owners: Mapping[int, int]) -> _Faults:
    """Return a slip for each of the hardest steps, in order; at least one, and most of them unlikely."""
    hardest = sorted(needed, key=lambda place: (-_hardness(chain.steps[place]), place))[:MOST_SLIPS]
    found: _Faults = []
    for place in sorted(hardest):
        what = f"step {needed.index(place) + 1} of {len(needed)}"
        found.append((slip(place, what, owners.get(place), _hardness(chain.steps[place]) > 1), slipped(chain, place)))
    return found


def _hardness(step: Calculation) -> int:
    """Return how error-prone a calculation is by hand; a slip is likely above 1."""
    figures = (*step.given, step.result)
    operations = [part.name for part in parts(step.tree) if isinstance(part, Operation)]
    big = sum(abs(value) >= _BIG and value % 100 != 0 for value in figures)
    odd = sum(value.denominator != 1 for value in figures)
    return big + odd + operations.count("/") + (len(operations) > 2)
