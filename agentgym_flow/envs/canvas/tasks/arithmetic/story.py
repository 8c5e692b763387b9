"""Templates of word problems, and how problems are drawn from them.

In the text, `{n}`, `{m}` and `{o}` are people, `{x}` and `{y}` things, other lower-case letters numbers (`{k:times}`
for `twice`, `{k:nth}` for `third`), and `[this|that]` alternative wordings. Calculations use the same letters; an
upper-case letter is the result of an earlier step, `A` that of the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from agentgym_flow.core import Stream
from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.tasks.arithmetic.calculation import (
    BadCalculation,
    Calculation,
    CalculationChain,
    Expression,
    Name,
    Number,
    evaluate,
    parse,
    parts,
    with_leaves,
)
from agentgym_flow.envs.canvas.tasks.arithmetic.task import TEXTS
from agentgym_flow.envs.content import Content, read_content

_TIMES = ("", "once", "twice", "three times", "four times", "five times")
_ORDINALS = ("", "first", "second", "third", "fourth", "fifth", "sixth")
_FORMS = re.compile(r"\{(\w)(?::(\w+))?\}")
_CHOICES = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)(?:/(\d+(?:\.\d+)?))?")
_MOST_DRAWS = 500


class StoryMistake(Content, frozen=True):
    """A mistake that replaces the calculations of steps.

    Attributes:
        kind: a nuance, a trap, or confused parts.
        steps: the number of each changed step, from 0, and its new calculation.
        words: words that may warn against it; those that the drawn text contains are used.
        note: the note of a checker about it.
    """

    kind: Mistake
    steps: tuple[tuple[int, str], ...]
    words: tuple[str, ...]
    note: str


class Story(Content, frozen=True, dict=True):
    """A template of a word problem.

    Attributes:
        text: the problem.
        numbers: `a=3-9` draws an integer, `b=10-50/5` one of 10, 15, ..., and `c=a*b` computes one.
        steps: each calculation with its purpose, a short imperative without numbers.
        wrong: mistakes of understanding.
        slips: the steps in which a slip is likely.
        omitted: the steps that are easily left out.
        wobbles: the steps whose numbers are uncertain.
        pieces: for each sub-problem the step that answers it, and its question.
        things: the possible values of `{x}` and `{y}`.
        money: whether results may have two decimals; otherwise all are integers.
        retold: a different wording of the problem for the split `test`; empty if it has none.
    """

    text: str
    numbers: str
    steps: tuple[tuple[str, str], ...]
    wrong: tuple[StoryMistake, ...] = ()
    slips: tuple[int, ...] = ()
    omitted: tuple[int, ...] = ()
    wobbles: tuple[int, ...] = ()
    pieces: tuple[tuple[int, str], ...] = ()
    things: tuple[str, ...] = TEXTS["things"]
    money: bool = False
    retold: str = ""

    @cached_property
    def trees(self) -> tuple[Expression, ...]:
        """The calculations of the steps, with letters for numbers."""
        return tuple(parse(formula) for formula, _ in self.steps)

    @cached_property
    def others(self) -> tuple[tuple[tuple[int, Expression], ...], ...]:
        """The calculations of each mistake, with letters for numbers."""
        return tuple(tuple((place, parse(formula)) for place, formula in wrong.steps) for wrong in self.wrong)

    @cached_property
    def drawn(self) -> tuple[tuple[str, Expression | tuple[Fraction, Fraction, int]], ...]:
        """The letter of each number with its calculation, or with its lowest value, step and number of values."""
        found: list[tuple[str, Expression | tuple[Fraction, Fraction, int]]] = []
        for item in self.numbers.split():
            letter, _, how = item.partition("=")
            span = _RANGE.fullmatch(how)
            if span is None:
                found.append((letter, parse(how)))
            else:
                low, high, step = Fraction(span[1]), Fraction(span[2]), Fraction(span[3] or 1)
                found.append((letter, (low, step, int((high - low) / step) + 1)))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class StoryProblem:
    """A drawn problem: its numbers, its chain, and the trees of the story's mistakes."""

    numbers: Mapping[str, Fraction]
    chain: CalculationChain
    others: tuple[dict[int, Expression], ...]


