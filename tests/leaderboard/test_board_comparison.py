"""Paired tests, Holm's correction and rank ranges, against brute force and against what theory says."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_flow.errors import BadSetting
from agentgym_flow.leaderboard.comparison import (
    RankRange,
    TaskDifference,
    compare,
    holm,
    paired_p_value,
    rank_ranges,
)

Table = npt.NDArray[np.float64]


def tables(values: list[float]) -> st.SearchStrategy[tuple[Table, Table]]:
    row = st.lists(st.sampled_from(values), min_size=2, max_size=2)
    return st.integers(1, 8).flatmap(
        lambda tasks: st.tuples(*[st.lists(row, min_size=tasks, max_size=tasks).map(np.array)] * 2)
    )


def brute(first: Table, second: Table) -> float:
    """Return the share of all assignments of signs that are at least as extreme."""
    differences = (first - second).sum(axis=1)
    signs = np.array(list(itertools.product([1.0, -1.0], repeat=len(differences))))
    return float(np.mean(np.abs(signs @ differences) >= abs(differences.sum()) - 1e-9))


class TestPairedTest:
    @staticmethod
    @given(tables([0.0, 1.0]))
    def test_p_values_of_successes_are_those_of_brute_force(pair: tuple[Table, Table]) -> None:
        assert paired_p_value(*pair) == pytest.approx(brute(*pair), rel=1e-12)

    @staticmethod
    @given(tables([0.0, 0.1, 0.2, 0.3, 1 / 3, 1.0]))
    def test_p_values_of_other_scores_are_those_of_brute_force(pair: tuple[Table, Table]) -> None:
        assert paired_p_value(*pair) == pytest.approx(brute(*pair), rel=1e-12)

    @staticmethod
    @given(tables([0.0, 0.5, 1.0]), st.randoms())
    def test_it_is_symmetric_and_knows_no_order_of_tasks(pair: tuple[Table, Table], rng: Any) -> None:
        first, second = pair
        p_value = paired_p_value(first, second)
        assert 0 < p_value <= 1
        assert paired_p_value(second, first) == p_value
        order = rng.sample(range(len(first)), len(first))
        assert paired_p_value(first[order], second[order]) == p_value
        assert paired_p_value(first, first) == 1

    @staticmethod
    @pytest.mark.parametrize(("won", "lost"), [(9, 1), (60, 40), (270, 230), (1, 0)])
    def test_of_single_attempts_it_is_the_sign_test(won: int, lost: int) -> None:
        """McNemar's exact test: twice the upper tail of a binomial distribution."""
        first = np.array([1.0] * won + [0.0] * lost + [1.0] * 30)[:, None]
        second = np.array([0.0] * won + [1.0] * lost + [1.0] * 30)[:, None]
        row = [1]
        for _ in range(won + lost):  # Pascal's triangle in whole numbers
            row = [1, *map(sum, itertools.pairwise(row)), 1]
        assert paired_p_value(first, second) == pytest.approx(2 * sum(row[won:]) / 2 ** (won + lost), rel=1e-9)

    @staticmethod
    def test_scores_that_are_no_successes_are_tested_as_exactly_for_many_tasks() -> None:
        """Above twenty tasks differences are rounded; a difference of one size for all shows what that costs: none."""
        successes = (np.random.default_rng(0).random((2, 200, 1)) < [[[0.6]], [[0.5]]]).astype(float)
        assert paired_p_value(*(successes * 0.7)) == pytest.approx(paired_p_value(*successes), rel=1e-9)
        # And the normal approximation is close where no difference stands out.
        first, second = np.random.default_rng(1).random((2, 400, 1)) * [[[1.0]], [[0.9]]]
        differences = first - second
        z = differences.sum() / np.sqrt((differences**2).sum())
        assert paired_p_value(first, second) == pytest.approx(math.erfc(abs(z) / math.sqrt(2)), rel=0.03)

    @staticmethod
    def test_hopelessly_small_chances_are_still_above_zero() -> None:
        assert paired_p_value(np.ones((50, 1)), np.zeros((50, 1))) == pytest.approx(2.0**-49, rel=1e-12)
        assert 0 < paired_p_value(np.ones((2000, 1)), np.zeros((2000, 1))) < 1e-300

    @staticmethod
    @pytest.mark.parametrize("partial", [False, True])
    def test_equal_policies_differ_at_five_percent_in_at_most_five_of_a_hundred_boards(partial: bool) -> None:
        rng = np.random.default_rng(7)
        found = []
        for _ in range(400):
            chance = rng.beta(0.5, 0.5, (60, 1))  # tasks that are nearly always won or lost
            first, second = (rng.random((2, 60, 3)) < chance) * (rng.random((2, 60, 3)) if partial else 1.0)
            found.append(paired_p_value(first, second))
        # Binomial(400, 0.05) is above 38 once in 10,000 times; Binomial(400, 0.5) outside 163 to 237 as rarely.
        assert 5 <= sum(p <= 0.05 for p in found) <= 38
        assert 150 <= sum(p <= 0.5 for p in found) <= 237

    @staticmethod
    def test_a_difference_is_found() -> None:
        rng = np.random.default_rng(8)
        chance = rng.random((500, 1)) * 0.9
        first, second = rng.random((2, 500, 3)) < np.array([chance + 0.1, chance])
        assert paired_p_value(first, second) < 1e-3

    @staticmethod
    def test_other_tasks_are_no_pair() -> None:
        with pytest.raises(BadSetting, match="same tasks"):
            paired_p_value(np.ones((3, 1)), np.ones((3, 2)))


