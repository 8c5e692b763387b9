"""Anomalies in a set of problems, and overlaps between two sets."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.tasks.sets.near import folded, near_pairs

K = TypeVar("K", bound=Hashable)


class Pair(NamedTuple):
    """The keys of two problems and the similarity of their texts; 1.0 means the same text, see `near.folded`."""

    first: str
    second: str
    similarity: float


@dataclass(frozen=True, slots=True)
class Findings:
    """The anomalies of a set, as keys of problems in the order of the set.

    Attributes:
        problems: the number of problems.
        distinct: the number of different questions.
        repeated: groups of problems with the same text, see `near.folded`.
        conflicting: those of these groups that have different answers.
        near: pairs of problems with nearly the same text.
        unanswerable: questions without an answer.
        untested: programming problems without tests, which can only score 0.
    """

    problems: int
    distinct: int
    repeated: tuple[tuple[str, ...], ...]
    conflicting: tuple[tuple[str, ...], ...]
    near: tuple[Pair, ...]
    unanswerable: tuple[str, ...]
    untested: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overlap:
    """The overlap of two sets: pairs of a problem of the first and one of the second."""

    exact: tuple[Pair, ...]
    near: tuple[Pair, ...]

    def first(self) -> frozenset[str]:
        """Return the keys of the problems of the first set that are also in the second."""
        return frozenset(pair.first for pair in self.exact + self.near)


def check_problems(problems: Iterable[Problem]) -> Findings:
    """Return the anomalies of a set. Questions about different passages are different, whatever their words."""
    every = list(problems)
    groups = _grouped(every, lambda problem: (_text(problem), tuple(passage.text for passage in problem.passages)))
    repeated = [group for group in groups.values() if len(group) > 1]
    texts = list(dict.fromkeys(text for text, _ in groups))
    holders = _grouped(every, _text)
    near = (
        Pair(holders[texts[one]][0].key, holders[texts[other]][0].key, similarity)
        for one, other, similarity in near_pairs(texts)
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


def overlap(first: Iterable[Problem], second: Iterable[Problem]) -> Overlap:
    """Return the problems of two sets with equal or nearly equal texts, passages aside."""
    ours, theirs = _grouped(first, _text), _grouped(second, _text)
    exact = (
        Pair(one.key, other.key, 1.0) for text in ours if text in theirs for one in ours[text] for other in theirs[text]
    )
    left, right = list(ours), list(theirs)
    near = (
        Pair(one.key, other.key, similarity)
        for place, place_of_other, similarity in near_pairs(left, right)
        if left[place] != right[place_of_other]
        for one in ours[left[place]]
        for other in theirs[right[place_of_other]]
    )
    return Overlap(tuple(exact), tuple(near))


def without(problems: Iterable[Problem], keys: Iterable[str]) -> tuple[Problem, ...]:
    """Return the problems whose keys are not among `keys`."""
    left_out = frozenset(keys)
    return tuple(problem for problem in problems if problem.key not in left_out)


def _text(problem: Problem) -> str:
    return folded(problem.text) or problem.text


def _grouped(problems: Iterable[Problem], key: Callable[[Problem], K]) -> dict[K, list[Problem]]:
    found: dict[K, list[Problem]] = {}
    for problem in problems:
        found.setdefault(key(problem), []).append(problem)
    return found
