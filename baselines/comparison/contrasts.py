"""What the figures of several runs say: means, intervals, and which orders are beyond chance.

All intervals are 95 % percentile bootstrap over training runs and test tasks, both drawn anew
(`intervals.bootstrap_of_runs`). Differences are paired: the same seed, so the same warm start, and the
same task.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.intervals import Interval, bootstrap_of_runs
from agentgym_flow.errors import BadData
from baselines.comparison.outcome import Outcome, Raw

FEWEST_RUNS = 3
"""An order is claimed of no fewer runs."""

DENSE = ("gigpo", "rewardflow", "graphgpo")
"""Credit functions that judge every turn; the others give one advantage to all turns of an episode."""

Runs = Mapping[int, Outcome]
"""The runs of one row by seed."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """How much `first` is above `second` in test success, with the interval of the difference.

    Attributes:
        first, second: what is compared, both with sampled or both with the most likely actions.
        mean, low, high: shares in [-1, 1].
        runs: how many pairs of runs.
    """

    first: str
    second: str
    mean: float
    low: float
    high: float
    runs: int

    @property
    def order(self) -> int:
        """1 if `first` is ahead, -1 if it is behind, 0 if these runs do not tell."""
        if self.runs < FEWEST_RUNS:
            return 0
        return int(self.low > 0) - int(self.high < 0)

    @property
    def reversed(self) -> Contrast:
        """The same seen from the other side."""
        return Contrast(self.second, self.first, -self.mean, -self.high, -self.low, self.runs)


def mean_success(runs: Runs, *, greedy: bool = False) -> tuple[float, Interval]:
    """Return the mean test success of runs, and its interval."""
    table = np.stack([runs[seed].successes(greedy=greedy) for seed in sorted(runs)])
    return float(table.mean()), bootstrap_of_runs(table)


def contrast(first: str, a: Sequence[Runs], second: str, b: Sequence[Runs], *, greedy: bool = False) -> Contrast | None:
    """Compare the mean of the rows `a` with that of `b` on the seeds that all have; None when there are none.

    With `greedy` successes are those of the most likely actions; None where a row has none, as random play.

    Raises `BadData` when the test tasks are not the same.
    """
    seeds = sorted(set.intersection(*(set(runs) for runs in (*a, *b))))
    if not seeds or (greedy and not all(runs[seed].greedy for runs in (*a, *b) for seed in seeds)):
        return None
    if len({runs[seed].tasks for runs in (*a, *b) for seed in seeds}) != 1:
        raise BadData(f"{first} and {second} were not examined on the same test tasks: run one of them again")
    table = _mean_table(a, seeds, greedy) - _mean_table(b, seeds, greedy)
    return Contrast(first, second, float(table.mean()), *bootstrap_of_runs(table), len(seeds))


def _mean_table(rows: Sequence[Runs], seeds: Sequence[int], greedy: bool) -> npt.NDArray[np.float64]:
    tables = [np.stack([runs[seed].successes(greedy=greedy) for seed in seeds]) for runs in rows]
    return np.asarray(np.mean(tables, axis=0), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Compared:
    """What the algorithms of a setting are to each other.

    Attributes:
        pairs: every two of them once; the later one is `first`, so that the first algorithm is what to beat.
        greedy: the same with the most likely actions.
        dense: all that judge turns, taken together, against all that judge episodes; None without both.
    """

    pairs: list[Contrast]
    greedy: list[Contrast]
    dense: Contrast | None

    @classmethod
    def of(cls, raw: Raw, setting: str) -> Compared:
        """Compare the algorithms of a setting. Raises `BadData` when their test tasks are not the same."""
        runs = {algo: raw.runs(setting, algo) for algo in raw.header["algos"]}
        sampled, likely = (
            [contrast(b, [runs[b]], a, [runs[a]], greedy=greedy) for a, b in itertools.combinations(runs, 2)]
            for greedy in (False, True)
        )
        dense = [runs[algo] for algo in runs if algo in DENSE]
        episodes = [runs[algo] for algo in runs if algo not in DENSE]
        together = contrast("credit for turns", dense, "credit for episodes", episodes) if dense and episodes else None
        return cls([one for one in sampled if one is not None], [one for one in likely if one is not None], together)

    def between(self, first: str, second: str, *, greedy: bool = False) -> Contrast | None:
        """Return how much `first` is above `second`, whichever comes first in the comparison; None if unknown."""
        for pair in self.greedy if greedy else self.pairs:
            if (pair.first, pair.second) == (first, second):
                return pair
            if (pair.second, pair.first) == (first, second):
                return pair.reversed
        return None


@dataclass(frozen=True, slots=True)
class Mean:
    """A learning curve: the mean of runs at the same numbers of episodes; the interval is over runs alone.

    `core_seconds` are means of learning, from the end of the warm start on; None where they were not recorded.
    """

    episodes: list[int]
    core_seconds: list[float] | None
    success: list[float]
    low: list[float]
    high: list[float]

    def episodes_until(self, success: float) -> float | None:
        """Return the training episodes after which the curve first reaches `success`; None if it never does.

        Between two validations the curve is taken as straight.
        """
        before = (0, -np.inf)
        for count, value in zip(self.episodes, self.success, strict=True):
            if value >= success:
                rise = value - before[1]
                return count if np.isinf(rise) else count - (count - before[0]) * (value - success) / rise
            before = count, value
        return None


def mean_curve(runs: Runs, starts: Runs) -> Mean:
    """Return the mean validation success of runs, from the warm starts on.

    Raises `BadData` when the runs were not validated after the same numbers of episodes.
    """
    seeds = sorted(runs)
    curves = [[*starts[seed].curve, *runs[seed].curve] for seed in seeds]
    if len({tuple(point.episodes for point in curve) for curve in curves}) != 1:
        raise BadData("the runs of a curve were validated at different moments: run them again with one setting")
    timed = all(point.core_seconds is not None for curve in curves for point in curve)
    curve = Mean([], [] if timed else None, [], [], [])
    for moment in zip(*curves, strict=True):
        values = [point.valid_success for point in moment]
        low, high = bootstrap_of_runs([[value] for value in values])
        curve.episodes.append(moment[0].episodes)
        if curve.core_seconds is not None:
            curve.core_seconds.append(float(np.mean([point.core_seconds for point in moment])))
        curve.success.append(float(np.mean(values)))
        curve.low.append(low)
        curve.high.append(high)
    return curve