class TestHolm:
    @staticmethod
    def test_adjusted_p_values_are_those_worked_out_by_hand() -> None:
        # In order 0.01 x 4, 0.02 x 3, 0.03 x 2 and 0.04 x 1, never below the one before.
        assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
        assert holm([0.5, 0.9]).tolist() == [1.0, 1.0]
        assert holm([]).tolist() == []

    @staticmethod
    @given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
    def test_adjusted_p_values_are_monotone_and_at_most_bonferronis(p_values: list[float]) -> None:
        raw = np.array(p_values)
        adjusted = holm(raw)
        order = np.argsort(raw, kind="stable")
        assert (np.diff(adjusted[order]) >= 0).all()
        assert (adjusted >= raw).all()
        assert (adjusted <= np.minimum(raw * len(raw), 1.0)).all()
        assert adjusted.min() == min(1.0, raw.min() * len(raw))
        assert holm(raw[::-1])[::-1] == pytest.approx(adjusted)

    @staticmethod
    @given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
    def test_it_rejects_what_the_procedure_as_published_rejects(p_values: list[float]) -> None:
        rejected: list[int] = []
        for step, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
            if p_values[place] * (len(p_values) - step) > 0.05:
                break
            rejected.append(place)
        assert np.flatnonzero(holm(p_values) <= 0.05).tolist() == sorted(rejected)

    @staticmethod
    @pytest.mark.parametrize("p_values", [[1.1], [-0.1], [float("nan")], [[0.5]], 0.5])
    def test_p_values_are_a_row_from_0_to_1(p_values: Any) -> None:
        with pytest.raises(BadSetting, match="p values"):
            holm(p_values)


class TestRankRanges:
    @staticmethod
    def test_clear_orders_have_one_rank_and_ties_share_a_range() -> None:
        best, middle, last = (np.repeat([1.0, 0.0], [k, 100 - k])[:, None] for k in (90, 50, 10))
        assert rank_ranges([last, best, middle]) == [RankRange(3, 3), RankRange(1, 1), RankRange(2, 2)]
        assert rank_ranges([best, middle, best, last]) == [
            RankRange(1, 2),
            RankRange(3, 3),
            RankRange(1, 2),
            RankRange(4, 4),
        ]
        assert rank_ranges([best]) == [RankRange(1, 1)]
        assert rank_ranges([]) == []
        assert rank_ranges([best] * 4) == [RankRange(1, 4)] * 4

    @staticmethod
    def test_the_correction_is_for_all_pairs() -> None:
        """Eight tasks won against none: p = 2/256 alone, 10 times that among the pairs of five entries."""
        winner, others = np.ones((8, 1)), np.zeros((8, 1))
        assert rank_ranges([winner, others]) == [RankRange(1, 1), RankRange(2, 2)]
        assert rank_ranges([winner, *[others] * 4]) == [RankRange(1, 5)] * 5

    @staticmethod
    @settings(max_examples=40, deadline=None)
    @given(st.integers(0, 10_000), st.integers(1, 6), st.randoms())
    def test_the_rank_by_mean_lies_within_and_entries_may_come_in_any_order(seed: int, number: int, rng: Any) -> None:
        draws = np.random.default_rng(seed)
        entries = (draws.random((number, 40, 2)) < draws.random((number, 1, 1))).astype(float)
        ranges = rank_ranges(list(entries))
        means = entries.mean(axis=(1, 2))
        for mean, (best, worst) in zip(means, ranges, strict=True):
            assert 1 <= best <= 1 + int((means > mean).sum())
            assert int((means >= mean).sum()) <= worst <= number
        order = rng.sample(range(number), number)
        assert rank_ranges(list(entries[order])) == [ranges[i] for i in order]

    @staticmethod
    def test_equal_policies_are_rarely_told_apart() -> None:
        rng = np.random.default_rng(9)
        apart = 0
        for _ in range(100):
            chance = rng.random((80, 1))
            entries = (rng.random((5, 80, 2)) < chance).astype(float)
            apart += rank_ranges(list(entries)) != [RankRange(1, 5)] * 5
        assert apart <= 14  # Binomial(100, 0.05) is above that once in 4,000 times


