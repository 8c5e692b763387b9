"""Coverage of a board's intervals, and the time for computing a board with many entries.

`python benchmarks/board_statistics.py [--boards N] [--entries N]`

Coverage: a policy solves each task with a probability drawn from a beta distribution with a known mean, and tries every
task three times. The intra-class correlation is the fraction of the variance of a single episode that is between tasks:
at 0 all tasks are alike, at 1 each is always or never solved. "Each episode alone" is Wilson's interval, which treats
attempts at one task as independent. The bootstrap is slow and uses only the first tenth of the boards. Mean widths in
points are in parentheses.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from _timing import arguments, seconds

from agentgym_flow._util.intervals import Interval, bootstrap, wilson
from agentgym_flow.leaderboard.comparison import paired_p_value, rank_ranges
from agentgym_flow.leaderboard.statistics import clustered_mean, iqm, over_tracks, stratified_mean

ATTEMPTS = 3
CASES = [(500, 0.7), (100, 0.7), (500, 0.98)]
CORRELATIONS = (0.0, 0.3, 0.7, 0.95)


def played(rng: np.random.Generator, tasks: int, mean: float, correlation: float) -> npt.NDArray[np.float64]:
    """Return the successes of a policy, (tasks, attempts)."""
    if correlation == 0:
        chance = np.full((tasks, 1), mean)
    else:
        size = 1 / correlation - 1  # beta distribution with variance mean (1 - mean) / (size + 1)
        chance = rng.beta(mean * size, (1 - mean) * size, (tasks, 1))
    return (rng.random((tasks, ATTEMPTS)) < chance).astype(float)


def by_episode(scores: npt.NDArray[np.float64]) -> Interval:
    """Return the interval that treats all episodes as independent."""
    return wilson(scores.sum(), scores.size)


def by_task(scores: npt.NDArray[np.float64]) -> Interval:
    """Return the bootstrap of tasks, which `clustered_mean` does not use for successes."""
    return bootstrap(scores.mean(axis=1).tolist())


def clustered(scores: npt.NDArray[np.float64]) -> Interval:
    """Return the interval on a board."""
    return clustered_mean(scores)[1:]


def coverage(tasks: int, mean: float, correlation: float, boards: int) -> str:
    """Return a row of the table of coverage."""
    rng = np.random.default_rng(0)
    samples = [played(rng, tasks, mean, correlation) for _ in range(boards)]
    cells = []
    for interval in (by_episode, by_task, clustered):
        found = [interval(scores) for scores in (samples[: boards // 10] if interval is by_task else samples)]
        held = np.mean([low <= mean <= high for low, high in found])
        width = np.mean([high - low for low, high in found])
        cells.append(f"{100 * held:.1f} % ({100 * width:.1f})")
    return f"| {tasks} | {100 * mean:.0f} % | {correlation} | {' | '.join(cells)} |"


def aggregates(boards: int) -> list[str]:
    """Return the rows of the table of means over task types and tracks, with true values from 20 to 90 %."""
    rng = np.random.default_rng(3)
    truths = np.linspace(0.2, 0.9, 6)
    types = np.repeat(truths, 84).astype(str).tolist()
    truth = float(truths.mean())
    found: dict[str, list[tuple[float, Interval]]] = {}
    for _ in range(boards):
        parts = [played(rng, 84, mean, 0.5) for mean in truths]
        scores = np.concatenate(parts)
        tracks = over_tracks(parts)
        for name, interval in {
            "mean, clustered": (truth, clustered_mean(scores)[1:]),
            "mean, stratified by type": (truth, stratified_mean(scores, types)[1:]),
            "mean over tracks": (truth, tracks.mean[1:]),
            "IQM over tracks": (iqm(np.repeat(truths, ATTEMPTS)), tracks.iqm[1:]),
        }.items():
            found.setdefault(name, []).append(interval)
    return [
        f"| {name} | {100 * np.mean([low <= true <= high for true, (low, high) in cases]):.1f} % "
        f"| {100 * np.mean([high - low for _, (low, high) in cases]):.1f} |"
        for name, cases in found.items()
    ]


def orders(tasks: int, boards: int) -> str:
    """Return a row of the last table: how often equal policies seem to differ, and better ones are recognised."""
    rng = np.random.default_rng(1)
    alike, apart = 0, 0
    for _ in range(boards):
        chance = 0.95 * rng.beta(0.7, 0.3, (tasks, 1))
        better = chance + 0.05
        first, second, third = (rng.random((tasks, ATTEMPTS)) < one for one in (chance, chance, better))
        alike += paired_p_value(first, second) <= 0.05
        apart += paired_p_value(third, first) <= 0.05
    return f"| {tasks} | {100 * alike / boards:.1f} % | {100 * apart / boards:.1f} % |"


def times(entries: int) -> list[str]:
    """Return the rows of the table of times."""
    rng = np.random.default_rng(2)
    board = np.stack([played(rng, 500, mean, 0.5) for mean in np.linspace(0.3, 0.9, entries)])
    partial = board * rng.random((entries, 500, 1))
    types = [str(task % 6) for task in range(500)]
    work = {
        "mean and interval of an entry, successes": lambda: clustered_mean(board[0]),
        "mean and interval of an entry, other scores": lambda: clustered_mean(partial[0]),
        "stratified by six types": lambda: stratified_mean(board[0], types),
        "an entry over five tracks": lambda: over_tracks(list(board[:5])),
        "one paired test, successes": lambda: paired_p_value(board[0], board[1]),
        "one paired test, other scores": lambda: paired_p_value(partial[0], partial[1]),
        f"rank ranges of {entries} entries, successes": lambda: rank_ranges(list(board)),
        f"rank ranges of {entries} entries, other scores": lambda: rank_ranges(list(partial)),
    }
    return [f"| {name} | {1000 * seconds(run):,.1f} |" for name, run in work.items()]


def main() -> None:
    """Print the tables."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--boards", type=int, default=2000, help="simulated entries of a row (default 2000)")
    parser.add_argument("--entries", type=int, default=50, help="entries of the board that is timed (default 50)")
    options = parser.parse_args()
    print("| what, 500 tasks x 3 attempts | CPU ms |\n|---|---|")
    for row in times(options.entries):
        print(row, flush=True)
    print(
        "\n| tasks | truth | correlation | each episode alone | bootstrap of tasks | on the board |\n"
        + "|---" * 6
        + "|"
    )
    for tasks, mean in CASES:
        for correlation in CORRELATIONS:
            print(coverage(tasks, mean, correlation, options.boards), flush=True)
    print("\n| 6 parts of 84 tasks | holds the truth | width |\n|---|---|---|")
    for row in aggregates(options.boards // 10):
        print(row, flush=True)
    print("\n| tasks | equal policies told apart | five points better, found |\n|---|---|---|")
    for tasks in (100, 500):
        print(orders(tasks, options.boards), flush=True)


if __name__ == "__main__":
    main()
