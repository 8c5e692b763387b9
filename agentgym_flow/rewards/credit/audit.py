"""Compare credit functions with measured advantages: by rank, by sign, and by the direction of the gradient.

The gradient of a group is the sum over its turns of advantage times the gradient of the log-probability of the answer.
The exact gradient is that of measured advantages. It is estimated from other groups than the one that it is compared
with, so that a method gets nothing for the chance in its own group. Two figures follow:

- The cosine for one group, with the mean of the other groups of its task: what noise a method has.
- The cosine for the mean of many, half of all groups against the other half: what bias it has.

Measured advantages themselves get the best cosines that can be expected, because their gradient differs from the exact
one only by the choice of turns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.intervals import Interval, bootstrap, bounded_interval
from agentgym_flow.episodes import Group
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.rewards.credit import WEIGHTS, credit_function, settings_of
from agentgym_flow.rewards.credit.comparison import Advantages

CLEAR = 0.02
"""The smallest measured advantage whose sign counts."""

MEASURED = "measured"
"""The name of the measured advantages in a table of credit functions."""

Vector = npt.NDArray[np.float64]

Gradients = Callable[[Group, Sequence[Sequence[Sequence[float]]]], Sequence[npt.ArrayLike]]
"""A function of a group and of advantages [method][episode][turn] that returns the gradient of each method."""


@dataclass(frozen=True, slots=True)
class GroupMean:
    """A mean over groups with its 95 % interval over tasks; `count` is the number of groups."""

    value: float
    interval: Interval
    count: int

    def __str__(self) -> str:
        value, low, high = (round(one, 2) + 0.0 for one in (self.value, *self.interval))  # never -0.00
        return f"{value:.2f} [{low:.2f}, {high:.2f}]"


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well a credit function agrees with measured advantages. What could not be computed is None.

    Attributes:
        name: the credit function with its settings, as in `parse_credit`.
        rank: Spearman's correlation with the measured advantages of a group.
        sign: the share of turns with a measured advantage beyond `CLEAR` whose sign is right; 0 is wrong.
        one: the cosine with the exact gradient for one group; 0 if the method gives the group no gradient.
        many: the cosine with the exact gradient for half of the groups together; None if a half measured no advantage.
        silent: the share of groups that get no gradient.
    """

    name: str
    rank: GroupMean | None
    sign: GroupMean | None
    one: GroupMean | None
    many: float | None
    silent: float


@dataclass(frozen=True, slots=True)
class CreditAudit:
    """The result of an audit.

    Attributes:
        rows: the methods, the best by `one` first, without measured advantages.
        ceiling: what measured advantages reach: by gradients of other groups, and by rank and sign of one half of the
            continuations against the other half. Below 1 because of noise in the measure.
        preferred: the methods that `one` does not tell apart from the best one, the best first; empty without
            gradients, and where no measured advantage differs from 0.
        credit: method -> its advantages, [group][episode][turn].
    """

    rows: list[Agreement]
    ceiling: Agreement
    preferred: list[str]
    credit: dict[str, Advantages]

    def as_dict(self) -> dict[str, Any]:
        """Return rows, ceiling and preferred methods as plain data."""
        return {
            "credit": [asdict(row) for row in self.rows],
            "ceiling": asdict(self.ceiling),
            "preferred": self.preferred,
        }