class TestCompare:
    @staticmethod
    def test_it_names_the_tasks_that_differ_most() -> None:
        first = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.5, 0.5], [1.0, 1.0]])
        second = np.array([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [0.5, 0.5], [0.0, 1.0]])
        found = compare(first, second)
        assert found.difference.value == pytest.approx(0.0)
        assert found.p_value == paired_p_value(first, second) == 1.0
        assert found.tasks == [TaskDifference(2, -1.0), TaskDifference(1, 0.5), TaskDifference(4, 0.5)]
        assert compare(first, second, most=1).tasks == found.tasks[:1]
        assert compare(first, second, most=0).tasks == []

    @staticmethod
    def test_sums_of_tenths_that_are_equal_but_for_rounding_do_not_differ() -> None:
        found = compare([[0.1, 0.2, 0.3]], [[0.3, 0.2, 0.1]])
        assert found == compare([[0.5]], [[0.5]])
        assert (found.difference.value, found.p_value, found.tasks) == (0.0, 1.0, [])
        assert found.difference.low == -found.difference.high < 0

    @staticmethod
    @settings(max_examples=25, deadline=None)
    @given(tables([0.0, 0.25, 1.0]))
    def test_the_other_side_sees_the_same_mirrored(pair: tuple[Table, Table]) -> None:
        here, there = compare(*pair), compare(*pair[::-1])
        assert here.difference.value == pytest.approx(-there.difference.value, abs=1e-12)
        assert here.difference.value == pytest.approx((pair[0] - pair[1]).mean(), abs=1e-11)
        assert here.difference.low - 1e-12 <= here.difference.value <= here.difference.high + 1e-12
        assert here.difference.low == pytest.approx(-there.difference.high, abs=1e-12)
        assert here.difference.high == pytest.approx(-there.difference.low, abs=1e-12)
        assert here.p_value == there.p_value
        assert here.tasks == [TaskDifference(task, -difference) for task, difference in there.tasks]

    @staticmethod
    def test_pairing_sees_what_two_intervals_hide() -> None:
        hard = np.random.default_rng(3).random((300, 1)) < 0.5
        second = hard.astype(float)
        first = np.maximum(second, np.arange(300)[:, None] % 20 == 0)
        found = compare(first, second)
        assert found.difference.low > 0
        assert found.p_value < 0.05

    @staticmethod
    @pytest.mark.parametrize(
        ("first", "second", "low", "high"), [((56, 70), (48, 80), 0.0524, 0.3339), ((9, 10), (3, 10), 0.1705, 0.8090)]
    )
    def test_without_pairs_it_is_newcombes_interval(
        first: tuple[int, int], second: tuple[int, int], low: float, high: float
    ) -> None:
        def scores(wins: int, tasks: int) -> Table:
            return (np.arange(tasks) < wins).astype(float)[:, None]

        found = compare(scores(*first), scores(*second), paired=False)
        assert found.difference[1:] == pytest.approx((low, high), abs=5e-5)  # the values in his paper
        assert (found.paired, found.tasks) == (False, [])
        mirrored = compare(scores(*second), scores(*first), paired=False)
        assert mirrored.difference == pytest.approx([-found.difference[place] for place in (0, 2, 1)])
        assert mirrored.p_value == found.p_value < 0.05

    @staticmethod
    def test_a_negative_number_of_tasks_is_refused() -> None:
        with pytest.raises(BadSetting, match="negative"):
            compare([[1.0]], [[0.0]], most=-1)
