"""What is odd in a set of problems, and what two sets have in common: reported as data, and easy to leave out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.tasks.sets.near import folded, near_pairs
from agentgym_flow.errors import BadSetting

THRESHOLD = 0.9
"""From which similarity on two texts are nearly the same."""


class Pair(NamedTuple):
    """Two problems by their keys, and how similar what they ask is: 1.0 means the same words."""

    first: str
    second: str
    similarity: float


@dataclass(frozen=True, slots=True)
class Findings:
    """What is odd in a set; keys of problems, in the set's order.

    Attributes:
        problems: how many problems it has.
        distinct: how many different things they ask.
        repeated: groups of problems that ask the same in the same words.
        conflicting: those groups among them that have different answers.
        near: pairs that ask nearly the same.
        unanswerable: questions without an answer.
        untested: code without tests, which can only score 0.
    """

    problems: int
    distinct: int
    repeated: tuple[tuple[str, ...], ...]
    conflicting: tuple[tuple[str, ...], ...]
    near: tuple[Pair, ...]
    unanswerable: tuple[str, ...]
    untested: tuple[str, ...]

    def copies(self) -> frozenset[str]:
        """Return the keys of all problems that an earlier one repeats."""
        return frozenset(key for group in self.repeated for key in group[1:])


@dataclass(frozen=True, slots=True)
class Overlap:
    """What two sets have in common: pairs of a problem of the first and one of the second."""

    exact: tuple[Pair, ...]
    near: tuple[Pair, ...]

    def first(self) -> frozenset[str]:
        """Return the keys of the problems of the first set that are in the other, too."""
        return frozenset(pair.first for pair in self.exact + self.near)

    def second(self) -> frozenset[str]:
        """Return the keys of the problems of the second set that are in the first, too."""
        return frozenset(pair.second for pair in self.exact + self.near)


def check_problems(problems: Iterable[Problem], *, threshold: float = THRESHOLD) -> Findings:
    """Return what is odd in a set. Questions about different passages are different, whatever their words.

    Raises `BadSetting` when `threshold` is not in [0.8, 1].
    """
    _check(threshold)
    every = list(problems)
    groups = _by_question(every)
    repeated = [group for group in groups.values() if len(group) > 1]
    texts = list(dict.fromkeys(text for text, _ in groups))
    holders = _by_text(every)
    near = (
        Pair(holders[texts[one]][0].key, holders[texts[other]][0].key, similarity)
        for one, other, similarity in near_pairs(texts, threshold=threshold)
    )
    return Findings(
        problems=len(every),
        distinct=len(groups),
        repeated=tuple(tuple(problem.key for problem in group) for group in repeated),
        conflicting=tuple(
            tuple(problem.key for problem in group)
            for group in repeated
            if len({frozenset(map(folded, problem.answers)) for problem in group}) > 1
        ),
        near=tuple(near),
        unanswerable=tuple(problem.key for problem in every if problem.kind == "qa" and not problem.answerable),
        untested=tuple(problem.key for problem in every if problem.kind == "code" and not problem.hidden_tests),
    )


def overlap(first: Iterable[Problem], second: Iterable[Problem], *, threshold: float = THRESHOLD) -> Overlap:
    """Return what two sets have in common, as training and test problems must not: by what is asked, passages aside.

    Raises `BadSetting` when `threshold` is not in [0.8, 1].
    """
    _check(threshold)
    ours, theirs = _by_text(first), _by_text(second)
    exact = (
        Pair(one.key, other.key, 1.0) for text in ours if text in theirs for one in ours[text] for other in theirs[text]
    )
    left, right = list(ours), list(theirs)
    near = (
        Pair(one.key, other.key, similarity)
        for place, place_of_other, similarity in near_pairs(left, right, threshold=threshold)
        if left[place] != right[place_of_other]
        for one in ours[left[place]]
        for other in theirs[right[place_of_other]]
    )
    return Overlap(tuple(exact), tuple(near))


def without(problems: Iterable[Problem], keys: Iterable[str]) -> tuple[Problem, ...]:
    """Return the problems whose keys are not among `keys`."""
    left_out = frozenset(keys)
    return tuple(problem for problem in problems if problem.key not in left_out)


def _by_text(problems: Iterable[Problem]) -> dict[str, Sequence[Problem]]:
    found: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        found[folded(problem.text) or problem.text].append(problem)
    return dict(found)


def _by_question(problems: Iterable[Problem]) -> dict[tuple[str, tuple[str, ...]], list[Problem]]:
    found: dict[tuple[str, tuple[str, ...]], list[Problem]] = defaultdict(list)
    for problem in problems:
        passages = tuple(passage.text for passage in problem.passages)
        found[folded(problem.text) or problem.text, passages].append(problem)
    return dict(found)


def _check(threshold: float) -> None:
    if not 0.8 <= threshold <= 1:
        raise BadSetting(f"threshold must be from 0.8 to 1, got {threshold}.")
