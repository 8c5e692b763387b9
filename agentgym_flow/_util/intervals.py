"""95 % intervals of a mean over tasks: of success rates, of any values, within strata, and over several runs."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from agentgym_flow.errors import BadSetting

RESAMPLES = 10_000
"""Resamples of a bootstrap."""

_Z = 1.959963984540054  # the 97.5 % point of the normal distribution
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)  # of `t_quantile`
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


@lru_cache(maxsize=1 << 16)
def exact_interval(successes: int, count: int, error: float = 0.05) -> Interval:
    """Return the interval of a share that misses it with a probability of at most `error`, for any share and count.

    C. Clopper and E. Pearson, Biometrika 26, 1934: each end is the share at which the count of successes, or one
    further away, has the probability `error` / 2.
    """

    def lowest(wins: int) -> float:
        if wins == 0:
            return 0.0
        of = np.arange(wins, count + 1)
        factorials = np.concatenate([[0.0], np.log(np.arange(1, count + 1)).cumsum()])
        ways = factorials[count] - factorials[of] - factorials[count - of]
        low, high = 0.0, wins / count
        for _ in range(40):
            middle = (low + high) / 2
            tail = np.exp(ways + of * math.log(middle) + (count - of) * math.log1p(-middle)).sum()
            low, high = (middle, high) if tail < error / 2 else (low, middle)
        return low

    return lowest(successes), 1 - lowest(count - successes)


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

    This is `share_interval` if every value is 0 or 1, and `bootstrap` otherwise. The bootstrap interval of equal values
    has width 0, which would claim certainty, so these get `bounded_interval`.

    Args:
        values: (n,): at least one, each in [0, 1].
        tasks: (n,): the task of each value.
    """
    if set(values) <= {0.0, 1.0}:
        return share_interval([value == 1.0 for value in values], tasks)
    return bootstrap(values, tasks) if len(set(values)) > 1 else bounded_interval(values, tasks, (0.0, 1.0))


def bounded_interval(values: Sequence[float], tasks: Sequence[Hashable], bounds: Interval) -> Interval:
    """Return the 95 % interval of the mean of values within bounds, such as paired differences of success within -1, 1.

    Two additional tasks, one at each bound, are included in the mean and in its cluster-robust variance, so that few or
    equal values never give an interval of width 0. For differences of success with one episode per task this is the
    adjusted Wald interval of paired shares (D. Bonett and R. Price, Journal of Educational and Behavioral Statistics
    37, 2012).

    Args:
        values: (n,): at least one, each within the bounds.
        tasks: (n,): the task of each value.
        bounds: the least and the greatest possible value. The interval is cut there.
    """
    sums, counts = _by_task(values, tasks)
    usual = counts.mean()
    sums, counts = np.append(sums, [bounds[0] * usual, bounds[1] * usual]), np.append(counts, [usual, usual])
    centre = float(sums.sum() / counts.sum())
    half = _Z * math.sqrt(((sums - centre * counts) ** 2).sum()) / float(counts.sum())
    mean = math.fsum(values) / len(values)  # the interval holds it, however small the sample
    return max(bounds[0], min(centre - half, mean)), min(bounds[1], max(centre + half, mean))


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


