"""Tasks whose right answer is the result of a chain of calculations, and whose mistakes are changes to the chain.

A slip adds an amount to the result of a step; every other mistake replaces the calculation of a step. The following
steps are computed again, so a wrong answer is really what the mistakes lead to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.scoring.extract import NUMBER, same_number
from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.tasks.arithmetic.calculation import CalculationChain, Expression, Number, Operation
from agentgym_flow.envs.canvas.tasks.task import VARIANTS, Fault, SimulatedTask
from agentgym_flow.envs.content import read_content

VARYING = (Mistake.SLIP, Mistake.WOBBLE)
"""The kinds of mistakes with a different answer each time."""

TEXTS = read_content("agentgym_flow.envs.canvas.tasks.arithmetic", "wordings.json", dict[str, tuple[str, ...]])
"""The wordings of explanations (`telling`, `rambling`), and the default `things` of stories."""

_NEAR = Fraction(1, 50)  # closer numbers could be rounded to the right one
_LARGEST = 10**15  # larger numbers are not plausible answers


@dataclass(frozen=True, slots=True)
class ChainMistake:
    """The change that a mistake makes to the chain: other trees for some steps, or a slip in the result of one step.

    Attributes:
        trees: number of a changed step -> its new tree.
        slip: the step whose result is off by one of `amounts`; None if there is none.
        amounts: `VARIANTS` different amounts.
    """

    trees: Mapping[int, Expression] = field(default_factory=dict)
    slip: int | None = None
    amounts: tuple[Fraction, ...] = ()


class ArithmeticTask(SimulatedTask):
    """A word problem whose answer is a number.

    Args:
        problem: a problem of kind `math` with one answer, the result of the chain.
        kind: what makes it hard.
        chain: the calculations that lead to the answer.
        faults: the mistakes with their changes; at least one.
        plan: the steps in words.
        pieces: for each sub-problem the step that answers it, and its question.
        wordy: whether solutions in words bury the answer.
        money: whether the numbers are amounts of money, written with two decimals unless they are integers.
    """

    family = "arithmetic"

    def __init__(
        self,
        problem: Problem,
        kind: str,
        chain: CalculationChain,
        faults: tuple[tuple[Fault, ChainMistake], ...],
        plan: tuple[str, ...],
        pieces: tuple[tuple[int, str], ...] = (),
        *,
        wordy: bool = False,
        money: bool = False,
    ) -> None:
        self.problem = problem
        self.kind = kind
        self.chain = chain
        self.faults = tuple(fault for fault, _ in faults)
        self.plan = plan
        self.pieces = tuple(text for _, text in pieces)
        self.wordy = wordy
        self._places = tuple(place for place, _ in pieces)
        self._changes = {fault.tag: change for fault, change in faults}
        self._money = money
        self._whole = not money and all(step.result.denominator == 1 for step in chain.steps)
        self._known: dict[tuple[int, int], tuple[str, ...]] = {}  # (step, mistakes) -> an answer per variant

    def __repr__(self) -> str:
        return f"ArithmeticTask({self.problem.key}, {self.kind})"

    def answer(self, made: Collection[str], variant: int) -> str:
        """Return the short answer; see `SimulatedTask.answer`. Raises `ValueError` for the tag of no fault.

        With mistakes that vary, the variants 0 to `VARIANTS` - 1 give different answers; others are taken modulo it.
        """
        if not made:
            return self.problem.answers[0]
        return self._answer(len(self.chain.steps) - 1, self._mask(made), self.chain.answer, variant)

    def piece_answer(self, piece: int, made: Collection[str], variant: int) -> str:
        """Return the short answer to a sub-problem, or the result of a step; see `SimulatedTask.piece_answer`.

        Only mistakes in this piece change it. Mistakes that concern the whole, such as confusing parts, happen when the
        parts are combined.
        """
        if not self.pieces:
            place = piece % max(len(self.chain.steps) - 1, 1)
            return self._answer(place, self._mask(made), self.chain.answer, variant)
        own = [fault.tag for fault in self.faults if fault.piece == piece and fault.tag in made]
        right = self.chain.steps[self._places[piece]].result
        return (
            self._answer(self._places[piece], self._mask(own), right, variant) if own else written(right, self._money)
        )

    def telling(self, answer: str, variant: int) -> str:
        """Return a short text that ends with `Answer: ...`. It scores the same as `answer`."""
        return TEXTS["telling"][variant % len(TEXTS["telling"])].format(answer) + f"\nAnswer: {answer}"

    def rambling(self, answer: str, variant: int) -> str:
        """Return a text that contains `answer` but ends with another number, which the scorer reads: always wrong."""
        taken = (answer, *self.problem.answers)
        numbers = [str(number) for number in range(2, 6) if not any(_same(str(number), other) for other in taken)]
        text = TEXTS["rambling"][variant % len(TEXTS["rambling"])]
        return text.format(answer=answer, number=numbers[variant % len(numbers)])

    @property
    def scorer(self) -> str:
        """`"number"`: the simulator answers with plain numbers, also for GSM8K."""
        return NUMBER

    def score(self, text: str, code: str) -> float:
        """Return 1.0 if the answer in `text` is right, else 0.0. `code` has no effect."""
        return float(same_number(text, self.problem.answers[0]))

    def _mask(self, made: Collection[str]) -> int:
        mask = sum(1 << place for place, fault in enumerate(self.faults) if fault.tag in made)
        if mask.bit_count() != len(set(made)):
            raise ValueError(f"{self.problem.key} has no fault {', '.join(sorted(set(made) - self._changes.keys()))}.")
        return mask

    def _answer(self, place: int, mask: int, right: Fraction, variant: int) -> str:
        """Return the answer at a step with mistakes; never the `right` result of the step or the answer to the problem.

        Mistakes can cancel each other, and later rounding can make different slips equal. The answer is then increased,
        so that a wrong solution has a wrong answer, and each variant a different one.
        """
        key = (place, mask)
        answers = self._known.get(key, ())
        varies = any(mask >> number & 1 and fault.kind in VARYING for number, fault in enumerate(self.faults))
        variant %= VARIANTS if varies else 1
        for number in range(len(answers), variant + 1):
            value = plausible(self._compute(place, mask, number), right)
            if value.denominator != 1:
                value = Fraction(round(value)) if self._whole else round(value, 2)
            text = written(value, self._money)
            while text in answers or abs(value - right) < _NEAR or abs(value - self.chain.answer) < _NEAR:
                value += 1
                text = written(value, self._money)
            answers = (*answers, text)
            self._known[key] = answers  # threads may compute this at the same time, with the same outcome
        return answers[variant]

    def _compute(self, place: int, mask: int, variant: int) -> Fraction | None:
        trees: dict[int, Expression] = {}
        slips: list[tuple[int, Fraction]] = []
        for number, fault in enumerate(self.faults):
            if mask >> number & 1:
                change = self._changes[fault.tag]
                trees.update(change.trees)
                if change.slip is not None:
                    slips.append((change.slip, change.amounts[variant]))
        for step, amount in slips:
            trees[step] = Operation("+", (trees.get(step, self.chain.steps[step].tree), Number(amount)))
        whole = place == len(self.chain.steps) - 1
        return (self.chain if whole else CalculationChain(self.chain.steps[: place + 1])).compute(trees)


def written(value: Fraction, money: bool) -> str:
    """Return a number as text: `12`, an amount of money as `4.50`, others with at most two decimals."""
    if value.denominator != 1:
        value = round(value, 2)
    if value.denominator == 1:
        return str(value.numerator)
    text = f"{float(value):.2f}"
    return text if money else text.rstrip("0")


def plausible(value: Fraction | None, near: Fraction) -> Fraction:
    """Return `value` made plausible: not negative if `near` is not, and neither missing nor too large."""
    if value is None or abs(value) > _LARGEST:
        return near + 3
    return abs(value) if near >= 0 else value


def slip_amounts(result: Fraction) -> tuple[Fraction, ...]:
    """Return `VARIANTS` typical errors of calculations by hand, in an order that depends on the result.

    They are a wrong carry, a neighbouring number, and two swapped digits (a multiple of 9).
    """
    size = abs(result)
    if result.denominator != 1 and size < 10:
        amounts = [size * Fraction(tenths, 10) for tenths in (1, -1, 2, -2, 3, -3, 5)]
    elif size < 10:
        amounts = [Fraction(amount) for amount in (1, -1, 2, -2, 3, 4, 5, 6, 7)]
    elif size < 200:
        amounts = [Fraction(amount) for amount in (10, -1, 1, -2, 9, 2, -9, 20, 11)]
    else:
        amounts = [Fraction(amount) for amount in (10, -100, 100, -10, 90, -9, 20, 1, 200)]
    amounts = [amount for amount in amounts if size + amount > 0][:VARIANTS]
    start = int(size) % VARIANTS
    return tuple(amounts[start:] + amounts[:start])


def _same(left: str, right: str) -> bool:
    try:
        return Fraction(left) == Fraction(right)
    except (ValueError, ZeroDivisionError):
        return left == right
