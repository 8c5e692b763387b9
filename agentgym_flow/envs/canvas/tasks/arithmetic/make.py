"""Generated tasks: which kind a number has, and how a drawn story becomes a task."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.tasks.arithmetic.misprint import misprint
from agentgym_flow.envs.canvas.tasks.arithmetic.people import PEOPLE
from agentgym_flow.envs.canvas.tasks.arithmetic.stories import STORIES
from agentgym_flow.envs.canvas.tasks.arithmetic.story import Story, StoryProblem, draw, figure, tell
from agentgym_flow.envs.canvas.tasks.arithmetic.task import ArithmeticTask, ChainMistake, slip_amounts, written
from agentgym_flow.envs.canvas.tasks.sets.calculation import Expression, Name, Number, Operation, parts
from agentgym_flow.envs.canvas.tasks.sets.chain import CalculationChain
from agentgym_flow.envs.canvas.tasks.simulated import Fault
from agentgym_flow.envs.canvas.tasks.unusual import aside, demanded, unusual
from agentgym_flow.errors import UnknownSplit, UnknownTask
from agentgym_flow.seeding import Stream, seasonal

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
"""How many of each 35 consecutive tasks are of a kind."""

_BLOCK = sum(KINDS.values())
_ROUNDS = 3


def make_task(split: str, index: int, season: str = "") -> ArithmeticTask:
    """Return task number `index` of a split, the same one every time.

    The people of different splits have different names, and each problem names one, so that splits share no problem.

    Args:
        split: `"train"`, `"valid"` or `"test"`.
        index: any integer from 0 on; there is no last one.
        season: every season has tasks of its own; `""` are the standard ones.

    Raises:
        UnknownSplit: a split that there is not.
        UnknownTask: a negative index.
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
    """Return the kinds of a block, in rounds that each have about as many of every kind: so have all small splits."""
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
    """Return where a slip is possible in a story that is not about slips: in one step, or one of each piece."""
    if story.slips:
        return ()
    if owners:
        return tuple(place for place, _ in story.pieces)
    return (stream.choice([place for place in range(len(story.steps)) if place not in story.wobbles]),)


def owners_of(chain: CalculationChain, places: tuple[int, ...]) -> dict[int, int]:
    """Return for each step that leads to the answer of a sub-problem the number of that sub-problem."""
    owners: dict[int, int] = {}
    for piece, place in enumerate(places):
        for step in CalculationChain(chain.steps[: place + 1]).needed():
            owners[step] = piece
    return owners


def slip(place: int, what: str, piece: int | None, likely: bool) -> Fault:
    """Return a slip in a step."""
    note = f"A calculation does not come out right in this step: {lower(what)}."
    return Fault(f"slip-{place}", Mistake.SLIP, (), note, piece, likely)


def slipped(chain: CalculationChain, place: int) -> ChainMistake:
    """Return what a slip or a wobble in a step does."""
    return ChainMistake(slip=place, amounts=slip_amounts(chain.steps[place].result))


def omission(place: int, note: str, piece: int | None = None, *, likely: bool = True) -> Fault:
    """Return that a step is left out."""
    return Fault(f"omission-{place}", Mistake.OMISSION, (), note, piece, likely)


def omitted(chain: CalculationChain, place: int) -> ChainMistake:
    """Return what it does to leave a step out: its first operand that comes from a step goes on, else the first."""
    tree = chain.steps[place].tree
    leaves: list[Expression] = [part for part in parts(tree) if not isinstance(part, Operation)]
    steps = [leaf for leaf in leaves if isinstance(leaf, Name)]
    kept = steps[0] if steps else next((leaf for leaf in leaves if isinstance(leaf, Number)), tree)
    return ChainMistake({place: kept})


def lower(sentence: str) -> str:
    """Return a sentence as part of another one."""
    return sentence[:1].lower() + sentence[1:]
