"""95 % intervals of a mean over tasks: of success rates, of any values, within strata, and over several runs."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from agentgym_flow.errors import BadSetting

RESAMPLES = 10_000
"""Resamples of a bootstrap."""

_Z = 1.959963984540054  # the 97.5 % point of the normal distribution
_DRAWS_AT_A_TIME = 1 << 22  # of `bootstrap_of_runs`, whose draws depend on it
_DRAWS_IN_CACHE = 1 << 18
_BOOTSTRAP_KEY = 20_240_229  # any fixed number: equal episodes, equal intervals

Interval = tuple[float, float]


def wilson(successes: float, count: float) -> Interval:
    """Return Wilson's 95 % score interval of a share (E. B. Wilson, JASA 22, 1927), within [0, 1].

    `count` may be an effective sample size, which need not be an integer; `successes` is then the share times it.
    """
    share = successes / count
    scale = 1 + _Z**2 / count
    centre = (share + _Z**2 / (2 * count)) / scale
    half = _Z / scale * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    # A share of 0 or 1 is itself a bound; rounding must not move it.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == count else centre + half
    return low, high


def share_interval(successes: Sequence[bool], tasks: Sequence[Hashable]) -> Interval:
    """Return the 95 % interval of a success rate in which several episodes may belong to one task.

    Episodes of one task are correlated, so they carry less information than as many episodes of different tasks. The
    interval is Wilson's with the effective sample size of a cluster sample in place of the number of episodes (E. Korn
    and B. Graubard, Survey Methodology 24, 1998): the variance of one independent episode divided by the cluster-robust
    variance of the share, and at most the number of episodes. Both variances include two additional tasks, one that
    always failed and one that always succeeded (after A. Agresti and B. Coull, The American Statistician 52, 1998);
    without them, tasks with equal outcomes would appear to have no variance. With one episode per task this is Wilson's
    interval; if everything succeeded or failed, it is Wilson's for the number of tasks.

    Args:
        successes: (n,): whether each episode succeeded; at least one.
        tasks: (n,): the task of each episode.
    """
    sums, counts = _by_task([float(one) for one in successes], tasks)
    number, total, usual = len(sums), len(successes), float(counts.mean())
    if number == total:
        return wilson(sum(successes), total)
    share = math.fsum(sums.tolist()) / total
    more_sums, more_counts = np.append(sums, [0.0, usual]), np.append(counts, [usual, usual])
    centre = float(more_sums.sum() / more_counts.sum())
    variance = float(((more_sums - centre * more_counts) ** 2).sum() / more_counts.sum() ** 2)
    size = min(centre * (1 - centre) / variance * number / (number + 2), float(total))
    return wilson(share * size, size)


def bootstrap(values: Sequence[float], tasks: Sequence[Hashable] | None = None) -> Interval:
    """Return the 95 % percentile bootstrap interval of the mean of `values` (Efron, 1979). It is deterministic.

    A resample draws whole tasks, with all their values (A. Davison and D. Hinkley, Bootstrap Methods, 1997, 3.8).

    Args:
        values: (n,): at least one.
        tasks: (n,): the task of each value; None: every value has a task of its own.
    """
    sums, counts = _by_task(values, range(len(values)) if tasks is None else tasks)
    size = len(sums)
    several = counts.max() > 1
    totals = _resampled_sums(np.random.Philox(key=_BOOTSTRAP_KEY), [sums, counts] if several else [sums], size)
    return percentiles(totals[:, 0] / (totals[:, 1] if several else size))


def mean_interval(values: Sequence[float], tasks: Sequence[Hashable]) -> Interval:
    """Return the 95 % interval of the mean of values, several of which may belong to one task.

    This is `share_interval` if every value is 0 or 1, and `bootstrap` otherwise: the bootstrap interval of equal values
    has width 0, which would claim certainty.

    Args:
        values: (n,): at least one.
        tasks: (n,): the task of each value.
    """
    if set(values) <= {0.0, 1.0}:
        return share_interval([value == 1.0 for value in values], tasks)
    return bootstrap(values, tasks)


def resampled_means(strata: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """Return the means of the columns of every stratum in each bootstrap resample: (`RESAMPLES`, strata, columns).

    Every stratum is resampled separately, so its share of the tasks does not change. A resample draws whole rows, one
    fewer than the stratum has (J. Rao and C. Wu, JASA 83, 1988): drawing as many would underestimate the variance of
    small strata. A stratum of one row has no variance here. Equal strata give equal resamples.

    Args:
        strata: for each stratum (tasks, columns); at least one task in each and the same number of columns in all.
    """
    bits = np.random.Philox(key=_BOOTSTRAP_KEY)
    means = np.empty((RESAMPLES, len(strata), strata[0].shape[1]))
    for place, table in enumerate(strata):
        draws = max(1, len(table) - 1)
        means[:, place] = _resampled_sums(bits, list(np.ascontiguousarray(table.T)), draws) / draws
    return means


def percentiles(resampled: npt.NDArray[np.float64]) -> Interval:
    """Return the 2.5 % and the 97.5 % quantile of a figure's values in the resamples, (resamples,)."""
    low, high = np.quantile(resampled, [0.025, 0.975])
    return float(low), float(high)


