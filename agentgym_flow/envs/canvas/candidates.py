"""Derives from the text of a task concrete actions to choose from, and cues that a careful reader would notice.

The actions are a fixed list of edits that make sense in most workflows, in an order that does not depend on their
quality. Words of the problem that often hint at a mistake (`WATCH_WORDS`) become instructions; the list is the same for
all tasks, and most of its words are harmless. `Cues` are heuristics from experience with such tasks, and can be wrong.
Nothing here uses hidden information.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from agentgym_flow.core import MAX_CANDIDATES
from agentgym_flow.envs.canvas.actions import Action, Add, Delete, Finish, SetPrompt
from agentgym_flow.envs.canvas.operators import Role, of_role
from agentgym_flow.envs.canvas.operators.base import ATTENTION
from agentgym_flow.envs.canvas.reading import write_action
from agentgym_flow.envs.canvas.workflow import Conditional, Loop, Node, OperatorNode, Parallel, Workflow
from agentgym_flow.envs.canvas.workflow.rules import Language
from agentgym_flow.errors import BadWorkflow

WATCH_WORDS = (
    "percent", "new price", "off", "original", "discount", "included", "including", "inclusive", "among the",
    "both ends", "speed", "minutes", "hour", "cut", "pieces", "sides", "except", "all but", "instead", "after all",
    "twice", "half", "fewer than", "less than", "older than", "others", "only", "weekend", "promised", "every third",
    "zero", "empty", "negative", "at least", "at most", "more than", "exactly", "or less", "shorter", "lower case",
    "border", "divisible", "multiple", "same", "equal", "none", "similar", "mixed up", "meant",
)  # fmt: skip
"""Words that a person would warn a solver about."""

VOICES = (
    "Work forward, step by step.",
    "Work backward from what is asked.",
    "Write down the quantities first.",
    "Look at every part of the problem twice.",
    "Explain it as to a child, then answer.",
    "Try a simpler case before the real one.",
    "Be sceptical: ask where one could go wrong.",
    "Draw a little table, then read the answer off it.",
    "Answer quickly, then check the answer, then answer again.",
    "Say in your own words what is asked, then do it.",
    "Begin with what is hardest.",
)
"""Instructions for branches that should think differently."""

TRIES = 3
"""The number of rounds of proposed loops."""

BRANCHES = 3
"""The number of branches for sub-problems."""

MOST_DELETIONS = 4
"""The maximum number of proposed deletions."""

WARNING = "Mind: "
"""The beginning of instructions with watch words."""

_WATCHED = {word: re.compile(rf"\b{word}\b") for word in WATCH_WORDS}


@lru_cache(maxsize=1 << 12)  # repeated in every turn and attempt at a task
def warning(problem: str) -> str:
    """Return an instruction with the watch words of a problem; empty if it has none."""
    lowered = problem.lower()
    found = [word for word, pattern in _WATCHED.items() if pattern.search(lowered)]
    while len(text := f"{WARNING}{', '.join(found)}.") > ATTENTION:
        found.pop()
    return text if found else ""


def voting(solver: str) -> Parallel:
    """Return branches of one solver with different instructions."""
    return Parallel(tuple((OperatorNode(solver, voice),) for voice in VOICES))


def sharing(solver: str) -> Parallel:
    """Return branches for sub-problems."""
    return Parallel(((OperatorNode(solver),),) * BRANCHES)


def mending(checker: str) -> Conditional:
    """Return a check that revises the solution if it fails."""
    return Conditional(OperatorNode(checker), failed=(OperatorNode("Revise"),))


def proposals(problem: str, workflow: Workflow, language: Language, *, may_finish: bool) -> list[Action]:
    """Return at most `MAX_CANDIDATES` actions that would be accepted.

    Args:
        problem: the text of the problem.
        workflow: the workflow so far.
        language: the rules of workflows.
        may_finish: whether `finish` would be accepted.
    """
    actions: list[Action] = [Finish()] if may_finish else []
    actions += [Add(node) for node in _nodes(warning(problem), language.known) if _fits(node, workflow, language)]
    actions += deletions(len(workflow.nodes))
    last = workflow.nodes[-1] if workflow.nodes else None
    if isinstance(last, OperatorNode) and warning(problem) not in ("", last.instruction):
        actions.append(SetPrompt(f"node_{len(workflow.nodes)}", warning(problem)))
    return actions[:MAX_CANDIDATES]


def deletions(nodes: int) -> list[Delete]:
    """Return the deletions of the last of `nodes` top-level nodes, the last one first."""
    return [Delete(f"node_{number}") for number in range(nodes, 0, -1)][:MOST_DELETIONS]


@lru_cache(maxsize=1 << 8)
def written_deletions(nodes: int, language: Language) -> tuple[str, ...]:
    """Return the written form of `deletions`."""
    return tuple(write_action(action, language) for action in deletions(nodes))


def _nodes(instruction: str, names: tuple[str, ...]) -> Iterator[Node]:
    solvers, checkers = of_role(Role.SOLVER, names), of_role(Role.CHECKER, names)
    yield from map(OperatorNode, names)
    if instruction:
        yield from (OperatorNode(solver, instruction) for solver in solvers)
    yield from map(voting, solvers)
    yield from map(sharing, solvers)
    yield from map(mending, checkers)
    yield from (Loop((mending(checker),), TRIES) for checker in checkers)
    yield from (Loop((OperatorNode(checker), OperatorNode("Revise")), TRIES) for checker in checkers)


def _fits(node: Node, workflow: Workflow, language: Language) -> bool:
    try:
        language.check((*workflow.nodes, node))
    except BadWorkflow:
        return False
    return True


def prompts(problem: str) -> Sequence[str]:
    """Return texts to answer a request for a prompt."""
    instruction = warning(problem)
    return (*((instruction,) if instruction else ()), *VOICES)


class Cues(NamedTuple):
    """Cues in the text of a problem.

    Attributes:
        family: `"code"`, `"qa"` or `"arithmetic"`.
        parts: whether it may have parts that can be solved separately; Decompose shows them.
        accounts: whether it is based on uncertain accounts.
        steps: whether it needs many steps.
        twist: whether it contains a detail that needs careful reading.
        numbers: whether its numbers are awkward.
        endless: whether the program to write never ends.
        warning: an instruction with the words that may mislead; empty if there are none.
    """

    family: str
    parts: bool
    accounts: bool
    steps: bool
    twist: bool
    numbers: bool
    endless: bool
    warning: str


_CODE = re.compile(r"\bdef \w+\(|must pass these tests|\bassert \w", re.IGNORECASE)
_ENDLESS = re.compile(
    r"\b(?:generator|yields?|endless|for ?ever|without end|never (?:ends|stops)|islice)\b", re.IGNORECASE
)
_UNSURE = re.compile(
    r"\b(?:accounts?|witness\w*|sources|most of them|mistaken|agree|weigh|recall\w*|remember\w*|by eye|smudged|grainy|"
    r"rumou?r\w*|hearsay|they say|it seems|seems to|makes out|maybe|perhaps|roughly|guess\w*|estimat\w*|reckons?|"
    r"close to|believing|if the story|by their count|faded|blurred|at a glance|sounds like|give or take|"
    r"overheard|from memory|judg\w+)\b"
)
_PASSAGE = re.compile(r"^\[(.*)\]\n(.*)$", re.MULTILINE)
_NAMED = re.compile(r"[A-Z]\w+(?: [A-Z]\w+)*")

FEWEST_VOICES = 3
"""The minimum number of passages that mention something without being about it, to count as accounts of it."""

_PAIRED = re.compile(
    r"\b(?:and|or|which(?: one)? of|compare|between|sum|total|both|combined|earli\w+|older|younger|lat\w+|longer|"
    r"larger|fewer|together)\b"
)
_TWIST = re.compile(
    r"\b(?:all but|except|instead|changes?|mind|only then|not counting|but then|turns out|gives? back|puts? back|"
    r"mistake|second thoughts|corrects?|actually|after all|unless|other than|however|than|apart from|without|weekend|"
    r"promised|of the days|counted|others|every (?:third|fourth|fifth|sixth|seventh)|back|only)\b"
)
_THEN = re.compile(r"\b(?:then|next|after that|afterwards|overnight|later|in the end|lastly|finally|at last|first)\b")
LONG_STORY = 240
"""The length of a story above which it is likely to have many steps."""

FEWEST_NUMBERS = 4
"""The minimum number of numbers in a problem with parts."""

AWKWARD = 1000
"""The size from which on numbers are error-prone, as are decimals."""

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_ITEM = re.compile(r"(?:^|\s)\d+\. ")
_STEP = re.compile(r"\bstep\b", re.IGNORECASE)
_OPINION = re.compile(
    r"\b(?:(?:un)?usual\w*|(?:un)?common\w*|(?:un)?conventional\w*|customar\w+|(?:ab)?normal\w*|typical\w*|(?:un)?natural\w*|"
    r"ordinar\w+|general(?:ly)?|(?:un)?expect\w*|odd\w*|strange\w*|misprints?|surpris\w+|believ\w+|"
    r"seems?|surely|probably|perhaps|would|rather|better|prefer\w*|ought)\b",
    re.IGNORECASE,
)


def _retold(passages: str, question: str) -> bool:
    """Return whether several passages mention something in the question that none of them is about."""
    found = _PASSAGE.findall(passages)
    return any(
        sum(name in text for _, text in found) >= FEWEST_VOICES and all(name not in title for title, _ in found)
        for name in _NAMED.findall(question)
    )


def fall_apart(listed: str) -> bool:
    """Return whether the sub-problems in a numbered, possibly truncated list are independent: each is a question."""
    pieces = _ITEM.split(listed)[1:]
    whole = pieces[:-1] if listed.endswith("...") else pieces
    return len(pieces) > 1 and all(piece.rstrip().endswith("?") and not _STEP.search(piece) for piece in whole)


def is_opinion(notes: str) -> bool:
    """Return whether a note is about what would be usual or better, and not about an error."""
    return bool(_OPINION.search(notes))


@lru_cache(maxsize=1 << 12)
def cues_of(problem: str) -> Cues:
    """Return the cues in the text of a problem."""
    instruction = warning(problem)
    if _CODE.search(problem):
        return Cues("code", False, False, False, False, False, bool(_ENDLESS.search(problem)), instruction)
    passages, asks, question = problem.rpartition("Question: ")
    if asks:
        asked = question.lower()
        accounts = bool(_UNSURE.search(asked)) or _retold(passages, question)
        parts = bool(_PAIRED.search(asked)) and not accounts
        return Cues("qa", parts, accounts, False, False, False, False, instruction)
    lowered = problem.lower()
    numbers = [number.replace(",", "") for number in _NUMBER.findall(problem)]
    accounts = bool(_UNSURE.search(lowered))
    sequence = len(_THEN.findall(lowered))
    parts = len(numbers) >= FEWEST_NUMBERS and not accounts
    return Cues(
        "arithmetic",
        parts=parts,
        accounts=accounts,
        steps=sequence >= 2 or len(numbers) >= 6 or len(problem) > LONG_STORY,
        twist=bool(_TWIST.search(lowered)),
        numbers=any(float(number) >= AWKWARD or "." in number for number in numbers),
        endless=False,
        warning=instruction,
    )