def parse_credit(text: str, defaults: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of a credit function such as `gagpo` or `gagpo{"lam": 0}`.

    `defaults` are settings by name, which those in the text change. An outcome that is not given is success, which is
    what is measured.

    Raises:
        UnknownOption: there is no such function.
        BadSetting: the settings are not a JSON object, or the function does not have one.
    """
    name, brace, rest = text.partition("{")
    try:
        given = json.loads(brace + rest) if brace else {}
    except ValueError as error:
        raise BadSetting(f'{text!r}: the settings are not JSON ({error}): write gagpo{{"lam": 0}}') from None
    known = settings_of(name)
    for setting in given:
        if setting not in known:
            raise UnknownOption.among(setting, known, f"These are the settings of {name}.")
    outcome = {"outcome": "success"} if "outcome" in known else {}
    return name, {**outcome, **(defaults or {}).get(name, {}), **given}


def audit(
    groups: Sequence[Group],
    measured: Advantages,
    halves: Iterable[Advantages],
    credit: Mapping[str, tuple[str, Mapping[str, Any]]],
    *,
    precise: Sequence[int],
    gradients: Gradients | None = None,
    others: Mapping[str, Advantages] | None = None,
) -> CreditAudit:
    """Compare credit functions with the measured advantages of groups.

    Args:
        groups: the groups; those of one task have one `task_key` and seed.
        measured: the measured advantages, [group][episode][turn].
        halves: the same from two independent halves of the continuations.
        credit: method -> the name and the settings of its credit function, as `parse_credit` returns them.
        precise: for the first groups, the number of first episodes whose advantages are measured well. Ranks and signs
            are compared in these.
        gradients: computes gradients; None for a policy that has none.
        others: advantages by name that do not come from a credit function, such as measured ones from a few
            continuations. They get rows, but are never preferred.
    """
    found: dict[str, Advantages] = {
        **{method: credit_function(name)(groups, **settings) for method, (name, settings) in credit.items()},
        **(others or {}),
    }
    tasks = [(group.task_key, group.episodes[0].seed) for group in groups]
    vectors = None if gradients is None else _gradients(groups, {**found, MEASURED: measured}, credit, gradients)
    exact = None if vectors is None else vectors[MEASURED]
    first, second = ([*map(_flat, half, precise)] for half in halves)
    noise = _agreement(MEASURED, first, second, tasks, exact, exact)
    truth = [*map(_flat, measured, precise)]
    rows = []
    for method, of in found.items():
        estimated = [*map(_flat, of, precise)]
        rows.append(_agreement(method, estimated, truth, tasks, None if vectors is None else vectors[method], exact))
    if exact is None or vectors is None:
        return CreditAudit(rows, noise, [], found)
    rows.sort(key=lambda row: -math.inf if row.one is None else -row.one.value)
    cosines = {method: _one(of, exact, tasks) for method, of in vectors.items()}
    candidates = [row for row in rows if row.name in credit]
    best, preferred = cosines[candidates[0].name], []
    for row in candidates if best[0] else []:
        gaps = [a - b for a, b in zip(best[0], cosines[row.name][0], strict=True)]
        if _interval(gaps, best[1], (-2.0, 2.0))[0] <= 0:
            preferred.append(row.name)
    return CreditAudit(rows, noise, preferred, found)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's correlation, with mean ranks for equal values; None if one of both is constant."""
    a, b = (_ranks(np.asarray(values, np.float64)) for values in (first, second))
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def cosine(first: Vector, second: Vector) -> float:
    """Return the cosine of two vectors; 0 if one of them is 0."""
    length = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / length if length else 0.0


def _ranks(values: Vector) -> Vector:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    ranks: Vector = ((ends - counts + ends - 1) / 2)[places]
    return ranks


def _flat(of_group: Sequence[Sequence[float]], episodes: int) -> list[float]:
    # Differences of sums of floats are noise below this, which would break ties.
    return [round(value, 12) for of_episode in of_group[:episodes] for value in of_episode]


def _gradients(
    groups: Sequence[Group],
    found: Mapping[str, Advantages],
    credit: Mapping[str, tuple[str, Mapping[str, Any]]],
    gradients: Gradients,
) -> dict[str, list[Vector]]:
    """Return the gradient of every method in every group. Weights of episodes, as of `cwrpo`, are included."""
    weights = {method: WEIGHTS[name](groups) for method, (name, _) in credit.items() if name in WEIGHTS}
    vectors: dict[str, list[Vector]] = {method: [] for method in found}
    for number, group in enumerate(groups):
        scaled = [
            [
                [a * (weights[method][number][episode] if method in weights else 1.0) for a in of_turns]
                for episode, of_turns in enumerate(of[number])
            ]
            for method, of in found.items()
        ]
        for method, vector in zip(found, gradients(group, scaled), strict=True):
            vectors[method].append(np.asarray(vector, np.float64))
    return vectors


def _agreement(
    name: str,
    estimated: Sequence[Sequence[float]],
    truth: Sequence[Sequence[float]],
    tasks: Sequence[Any],
    vectors: Sequence[Vector] | None,
    exact: Sequence[Vector] | None,
) -> Agreement:
    ranks, rank_tasks, signs, sign_tasks = [], [], [], []
    for a, b, task in zip(estimated, truth, tasks, strict=False):
        correlation = rank_correlation(a, b)
        if correlation is not None or len(set(b)) > 1:  # a method that says nothing gets 0
            ranks.append(correlation or 0.0)
            rank_tasks.append(task)
        if clear := [x * y > 0 for x, y in zip(a, b, strict=True) if abs(y) > CLEAR]:
            signs.append(sum(clear) / len(clear))
            sign_tasks.append(task)
    one, many, silent = None, None, 0.0
    if vectors is not None and exact is not None:
        one = _mean(*_one(vectors, exact, tasks))
        silent = sum(not vector.any() for vector in vectors) / len(vectors)
        place = [tasks[:number].count(task) for number, task in enumerate(tasks)]  # among the groups of its task
        left, right = ([i for i, at in enumerate(place) if at % 2 == half] for half in (0, 1))
        if right:  # a half whose measured advantages are all 0 has no direction
            sums = [[np.sum([of[i] for i in half], axis=0) for half in (left, right)] for of in (vectors, exact)]
            if all(of_half.any() for of_half in sums[1]):
                many = (cosine(sums[0][0], sums[1][1]) + cosine(sums[0][1], sums[1][0])) / 2
    return Agreement(name, _mean(ranks, rank_tasks), _mean(signs, sign_tasks, 0.0), one, many, silent)


def _one(vectors: Sequence[Vector], exact: Sequence[Vector], tasks: Sequence[Any]) -> tuple[list[float], list[Any]]:
    """Return the cosine of each group's gradient with the mean exact one of the other groups of its task."""
    cosines, used = [], []
    for number, task in enumerate(tasks):
        others = [i for i, other in enumerate(tasks) if other == task and i != number]
        reference = np.sum([exact[i] for i in others], axis=0) if others else np.zeros(1)
        if reference.any():
            cosines.append(cosine(vectors[number], reference))
            used.append(task)
    return cosines, used


def _mean(values: Sequence[float], tasks: Sequence[Any], low: float = -1.0) -> GroupMean | None:
    if not values:
        return None
    return GroupMean(math.fsum(values) / len(values), _interval(values, tasks, (low, 1.0)), len(values))


def _interval(values: Sequence[float], tasks: Sequence[Any], bounds: Interval) -> Interval:
    low, high = bootstrap(values, tasks)  # of width 0 for a single task, and for equal values
    return bounded_interval(values, tasks, bounds) if math.isclose(low, high, abs_tol=1e-9) else (low, high)