def draw(story: Story, stream: Stream) -> StoryProblem:
    """Return a problem whose numbers give plausible results, and a different answer for each mistake.

    Numbers that equal the result of an earlier step are rejected, because the worked solution would refer to this step.
    Raises `RuntimeError` if no suitable numbers are found.
    """
    for _ in range(_MOST_DRAWS):
        drawn = _attempt(story, stream)
        if drawn is not None:
            return drawn
    raise RuntimeError(f"no numbers found for the story {story.text!r:.60}")


def _attempt(story: Story, stream: Stream) -> StoryProblem | None:
    numbers: dict[str, Fraction] = {}
    for letter, how in story.drawn:
        if isinstance(how, tuple):
            low, step, count = how
            numbers[letter] = low + step * stream.below(count)
        else:
            computed = _value(how, numbers)
            if computed is None or computed <= 0:
                return None
            numbers[letter] = computed
    chain = _chain(story, numbers)
    if chain is None:
        return None
    bound = _bound(numbers, len(chain.steps))
    others = tuple({place: _bind(tree, bound) for place, tree in changes} for changes in story.others)
    for trees in others:
        value = chain.compute(trees)
        if value is None or abs(value) == chain.answer or value == 0:
            return None
    return StoryProblem(numbers, chain, others)


def _chain(story: Story, numbers: Mapping[str, Fraction]) -> CalculationChain | None:
    values: dict[str, Fraction] = dict(numbers)
    texts = {letter: figure(value) for letter, value in numbers.items()}
    steps: list[Calculation] = []
    results: set[Fraction] = set()
    bound = _bound(numbers, len(story.steps))
    for place, (tree, (formula, _)) in enumerate(zip(story.trees, story.steps, strict=True)):
        result = _value(tree, values)
        bad = result is None or result <= 0 or result in results or 100 % result.denominator
        if result is None or bad or (not story.money and result.denominator != 1):
            return None
        with_numbers = _bind(tree, bound)
        if any(isinstance(part, Number) and part.value in results for part in parts(with_numbers)):
            return None
        steps.append(Calculation(with_numbers, result, "".join(texts.get(sign, sign) for sign in formula)))
        texts[chr(65 + place)] = figure(result)
        values[chr(65 + place)] = result
        results.add(result)
    return CalculationChain(tuple(steps))


def _value(tree: Expression, values: Mapping[str, Fraction]) -> Fraction | None:
    try:
        return evaluate(tree, values)
    except BadCalculation:
        return None


def _bound(numbers: Mapping[str, Fraction], steps: int) -> dict[str, Expression]:
    bound: dict[str, Expression] = {letter: Number(value) for letter, value in numbers.items()}
    return bound | {chr(65 + place): Name(f"step{place}") for place in range(steps)}


def _bind(tree: Expression, bound: Mapping[str, Expression]) -> Expression:
    return with_leaves(tree, lambda leaf: bound[leaf.name] if isinstance(leaf, Name) else leaf)


def figure(value: Fraction) -> str:
    """Return a number as text: `12`, or with two decimals."""
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.2f}"


def tell(text: str, drawn: StoryProblem, names: Mapping[str, str], stream: Stream) -> str:
    """Return `text` with wordings chosen and placeholders filled in."""
    text = _CHOICES.sub(lambda found: stream.choice(found.group(1).split("|")), text)
    return _FORMS.sub(lambda found: names.get(found[1]) or _form(drawn.numbers[found[1]], found[2]), text)


def _form(value: Fraction, form: str | None) -> str:
    number = value.numerator
    if form == "times":
        return _TIMES[number]
    if form == "nth":
        return _ORDINALS[number]
    return f"{number:,}" if value.denominator == 1 and number >= 10_000 else figure(value)


STORIES: Mapping[str, tuple[Story, ...]] = {
    kind: read_content("agentgym_flow.envs.canvas.tasks.arithmetic", f"stories/{file}.json", tuple[Story, ...])
    for kind, file in {
        "easy": "easy",  # short stories with small numbers and no difficulty
        "calculation": "calculation",  # long or awkward numbers: easy to understand, easy to miscalculate by hand
        "story": "nuance",  # a detail that needs careful reading
        "trap": "trap",  # a misreading that every operator makes unless it is warned
        "steps": "steps",  # long stories: every step is simple, but one is easily left out
        "parts": "parts",  # two to four independent sub-totals that the last step combines
        "accounts": "accounts",  # numbers from somebody's memory or estimate, so no single reading is certain
        "mixed": "mixed",  # hard in two ways: a trap with awkward numbers, or a trap in a long story
    }.items()
}
"""Kind of task -> its templates."""