def interval_of_runs(values: npt.ArrayLike, bounds: Interval = (-math.inf, math.inf)) -> Interval:
    """Return the 95 % interval of the mean of `values` over the populations of runs and of tasks.

    Runs and tasks are crossed random effects, because the same tasks are played in all runs. The variance of the mean
    follows from the mean squares of runs, tasks and residuals (S. Searle, G. Casella and C. McCulloch, Variance
    Components, 1992). The interval is Student's t with the degrees of freedom of F. Satterthwaite (Biometrics Bulletin
    2, 1946): close to the number of runs minus 1 if runs differ much, and more if they differ little.

    An estimated component of variance, between runs or between tasks, may be negative; it then counts as 0. The
    variance of the mean is therefore at least the largest mean square, divided by the number of values. The mean
    squares include that of the residuals: without it, means that agree by chance would make the interval too narrow.

    With a single run the interval covers the choice of tasks only, with a single task that of runs only. If all values
    are equal, the interval of several tasks with finite bounds is `bounded_interval`; otherwise both ends are the mean.

    Args:
        values: (runs, tasks).
        bounds: the least and the greatest possible mean, such as (0, 1) for success rates. The interval is cut there.

    Raises `BadSetting` if `values` is empty or does not have two dimensions.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise BadSetting(f"the values of runs must be a table of runs and tasks, got shape {table.shape}")
    centre = float(table.mean())
    variance, freedom = _variance_of_mean(table)
    tasks = table.shape[1]
    if variance == 0 and tasks > 1 and math.isfinite(bounds[1] - bounds[0]):
        return bounded_interval([centre] * tasks, range(tasks), bounds)
    half = t_quantile(freedom) * math.sqrt(variance) if variance > 0 else 0.0
    low, high = (min(max(end, bounds[0]), bounds[1]) for end in (centre - half, centre + half))
    return low, high


def _variance_of_mean(table: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the variance of the mean of a table (runs, tasks), and its degrees of freedom."""
    runs, tasks = table.shape
    if runs == 1 or tasks == 1:
        count = table.size
        return (float(table.var(ddof=1)) / count, count - 1) if count > 1 else (0.0, 1)
    by_run, by_task = table.mean(axis=1, keepdims=True), table.mean(axis=0, keepdims=True)
    residuals = table - by_run - by_task + table.mean()
    freedoms = np.array([runs - 1, tasks - 1, (runs - 1) * (tasks - 1)])
    squares = np.array([tasks * by_run.var(ddof=1), runs * by_task.var(ddof=1), (residuals**2).sum() / freedoms[2]])
    # The maximum sets negative components to 0: without runs' it is the mean square of tasks, without tasks' that of
    # runs, and without both that of the residuals.
    total = max(squares[0] + squares[1] - squares[2], *squares)
    variance = total
    if total == 0:
        return 0.0, 1
    if total < 1e-150:  # its square is too small for a float
        squares, total = squares / total, 1.0
    freedom = total**2 / (squares**2 / freedoms).sum()
    return float(variance / table.size), max(float(freedom), float(min(runs, tasks) - 1))


@lru_cache(maxsize=1024)
def t_quantile(freedom: float, level: float = 0.975) -> float:
    """Return a quantile of Student's t distribution, by default that of 97.5 %.

    With t = sqrt(freedom) tan(a), the probability between -t and t is proportional to the integral of
    cos(x)^(freedom - 1) over -a < x < a. The integrand is smooth, so Gauss-Legendre quadrature is accurate.

    Args:
        freedom: degrees of freedom, at least 1; need not be an integer.
        level: the probability below the quantile, from 0.5 to 0.975.
    """
    scale = 2 / math.sqrt(math.pi) * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    low, high = 0.0, min(math.pi / 2, 13 / math.sqrt(freedom))  # no quantile is above that of one degree, 12.7
    for _ in range(60):
        middle = (low + high) / 2
        between = scale * middle / 2 * float(_WEIGHTS @ np.cos(middle / 2 * (1 + _NODES)) ** (freedom - 1))
        low, high = (middle, high) if between < 2 * level - 1 else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _resampled_sums(
    bits: np.random.Philox, columns: Sequence[npt.NDArray[np.float64]], draws: int
) -> npt.NDArray[np.float64]:
    """Return the sums of `columns`, each (rows,), over `draws` rows drawn for each resample: (resamples, columns)."""
    size = len(columns[0])
    chunk = max(1, _DRAWS_IN_CACHE // draws)
    sums = np.empty((RESAMPLES, len(columns)))
    for start in range(0, RESAMPLES, chunk):
        some = sums[start : start + chunk]
        # NumPy guarantees the raw words of a bit generator across versions, unlike those of `Generator.integers`.
        words = bits.random_raw(len(some) * draws) >> np.uint64(32)
        chosen = ((words * np.uint64(size)) >> np.uint64(32)).astype(np.intp).reshape(len(some), draws)
        for place, column in enumerate(columns):
            some[:, place] = column[chosen].sum(axis=1)
    return sums
