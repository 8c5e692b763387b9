"""Statistics of several runs: means, intervals, and which orders are significant.

All intervals are 95 % intervals of Student's t over the populations of training runs and of test tasks
(`intervals.interval_of_runs`), except those of numbers of episodes, which are bootstrapped over runs. Differences are
paired by seed, and so by warm start, and by task.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.intervals import Interval, interval_of_runs
from agentgym_flow.errors import BadData
from baselines.comparison.outcome import Outcome, Raw

FEWEST_RUNS = 3
"""The least number of runs for claiming an order."""

_DRAWS = 1000  # of the bootstrap of numbers of episodes

Runs = Mapping[int, Outcome]
"""The runs of one row by seed."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """The difference in test success of `first` and `second`, with its interval.

    Attributes:
        first, second: the names of the rows, both with sampled or both with greedy actions.
        mean, low, high: differences in [-1, 1].
        runs: number of pairs of runs.
    """

    first: str
    second: str
    mean: float
    low: float
    high: float
    runs: int

    @property
    def order(self) -> int:
        """1 if `first` is ahead, -1 if it is behind, 0 if inconclusive."""
        if self.runs < FEWEST_RUNS:
            return 0
        return int(self.low > 0) - int(self.high < 0)

    @property
    def reversed(self) -> Contrast:
        """The contrast of `second` and `first`."""
        return Contrast(self.second, self.first, -self.mean, -self.high, -self.low, self.runs)


def mean_success(runs: Runs, *, greedy: bool = False) -> tuple[float, Interval]:
    """Return the mean test success of runs, and its interval."""
    table = np.stack([runs[seed].successes(greedy=greedy) for seed in sorted(runs)])
    return float(table.mean()), interval_of_runs(table, (0, 1))


def contrast(first: str, a: Sequence[Runs], second: str, b: Sequence[Runs], *, greedy: bool = False) -> Contrast | None:
    """Compare the means of the rows `a` and `b` on their common seeds; None if there are none.

    With `greedy` actions, None also if a row has no greedy results, as random play.

    Raises `BadData` if the test tasks differ.
    """
    seeds = sorted(set.intersection(*(set(runs) for runs in (*a, *b))))
    if not seeds or (greedy and not all(runs[seed].greedy for runs in (*a, *b) for seed in seeds)):
        return None
    if len({runs[seed].tasks for runs in (*a, *b) for seed in seeds}) != 1:
        raise BadData(f"{first} and {second} were not evaluated on the same test tasks: run one of them again")
    table = _mean_table(a, seeds, greedy) - _mean_table(b, seeds, greedy)
    return Contrast(first, second, float(table.mean()), *interval_of_runs(table, (-1, 1)), len(seeds))


def _mean_table(rows: Sequence[Runs], seeds: Sequence[int], greedy: bool) -> npt.NDArray[np.float64]:
    tables = [np.stack([runs[seed].successes(greedy=greedy) for seed in seeds]) for runs in rows]
    return np.asarray(np.mean(tables, axis=0), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class SettingComparison:
    """All comparisons of a setting's algorithms.

    Attributes:
        pairs: all pairs; the later algorithm is `first`, so that the first algorithm is the reference.
        greedy: the same with greedy actions.
        dense: the algorithms with credit for turns against those with credit for episodes (`Raw.pools`), with
            sampled actions; None without both.
    """

    pairs: list[Contrast]
    greedy: list[Contrast]
    dense: Contrast | None

    @classmethod
    def of(cls, raw: Raw, setting: str) -> SettingComparison:
        """Compare the algorithms of a setting. Raises `BadData` if their test tasks differ."""
        runs = {algo: raw.runs(setting, algo) for algo in raw.header["algos"]}
        sampled, likely = (
            [contrast(b, [runs[b]], a, [runs[a]], greedy=greedy) for a, b in itertools.combinations(runs, 2)]
            for greedy in (False, True)
        )
        dense, episodes = ([runs[algo] for algo in pool] for pool in raw.pools)
        together = contrast("credit for turns", dense, "credit for episodes", episodes) if dense and episodes else None
        return cls([one for one in sampled if one is not None], [one for one in likely if one is not None], together)

    def between(self, first: str, second: str, *, greedy: bool = False) -> Contrast | None:
        """Return the contrast of `first` and `second`, in this order; None if unknown."""
        for pair in self.greedy if greedy else self.pairs:
            if (pair.first, pair.second) == (first, second):
                return pair
            if (pair.second, pair.first) == (first, second):
                return pair.reversed
        return None


@dataclass(frozen=True, slots=True)
class MeanCurve:
    """A learning curve: the mean of runs at the same numbers of episodes, with intervals over runs alone.

    `core_seconds` are means of training time since the end of the warm start; None if they were not recorded.
    """

    episodes: list[int]
    core_seconds: list[float] | None
    success: list[float]
    low: list[float]
    high: list[float]

    def episodes_until(self, success: float) -> float | None:
        """Return the training episodes after which the curve first reaches `success`; None if it never does.

        The curve is linear between validations.
        """
        return _episodes_until(self.episodes, self.success, success)


def _episodes_until(episodes: Sequence[int], successes: Iterable[float], success: float) -> float | None:
    before = (0, -math.inf)
    for count, value in zip(episodes, successes, strict=True):
        if value >= success:
            rise = value - before[1]
            return count if math.isinf(rise) else count - (count - before[0]) * (value - success) / rise
        before = count, value
    return None


@dataclass(frozen=True, slots=True)
class Reached:
    """When a mean curve first reaches the final success of another one.

    Attributes:
        episodes: training episodes; None if it never does.
        interval: the 95 % interval of `episodes`, where infinity means never; None with fewer than `FEWEST_RUNS` runs.
    """

    episodes: float | None
    interval: Interval | None


def reached(rows: Mapping[str, Runs], starts: Runs, target: str) -> dict[str, Reached]:
    """Return when the mean curve of each row first reaches the final success of the row `target`.

    Intervals are percentiles of a bootstrap over seeds: every resample draws the same seeds for all rows, so that both
    the target and the curves vary. It draws one fewer seed than there are (J. Rao and C. Wu, JASA 83, 1988), because
    drawing as many would underestimate the variation of a handful of runs. It is deterministic.

    Raises `BadData` if the runs of a row were validated after different numbers of episodes.
    """
    curves = {name: mean_curve(runs, starts) for name, runs in rows.items()}
    goal = curves[target].success[-1]
    until = {name: curve.episodes_until(goal) for name, curve in curves.items()}
    seeds = sorted(set.intersection(*(set(runs) for runs in rows.values())))
    if len(seeds) < FEWEST_RUNS:
        return {name: Reached(count, None) for name, count in until.items()}
    tables = {name: _curves(runs, starts, seeds) for name, runs in rows.items()}
    drawn: dict[str, list[float]] = {name: [] for name in rows}
    for chosen in np.random.default_rng(0).integers(len(seeds), size=(_DRAWS, len(seeds) - 1)):
        goal = float(tables[target][chosen, -1].mean())
        for name, table in tables.items():
            count = _episodes_until(curves[name].episodes, table[chosen].mean(axis=0).tolist(), goal)
            drawn[name].append(math.inf if count is None else count)
    # An element of the sample, because nothing lies between a number and never.
    ends = {name: np.quantile(counts, [0.025, 0.975], method="inverted_cdf") for name, counts in drawn.items()}
    return {name: Reached(count, (float(ends[name][0]), float(ends[name][1]))) for name, count in until.items()}


def _curves(runs: Runs, starts: Runs, seeds: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the validation success of runs, (seeds, validations), beginning with the warm starts."""
    return np.array([[p.valid_success for p in (*starts[seed].curve, *runs[seed].curve)] for seed in seeds])


def mean_curve(runs: Runs, starts: Runs) -> MeanCurve:
    """Return the mean validation success of runs, starting with the warm starts.

    Raises `BadData` if the runs were validated after different numbers of episodes.
    """
    seeds = sorted(runs)
    curves = [[*starts[seed].curve, *runs[seed].curve] for seed in seeds]
    if len({tuple(point.episodes for point in curve) for curve in curves}) != 1:
        raise BadData("the runs of a curve were validated at different times: run them again with one setting")
    timed = all(point.core_seconds is not None for curve in curves for point in curve)
    curve = MeanCurve([], [] if timed else None, [], [], [])
    for moment in zip(*curves, strict=True):
        values = [point.valid_success for point in moment]
        low, high = interval_of_runs([[value] for value in values], (0, 1))
        curve.episodes.append(moment[0].episodes)
        if curve.core_seconds is not None:
            curve.core_seconds.append(float(np.mean([point.core_seconds for point in moment])))
        curve.success.append(float(np.mean(values)))
        curve.low.append(low)
        curve.high.append(high)
    return curve
