"""A task whose right answer is the end of a chain of calculations, and whose mistakes are changes to the chain.

A slip adds an amount to the result of a step; every other mistake puts another calculation in the place of a step. What
follows is computed, so that a wrong answer is the one to which the mistakes really lead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.scoring.number import NUMBER, same_number
from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.tasks.sets.calculation import Expression, Number, Operation
from agentgym_flow.envs.canvas.tasks.sets.chain import CalculationChain
from agentgym_flow.envs.canvas.tasks.simulated import VARIANTS, Fault, SimulatedTask

VARYING = (Mistake.SLIP, Mistake.WOBBLE)
"""The kinds of mistakes that lead to another answer each time."""

_NEAR = Fraction(1, 50)  # what is nearer to the right number could be taken for it, rounded
_LARGEST = 10**15  # nobody writes a larger number down
_TELLINGS = (
    "Reading the problem once more, each quantity has its place.\nTaking them in order leads to {}.",
    "First I note what is given, then what is asked.\nWorking through it in that order, I get {}.",
    "Every sentence gives one piece of information.\nPut together, they come to {}.",
    "I go through the story from its beginning to its end.\nAt the end there are {}.",
    "The way is clear once it is written down line by line.\nThe last line reads {}.",
)
_RAMBLINGS = (
    "This looked easier than it is. Somewhere along the way I had {answer}, which seems fair to me, although I had to"
    " go through the whole story {number} times before I believed it.",
    "Let me think aloud. If I follow the story, I come to {answer}. I could have taken another way, and I tried it too;"
    " there are at least {number} ways to look at it.",
    "One thing after the other: what is given, what happens, what is asked. That makes {answer}, if I have understood"
    " it well. I checked this by hand, {number} times over.",
)


@dataclass(frozen=True, slots=True)
class ChainMistake:
    """What a mistake does to the chain: trees that take the place of steps, or a slip in the result of one step.

    Attributes:
        trees: for each step that is changed, its other tree.
        slip: the step whose result is off, by one of `amounts`; None for none.
        amounts: by how much, `VARIANTS` of them, all different.
    """

    trees: Mapping[int, Expression] = field(default_factory=dict)
    slip: int | None = None
    amounts: tuple[Fraction, ...] = ()


class ArithmeticTask(SimulatedTask):
    """A word problem with one number for an answer.

    Args:
        problem: of kind `math`, with one answer, the last of the chain.
        kind: what makes it hard.
        chain: the calculations that lead to the answer.
        faults: the mistakes, each with what it does; at least one.
        plan: what the steps do, in words.
        pieces: for each sub-problem the step that answers it, and what it asks.
        wordy: whether solutions in words bury the answer.
        money: whether the numbers are sums of money, which have two decimals where they are not whole.
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
        self._known: dict[tuple[int, int], tuple[str, ...]] = {}  # by the step and the mistakes: an answer per variant

    def __repr__(self) -> str:
        return f"ArithmeticTask({self.problem.key}, {self.kind})"

    def answer(self, made: Collection[str], variant: int) -> str:
        """Return the short answer; see `SimulatedTask.answer`. Raises `ValueError` for a tag that no fault has.

        With mistakes that vary, the variants 0 to `VARIANTS` - 1 give different answers, and a larger one counts round.
        """
        if not made:
            return self.problem.answers[0]
        return self._answer(len(self.chain.steps) - 1, self._mask(made), self.chain.answer, variant)

    def piece_answer(self, piece: int, made: Collection[str], variant: int) -> str:
        """Return the short answer to a sub-problem, or to a step of the way; see `SimulatedTask.piece_answer`.

        Of the mistakes, those with this piece spoil it. Those that concern the whole, such as parts that are mixed up,
        are made when the parts are put together, and do not change it.
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
        """Return a short text that ends with `Answer: ...`, in one of a few wordings. Scored as `answer` is."""
        return _TELLINGS[variant % len(_TELLINGS)].format(answer) + f"\nAnswer: {answer}"

    def rambling(self, answer: str, variant: int) -> str:
        """Return a text that has `answer` in it but ends with another number, which is what is read: always wrong."""
        taken = (answer, *self.problem.answers)
        numbers = [str(number) for number in range(2, 6) if not any(_same(str(number), other) for other in taken)]
        text = _RAMBLINGS[variant % len(_RAMBLINGS)]
        return text.format(answer=answer, number=numbers[variant % len(numbers)])

    @property
    def scorer(self) -> str:
        """`"number"`: what the simulator answers is a plain number, that of a problem of GSM8K, too."""
        return NUMBER

    def score(self, text: str, code: str) -> float:
        """Return 1.0 when the answer in `text` is the right one, else 0.0. `code` does not matter."""
        return float(same_number(text, self.problem.answers[0]))

    def _mask(self, made: Collection[str]) -> int:
        mask = sum(1 << place for place, fault in enumerate(self.faults) if fault.tag in made)
        if mask.bit_count() != len(set(made)):
            raise ValueError(f"{self.problem.key} has no fault {', '.join(sorted(set(made) - self._changes.keys()))}.")
        return mask

    def _answer(self, place: int, mask: int, right: Fraction, variant: int) -> str:
        """Return the answer at a step with mistakes, neither what is `right` there nor the answer to the problem.

        Mistakes can cancel each other out, and different slips can come to the same when what follows rounds them:
        then the answer is moved on, so that a wrong way has a wrong end, and each variant its own.
        """
        key = (place, mask)
        answers = self._known.get(key, ())
        variant %= VARIANTS if self._varies(mask) else 1
        for number in range(len(answers), variant + 1):
            value = plausible(self._compute(place, mask, number), right)
            if value.denominator != 1:
                value = Fraction(round(value)) if self._whole else round(value, 2)
            text = written(value, self._money)
            while text in answers or abs(value - right) < _NEAR or abs(value - self.chain.answer) < _NEAR:
                value += 1
                text = written(value, self._money)
            answers = (*answers, text)
            self._known[key] = answers  # threads may do this at the same time: they do the same
        return answers[variant]

    def _varies(self, mask: int) -> bool:
        return any(mask >> place & 1 and fault.kind in VARYING for place, fault in enumerate(self.faults))

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
    """Return a number as people write it: `12`, money with two decimals as `4.50`, all else with two at most."""
    if value.denominator != 1:
        value = round(value, 2)
    if value.denominator == 1:
        return str(value.numerator)
    text = f"{float(value):.2f}"
    return text if money else text.rstrip("0")


def plausible(value: Fraction | None, near: Fraction) -> Fraction:
    """Return a number that one would write down: no debts where the right number is none, nothing without an end."""
    if value is None or abs(value) > _LARGEST:
        return near + 3
    return abs(value) if near >= 0 else value


def slip_amounts(result: Fraction) -> tuple[Fraction, ...]:
    """Return by how much people are off when they calculate by hand, `VARIANTS` amounts, the likeliest varying.

    A wrong carry, a number next to the right one, two digits swapped (which makes a multiple of 9).
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