def _by_task(
    values: Sequence[float], tasks: Sequence[Hashable]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the sum and the number of the values of each task, in the order in which the tasks first occur."""
    places: dict[Hashable, int] = {}
    number = [places.setdefault(task, len(places)) for task in tasks]
    sums, counts = np.zeros(len(places)), np.zeros(len(places))
    np.add.at(sums, number, np.asarray(values, np.float64))
    np.add.at(counts, number, 1.0)
    return sums, counts


def bootstrap_of_runs(values: npt.ArrayLike) -> Interval:
    """Return the 95 % interval of the mean of `values` (runs, tasks) over the populations of runs and of tasks.

    Every resample draws runs and tasks independently of each other (A. Owen, Annals of Applied Statistics 1, 2007),
    because the same tasks are played in all runs. It draws one fewer of each than there are (J. Rao and C. Wu, JASA 83,
    1988): drawing as many would underestimate the variance between a handful of runs. With a single run, the interval
    covers the choice of tasks only.

    Raises `BadSetting` if `values` is empty or does not have two dimensions.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise BadSetting(f"the values of runs must be a table of runs and tasks, got shape {table.shape}")
    bits = np.random.Philox(key=_BOOTSTRAP_KEY)
    runs, tasks = (max(1, size - 1) for size in table.shape)
    rows = max(1, _DRAWS_AT_A_TIME // (runs + tasks))
    means = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, rows):
        some = means[start : start + rows]
        chosen = _draws(bits, (len(some), runs), len(table))
        share = (chosen[:, :, None] == np.arange(len(table))).mean(axis=1)
        by_task = np.take_along_axis(share @ table, _draws(bits, (len(some), tasks), table.shape[1]), axis=1)
        some[:] = by_task.mean(axis=1)
    return percentiles(means)


def _resampled_sums(
    bits: np.random.Philox, columns: Sequence[npt.NDArray[np.float64]], draws: int
) -> npt.NDArray[np.float64]:
    """Return the sums of `columns`, each (rows,), over `draws` rows drawn for each resample: (resamples, columns)."""
    size = len(columns[0])
    chunk = max(1, _DRAWS_IN_CACHE // draws)
    sums = np.empty((RESAMPLES, len(columns)))
    for start in range(0, RESAMPLES, chunk):
        some = sums[start : start + chunk]
        chosen = _draws(bits, (len(some), draws), size)
        for place, column in enumerate(columns):
            some[:, place] = column[chosen].sum(axis=1)
    return sums


def _draws(bits: np.random.Philox, shape: tuple[int, int], below: int) -> npt.NDArray[np.intp]:
    # NumPy guarantees the raw words of a bit generator across versions, unlike those of `Generator.integers`.
    words = bits.random_raw(shape[0] * shape[1]) >> np.uint64(32)
    return ((words * np.uint64(below)) >> np.uint64(32)).astype(np.intp).reshape(shape)
