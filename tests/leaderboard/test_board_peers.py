"""The figures of a board against SciPy, statsmodels and rliable, where these are installed.

None of them is a dependency. In an environment of their own, from the root of the repository:

    pip install rliable==1.2.0 "pandas<3" gymnasium pytest
    python -m pytest --noconftest tests/leaderboard/test_board_peers.py
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from agentgym_flow.leaderboard.comparison import compare, holm, paired_p_value
from agentgym_flow.leaderboard.statistics import clustered_mean, iqm, optimality_gap, over_tracks, stratified_mean

WHY = "a peer of this test only; `pip install rliable==1.2.0` brings it"
stats: Any = pytest.importorskip("scipy.stats", reason=WHY)

RESAMPLES = 20_000


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def same(ours: tuple[float, float], theirs: tuple[float, float], within: float = 0.04) -> None:
    """Both ends agree within a share of the width: four standard errors of a quantile of 10,000 resamples."""
    assert ours == pytest.approx(theirs, abs=within * (theirs[1] - theirs[0]))


def scipy_interval(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    found = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=RESAMPLES, rng=rng(1))
    return found.confidence_interval.low, found.confidence_interval.high


class TestSciPy:
    @staticmethod
    def test_the_clustered_interval_is_the_bootstrap_of_task_means() -> None:
        scores = rng(0).beta(0.5, 0.5, (150, 1)) * rng(1).random((150, 3))
        same(clustered_mean(scores)[1:], scipy_interval(scores.mean(axis=1)))

    @staticmethod
    def test_the_interval_of_a_difference_is_that_of_scipy() -> None:
        first, second = rng(2).random((2, 120, 2)) * [[[1.0]], [[0.9]]]
        same(compare(first, second).difference[1:], scipy_interval((first - second).mean(axis=1)))

    @staticmethod
    def test_one_type_is_the_plain_bootstrap_of_one_task_fewer() -> None:
        values = rng(3).random(200)
        low, high = scipy_interval(values)
        centre, wider = values.mean(), math.sqrt(200 / 199)
        expected = centre - (centre - low) * wider, centre + (high - centre) * wider
        same(stratified_mean(values[:, None], ["a"] * 200)[1:], expected)

    @staticmethod
    @pytest.mark.parametrize("size", [1, 3, 4, 15, 16, 1000])
    def test_interquartile_mean_is_the_trimmed_mean(size: int) -> None:
        values = rng(size).random(size)
        assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25), rel=1e-13)

    @staticmethod
    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize("successes", [True, False])
    def test_with_all_assignments_p_values_are_those_of_scipy(seed: int, successes: bool) -> None:
        first, second = rng(seed).random((2, 12, 2))
        if successes:
            first, second = np.rint(first), np.rint(second)
        theirs = stats.permutation_test(
            (first.mean(axis=1), second.mean(axis=1)),
            lambda a, b, axis: (a - b).mean(axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=np.inf,
        )
        assert paired_p_value(first, second) == pytest.approx(theirs.pvalue, rel=1e-12)

    @staticmethod
    @pytest.mark.parametrize("successes", [True, False])
    def test_with_random_assignments_p_values_are_near_those_of_scipy(successes: bool) -> None:
        first, second = rng(11).random((2, 300, 3)) < [[[0.52]], [[0.46]]]
        scale = 1.0 if successes else rng(12).random((300, 1))
        ours = paired_p_value(first * scale, second * scale)
        theirs = stats.permutation_test(
            ((first * scale).mean(axis=1), (second * scale).mean(axis=1)),
            lambda a, b, axis: (a - b).mean(axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=RESAMPLES,
            batch=1000,
            rng=rng(13),
        )
        assert 0.001 < ours < 0.5
        assert ours == pytest.approx(theirs.pvalue, abs=4 * math.sqrt(ours / RESAMPLES))

    @staticmethod
    @pytest.mark.parametrize("tasks", [8, 25, 50])
    def test_differences_that_are_ranks_are_the_exact_wilcoxon_test(tasks: int) -> None:
        """The i-th task differs by i of so many attempts."""
        sign = rng(tasks).random(tasks) < 0.65
        wins = np.tril(np.ones((tasks, tasks)))
        first, second = wins * sign[:, None], wins * ~sign[:, None]
        differences = (first - second).sum(axis=1)
        theirs = stats.wilcoxon(differences, method="exact").pvalue
        assert paired_p_value(first, second) == pytest.approx(theirs, rel=1e-9)

    @staticmethod
    @pytest.mark.parametrize(("won", "lost"), [(14, 5), (130, 90), (300, 200)])
    def test_single_attempts_are_the_exact_binomial_test(won: int, lost: int) -> None:
        first = np.repeat([1.0, 0.0], [won, lost])[:, None]
        theirs = stats.binomtest(won, won + lost).pvalue
        assert paired_p_value(first, 1 - first) == pytest.approx(theirs, rel=1e-9)


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_equal_entries_have_the_p_value_of_mcnemars_exact_test() -> None:
    tables = pytest.importorskip("statsmodels.stats.contingency_tables", reason=WHY)
    successes = np.repeat([1.0, 0.0], [40, 10])[:, None]
    assert paired_p_value(successes, successes) == tables.mcnemar([[40, 0], [0, 10]]).pvalue == 1.0
    assert tables.mcnemar([[40, 0], [0, 10]], exact=False).pvalue == 0.0, "docs/leaderboard_statistics.md warns of it"


@pytest.mark.parametrize("size", [1, 2, 10, 1225])
def test_holm_is_that_of_statsmodels(size: int) -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest", reason=WHY)
    p_values = rng(size).random(size) ** 4
    assert holm(p_values) == pytest.approx(multitest.multipletests(p_values, method="holm")[1], rel=1e-12)


class TestRliable:
    """rliable's runs are tasks here, of which it resamples those of each of its tasks, our tracks, by themselves."""

    @staticmethod
    @pytest.mark.parametrize("shape", [(1, 5), (3, 5), (5, 26), (10, 1)])
    def test_figures_of_tracks_are_those_of_rliable(shape: tuple[int, int]) -> None:
        metrics = pytest.importorskip("rliable.metrics", reason=WHY)
        scores = rng(shape[1]).random(shape) * 1.5
        assert iqm(scores) == pytest.approx(metrics.aggregate_iqm(scores), rel=1e-13)
        for target in (1.0, 0.8):
            assert optimality_gap(scores, target) == pytest.approx(
                metrics.aggregate_optimality_gap(scores, target), rel=1e-12
            )

    @staticmethod
    def test_intervals_of_tracks_are_those_of_rliable() -> None:
        library = pytest.importorskip("rliable.library", reason=WHY)
        metrics = pytest.importorskip("rliable.metrics", reason=WHY)
        tracks = (rng(20).random((300, 8)) < np.linspace(0.2, 0.9, 8)).astype(float)

        def figures(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
            runs = scores.mean(axis=0, keepdims=True)
            return np.array(
                [
                    metrics.aggregate_mean(runs),
                    metrics.aggregate_iqm(runs),
                    metrics.aggregate_optimality_gap(runs, 0.7),
                ]
            )

        np.random.seed(0)  # noqa: NPY002 - rliable draws from the global state
        points, intervals = library.get_interval_estimates({"entry": tracks}, figures, reps=RESAMPLES)
        ours = over_tracks([track[:, None] for track in tracks.T], target=0.7)
        for estimate, point, interval in zip(ours, points["entry"], intervals["entry"].T, strict=True):
            assert estimate.value == pytest.approx(point, rel=1e-12)
            same(estimate[1:], tuple(interval))
