"""Generated word problems: the kind of each task number, and how a drawn story becomes a task."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from agentgym_flow.core import Stream, seasonal
from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.tasks.arithmetic.calculation import (
    CalculationChain,
    Expression,
    Name,
    Number,
    Operation,
    parts,
    with_leaves,
)
from agentgym_flow.envs.canvas.tasks.arithmetic.story import STORIES, Story, StoryProblem, draw, figure, tell
from agentgym_flow.envs.canvas.tasks.arithmetic.task import ArithmeticTask, ChainMistake, slip_amounts, written
from agentgym_flow.envs.canvas.tasks.task import Fault, aside, demanded, unusual
from agentgym_flow.envs.content import read_content
from agentgym_flow.errors import UnknownSplit, UnknownTask

KINDS: Mapping[str, int] = {
    "easy": 14,
    "calculation": 3,
    "story": 3,
    "trap": 3,
    "steps": 3,
    "parts": 3,
    "accounts": 3,
    "mixed": 3,
}
"""Kind -> the number of tasks of this kind in each block of 35."""

PEOPLE = read_content("agentgym_flow.envs.canvas.tasks.arithmetic", "people.json", dict[str, tuple[str, ...]])
"""Split -> the names of people in its stories; no name is in two splits."""

_BLOCK = sum(KINDS.values())
_ROUNDS = 3


def make_task(split: str, index: int, season: str = "") -> ArithmeticTask:
    """Return task number `index` of a split.

    Each problem names a person, and no name is in two splits, so splits have no problem in common.

    Args:
        split: `"train"`, `"valid"` or `"test"`.
        index: any non-negative integer.
        season: every season has different tasks; `""` is the standard one.

    Raises:
        UnknownSplit: there is no such split.
        UnknownTask: the index is negative.
    """
    if split not in PEOPLE:
        raise UnknownSplit.among(split, PEOPLE)
    if index < 0:
        raise UnknownTask(f"a task has a number from 0 on, got {index}.")
    stream = Stream("canvas", "arithmetic", seasonal(split, season), index)
    kind = _kinds(seasonal(split, season), index // _BLOCK)[index % _BLOCK]
    story = stream.choice(STORIES[kind])
    drawn = draw(story, stream)
    people = stream.sample(PEOPLE[split], 3)
    names = dict(zip("nmoxy", people + stream.sample(story.things, 2), strict=True))
    text = tell((split == "test" and story.retold) or story.text, drawn, names, stream)
    plan = tuple(tell(what, drawn, names, stream) for _, what in story.steps)
    pieces = tuple((place, tell(question, drawn, names, stream)) for place, question in story.pieces)
    answer = written(drawn.chain.answer, story.money)
    faults = _faults(story, drawn, plan, text, stream)
    wordy = stream.below(3) == 0
    chance = Stream("canvas", "arithmetic", "unusual", seasonal(split, season), index)
    kind_demanded = demanded("arithmetic", seasonal(split, season), index)
    odd = misprint(drawn.chain, text, chance) if kind_demanded else None
    if kind_demanded and odd:
        text = f"{text} {aside('arithmetic', split, chance, odd[0])}"
        faults = (*faults, (unusual(kind_demanded, "arithmetic", split, chance, figure=odd[0]), odd[1]))
    problem = Problem(
        f"{seasonal(split, season)}-{index}",
        text,
        "math",
        "arithmetic",
        (answer,),
        solution=_solution(drawn.chain, plan, answer),
    )
    return ArithmeticTask(problem, kind, drawn.chain, faults, plan, pieces, wordy=wordy, money=story.money)


@lru_cache(maxsize=256)
def _kinds(seasonal_split: str, block: int) -> tuple[str, ...]:
    """Return the kinds of a block, in rounds with about equal shares of kinds, so that small splits have them too."""
    stream = Stream("canvas", "arithmetic", seasonal_split, "kinds", block)
    kinds: list[str] = []
    for number in range(_ROUNDS):
        own = [kind for kind, count in KINDS.items() for place in range(count) if place % _ROUNDS == number]
        stream.shuffle(own)
        kinds += own
    return tuple(kinds)


def _solution(chain: CalculationChain, plan: tuple[str, ...], answer: str) -> str:
    lines = []
    for step, what in zip(chain.steps, plan, strict=True):
        result = figure(step.result)
        lines.append(f"{what}: {step.written} = <<{step.written}={result}>>{result}.")
    return "\n".join([*lines, f"#### {answer}"])


def _faults(
    story: Story, drawn: StoryProblem, plan: tuple[str, ...], text: str, stream: Stream
) -> tuple[tuple[Fault, ChainMistake], ...]:
    chain, lowered = drawn.chain, text.lower()
    owners = owners_of(chain, tuple(place for place, _ in story.pieces))
    found: list[tuple[Fault, ChainMistake]] = []
    for number, (wrong, trees) in enumerate(zip(story.wrong, drawn.others, strict=True)):
        words = tuple(word for word in wrong.words if word in lowered)
        found.append((Fault(f"{wrong.kind}-{number}", wrong.kind, words, wrong.note), ChainMistake(trees)))
    for place in story.omitted:
        found.append((omission(place, f"Something is left out: {lower(plan[place])}."), omitted(chain, place)))
    for place in story.wobbles:
        note = f"It is not certain what to take when it comes to this: {lower(plan[place])}."
        found.append((Fault(f"wobble-{place}", Mistake.WOBBLE, (), note, owners.get(place)), slipped(chain, place)))
    unlikely = _unlikely(story, owners, stream)
    for place in sorted({*story.slips, *unlikely}):
        found.append((slip(place, plan[place], owners.get(place), place in story.slips), slipped(chain, place)))
    return tuple(found)


def _unlikely(story: Story, owners: Mapping[int, int], stream: Stream) -> tuple[int, ...]:
    """Return the steps of unlikely slips in a story that has no likely ones: one step, or one for each piece."""
    if story.slips:
        return ()
    if owners:
        return tuple(place for place, _ in story.pieces)
    return (stream.choice([place for place in range(len(story.steps)) if place not in story.wobbles]),)


def owners_of(chain: CalculationChain, places: tuple[int, ...]) -> dict[int, int]:
    """Return, for each step that a sub-problem needs, the number of the sub-problem."""
    owners: dict[int, int] = {}
    for piece, place in enumerate(places):
        for step in CalculationChain(chain.steps[: place + 1]).needed():
            owners[step] = piece
    return owners


def slip(place: int, what: str, piece: int | None, likely: bool) -> Fault:
    """Return a slip in a step as a fault."""
    note = f"A calculation does not come out right in this step: {lower(what)}."
    return Fault(f"slip-{place}", Mistake.SLIP, (), note, piece, likely)


def slipped(chain: CalculationChain, place: int) -> ChainMistake:
    """Return the effect of a slip or a wobble in a step."""
    return ChainMistake(slip=place, amounts=slip_amounts(chain.steps[place].result))


def omission(place: int, note: str, piece: int | None = None, *, likely: bool = True) -> Fault:
    """Return the omission of a step as a fault."""
    return Fault(f"omission-{place}", Mistake.OMISSION, (), note, piece, likely)


def omitted(chain: CalculationChain, place: int) -> ChainMistake:
    """Return the effect of omitting a step: it passes on its first operand, preferably one from another step."""
    tree = chain.steps[place].tree
    leaves: list[Expression] = [part for part in parts(tree) if not isinstance(part, Operation)]
    steps = [leaf for leaf in leaves if isinstance(leaf, Name)]
    kept = steps[0] if steps else next((leaf for leaf in leaves if isinstance(leaf, Number)), tree)
    return ChainMistake({place: kept})


def lower(sentence: str) -> str:
    """Return a sentence with a lower-case first letter, to put it into another one."""
    return sentence[:1].lower() + sentence[1:]


def misprint(chain: CalculationChain, text: str, chance: Stream) -> tuple[str, ChainMistake] | None:
    """Return the spelling of a number in the text and the change that replaces it; None if no number is suitable.

    The number occurs once in the text. Its replacement gives another answer, an integer if all numbers are.
    """
    found: dict[str, Fraction] = {}
    for place in chain.needed():
        for part in parts(chain.steps[place].tree):
            if isinstance(part, Number) and part.value > 1:
                commas = f"{part.value.numerator:,}" if part.value.denominator == 1 else figure(part.value)
                for written in {figure(part.value), commas}:
                    if len(re.findall(rf"(?<![\d.,]){re.escape(written)}(?!\d|[.,]\d)", text)) == 1:
                        found[written] = part.value
    written_ones = sorted(found)
    chance.shuffle(written_ones)
    for written in written_ones:
        for amount in slip_amounts(found[written]):
            change = _taken_for(chain, found[written], found[written] + amount)
            if change is not None:
                return written, change
    return None


def _taken_for(chain: CalculationChain, value: Fraction, other: Fraction) -> ChainMistake | None:
    """Return the change that replaces `value` by `other`; None if it does not give another plausible answer."""
    trees = [
        with_leaves(step.tree, lambda leaf: Number(other) if leaf == Number(value) else leaf) for step in chain.steps
    ]
    change = ChainMistake({place: tree for place, tree in enumerate(trees) if tree != chain.steps[place].tree})
    answer = chain.compute(change.trees)
    if answer is None or answer == 0 or abs(answer) == abs(chain.answer) or (answer < 0) != (chain.answer < 0):
        return None
    return change if answer.denominator == 1 or chain.answer.denominator != 1 else None
