from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentgym_flow._util.intervals import (
    bootstrap,
    bounded_interval,
    interval_of_runs,
    mean_interval,
    share_interval,
    t_quantile,
    wilson,
)
from agentgym_flow._util.values import finite
from agentgym_flow.episodes import Episode, read_log
from agentgym_flow.errors import BadSetting, UnknownData, UnknownEnvironment, UnknownOption, UnknownSplit
from agentgym_flow.play import (
    AtK,
    EpisodePlan,
    Evaluation,
    at_k,
    best_of_k,
    by_task_type,
    evaluate,
    paired_difference,
    pass_at_k,
    pass_hat_k,
    why_failed,
)
from agentgym_flow.policies import ExpertPolicy, FunctionPolicy, PolicyInput, PolicyOutput, RandomPolicy, make_policy
from agentgym_flow.replay import verify_log
from agentgym_flow.testing.example import CaveEnv

CAVE = "example/Cave-v0"


def clumsy(name: str, act: Callable[[PolicyInput], str]) -> FunctionPolicy:
    return FunctionPolicy(name, lambda inputs: [PolicyOutput(act(policy_input)) for policy_input in inputs])


class TestIntervals:
    @staticmethod
    @pytest.mark.parametrize(
        ("successes", "count", "expected"),
        # Worked by hand from Wilson's formula with z = 1.95996; the third is the example of Newcombe (1998), 81 of 263.
        [(0, 10, (0.0, 0.2775)), (10, 10, (0.7225, 1.0)), (81, 263, (0.2553, 0.3662)), (350, 500, (0.6584, 0.7385))],
    )
    def test_wilson_intervals_are_those_worked_out_by_hand(
        successes: int, count: int, expected: tuple[float, float]
    ) -> None:
        assert wilson(successes, count) == pytest.approx(expected, abs=5e-5)

    @staticmethod
    @given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
    def test_wilson_holds_the_share_and_is_symmetric(case: tuple[int, int]) -> None:
        successes, count = case
        low, high = wilson(successes, count)
        assert 0 <= low <= successes / count <= high <= 1
        assert wilson(count - successes, count) == pytest.approx((1 - high, 1 - low))

    @staticmethod
    def test_episodes_of_one_task_are_one_sample_if_they_end_alike() -> None:
        rng = np.random.default_rng(1)
        ends = rng.random(134) < 0.7
        tasks = list(range(134)) * 4
        assert share_interval([True] * 536, tasks) == pytest.approx(wilson(134, 134), rel=1e-12)
        assert share_interval([False] * 536, tasks) == pytest.approx(wilson(0, 134), rel=1e-12)
        assert share_interval(list(ends) * 4, tasks) == pytest.approx(wilson(int(ends.sum()), 134))
        assert share_interval(list(ends), tasks[:134]) == pytest.approx(wilson(int(ends.sum()), 134), rel=1e-12)
        # One failed attempt makes nothing more certain, and tasks with equal shares are not a sample without variance.
        assert share_interval([False] + [True] * 1339, list(range(134)) * 10)[0] < 0.975
        low, high = share_interval([True, False] * 25, [task for task in range(5) for _ in range(10)])
        assert high - low > 0.4
        # Attempts that are independent of their task are as good as other tasks, and no better.
        low, high = share_interval(list(rng.random(536) < 0.7), tasks)
        assert 0.07 < high - low < 0.085  # of wilson(375, 536): 0.078
        assert share_interval([True, False] * 50, [0, 0, 1, 1, 2] * 20) == pytest.approx(wilson(50, 100), abs=0.2)
        assert bootstrap([1.0, 0.0] * 10, [0, 1] * 10) == (0.0, 1.0)

    @staticmethod
    def test_the_truth_is_within_most_intervals_of_attempts() -> None:
        """Tasks that are always won, always lost and undecided: the interval of episodes would hold it too rarely."""
        rng = np.random.default_rng(2)
        chances = rng.choice([0.02, 0.5, 0.98], (400, 60))
        won = rng.random((400, 4, 60)) < chances[:, None]
        tasks = list(range(60)) * 4

        def held(intervals: Iterable[tuple[float, float]]) -> float:
            return float(np.mean([low <= 0.5 <= high for low, high in intervals]))

        assert held(share_interval(runs.ravel().tolist(), tasks) for runs in won) > 0.91
        assert held(bootstrap(runs.ravel().tolist(), tasks) for runs in won[:60]) > 0.87
        assert held(wilson(int(runs.sum()), 240) for runs in won) < 0.85

    @staticmethod
    def test_bootstrap_is_pinned() -> None:
        values = [1.0] * 30 + [0.0] * 70
        assert bootstrap(values) == (0.21, 0.39)
        assert bootstrap([0.1 * i for i in range(17)]) == pytest.approx(
            (0.5705882352941176, 1.035294117647059), abs=1e-12
        )

    @staticmethod
    def test_bootstrap_agrees_with_the_normal_theory() -> None:
        values = [math.sin(i) for i in range(1000)]
        low, high = bootstrap(values)
        error = np.std(values) / math.sqrt(len(values))
        assert low == pytest.approx(np.mean(values) - 1.96 * error, abs=0.1 * error)
        assert high == pytest.approx(np.mean(values) + 1.96 * error, abs=0.1 * error)

    @staticmethod
    @given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
    def test_bootstrap_stays_within_the_values(values: list[float]) -> None:
        low, high = bootstrap(values)
        assert min(values) - 1e-12 <= low <= high <= max(values) + 1e-12

    @staticmethod
    def test_runs_that_differ_widen_the_interval_however_many_tasks_there_are() -> None:
        alike = [[float(task % 2) for task in range(400)]] * 5
        apart = [[float(task % 10 < tenths) for task in range(400)] for tenths in (1, 3, 5, 7, 9)]
        narrow, wide = interval_of_runs(alike), interval_of_runs(apart)
        assert narrow[1] - narrow[0] == pytest.approx(4 * 0.5 / math.sqrt(400), rel=0.02)
        # The standard error of the mean of five runs with these success rates, and the t quantile of 4 degrees.
        error = np.std([0.1, 0.3, 0.5, 0.7, 0.9], ddof=1) / math.sqrt(5)
        assert wide[1] - wide[0] == pytest.approx(2 * 2.776 * error, rel=0.05)

    @staticmethod
    @pytest.mark.parametrize(("runs", "spread"), [(5, 0.0), (5, 0.02), (5, 0.05), (5, 0.2), (3, 0.1)])
    def test_the_truth_is_within_19_of_20_intervals(runs: int, spread: float) -> None:
        rng = np.random.default_rng(0)

        def holds() -> bool:
            rates = 0.5 + rng.normal(0, spread, (runs, 1)) + rng.normal(0, 0.2, (1, 200))
            low, high = interval_of_runs(rng.random((runs, 200)) < rates)
            return low <= 0.5 <= high

        assert 0.915 <= np.mean([holds() for _ in range(600)]) <= 0.99

    @staticmethod
    def test_estimated_variances_below_zero_count_as_none() -> None:
        # Each run and each task has the same mean, so everything that varies is residual.
        chequered = np.indices((4, 100)).sum(axis=0) % 2
        low, high = interval_of_runs(chequered)
        assert high - low >= 2 * 1.96 * 0.5 / math.sqrt(400)
        # The runs are exactly alike: as uncertain as the tasks alone, not less.
        alone = interval_of_runs([chequered[0]])
        assert interval_of_runs([chequered[0]] * 4) == pytest.approx(alone, abs=1e-3)

    @staticmethod
    def test_one_run_varies_over_tasks_and_one_task_over_runs() -> None:
        values = [1.0] * 30 + [0.0] * 70
        half = 1.984 * math.sqrt(0.3 * 0.7 / 99)
        assert interval_of_runs([values]) == pytest.approx((0.3 - half, 0.3 + half), abs=1e-4)
        assert interval_of_runs([[value] for value in values]) == interval_of_runs([values])

    @staticmethod
    @pytest.mark.parametrize("values", [[[0.25]], [[0.25] * 3], [[0.25]] * 3, [[0.25] * 3] * 2])
    def test_equal_values_have_no_width(values: list[list[float]]) -> None:
        assert interval_of_runs(values) == (0.25, 0.25)

    @staticmethod
    @pytest.mark.parametrize("tasks", [1, 3, 10, 100])
    def test_equal_values_have_no_interval_of_width_0(tasks: int) -> None:
        for value in (0.0, 0.5, 1.0):
            for low, high in (
                mean_interval([value] * tasks, range(tasks)),
                interval_of_runs([[value] * (tasks + 1)] * 2, (0, 1)),
            ):
                assert 0 <= low <= value <= high <= 1
                assert high - low > 1 / (tasks + 3)
        assert interval_of_runs([[0.0] * tasks] * 2) == (0.0, 0.0)  # nothing is known without bounds

    @staticmethod
    @pytest.mark.parametrize("tasks", [3, 10, 40])
    @pytest.mark.parametrize(("better", "worse"), [(0.0, 0.0), (0.1, 0.05), (0.4, 0.1), (0.9, 0.0)])
    def test_the_truth_is_within_19_of_20_intervals_of_paired_differences(
        tasks: int, better: float, worse: float
    ) -> None:
        rng = np.random.default_rng(0)
        draws = rng.choice([1.0, -1.0, 0.0], (500, tasks), p=[better, worse, 1 - better - worse])
        intervals = (bounded_interval(draw.tolist(), range(tasks), (-1.0, 1.0)) for draw in draws)
        assert np.mean([low <= better - worse <= high for low, high in intervals]) > 0.92

    @staticmethod
    def test_bounds_cut_an_interval() -> None:
        rates = [[0.99], [0.9], [0.8]]
        assert interval_of_runs(rates)[1] > 1
        assert interval_of_runs(rates, (0, 1)) == (interval_of_runs(rates)[0], 1)

    @staticmethod
    @example([[0.0, 0.0, 0.0], [0.0, 0.0, 1e-126]])  # squared variances are too small for a float
    @given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=5))
    def test_an_interval_is_around_the_mean(values: list[list[float]]) -> None:
        low, high = interval_of_runs(values, (0, 1))
        assert 0 <= low <= np.mean(values) + 1e-12
        assert np.mean(values) - 1e-12 <= high <= 1

    @staticmethod
    @pytest.mark.parametrize(
        ("freedom", "quantile"),
        [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (10, 2.2281), (30, 2.0423), (120, 1.9799), (1e5, 1.96)],
    )
    def test_t_quantiles_are_those_of_the_tables(freedom: float, quantile: float) -> None:
        assert t_quantile(freedom) == pytest.approx(quantile, abs=5e-5)

    @staticmethod
    def test_t_quantiles_are_those_of_scipy() -> None:
        stats = pytest.importorskip("scipy.stats")
        for freedom in (1.0, 1.3, 3.7, 17.2, 499.0, 1996.0):
            assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)

    @staticmethod
    @pytest.mark.parametrize("values", [[], [[]], [0.5, 0.5]])
    def test_an_interval_of_runs_needs_a_table_of_them(values: list[float]) -> None:
        with pytest.raises(BadSetting, match="runs and tasks"):
            interval_of_runs(values)


class TestSummary:
    @staticmethod
    def test_figures_are_those_of_the_episodes() -> None:
        result, episodes = evaluate(RandomPolicy(), CAVE, split="train", num_episodes=40)
        assert (result.policy, result.env_id, result.split, result.episodes) == ("random", CAVE, "train", 40)
        assert result.success == sum(e.success for e in episodes) / 40 == result.score
        assert 0 < result.success < 1
        assert result.mean_return == pytest.approx(sum(e.total_reward for e in episodes) / 40)
        assert result.mean_length == sum(len(e.turns) for e in episodes) / 40
        assert result.truncated_rate == sum(e.truncated for e in episodes) / 40
        assert result.success_interval == wilson(round(result.success * 40), 40)
        assert (result.invalid_rate, result.errors, result.failed_requests) == (0, 0, 0)

    @staticmethod
    def test_troubles_are_counted() -> None:
        _, episodes = evaluate(clumsy("mute", lambda _: ""), CAVE, num_episodes=4)
        episodes[0].meta["error"] = {"class": "OSError", "message": ""}
        episodes[1].meta["failed_requests"] = [{"turn": 0, "failure": "x"}, {"turn": 1, "failure": "x"}]
        result = Evaluation.of(episodes, "mute")
        assert (result.errors, result.failed_requests, result.invalid_rate) == (1, 2, 1.0)
        assert str(result) == (
            "mute on example/Cave-v0 test: success 0.0% [0.0%, 49.0%], score 0.000, return -2.00, 20.0 steps, "
            "4 tasks, 4 episodes, 97.5% empty answers, 1 errors, 2 failed requests"
        )
        episodes[0].turns[0].output.cut = episodes[2].turns[1].output.cut = True
        episodes[3].meta["truncated_by"] = "context"
        result = Evaluation.of(episodes, "mute")
        assert (result.context_rate, result.cut_rate, result.empty_rate) == (0.25, 2 / 80, 78 / 80)
        assert ", 25.0% out of context, 2.5% cut answers, " in str(result)

    @staticmethod
    def test_a_result_can_be_written_as_json() -> None:
        result, _ = evaluate(ExpertPolicy(), CAVE, num_episodes=3)
        row = json.loads(json.dumps(result.as_dict()))
        assert row["success"] == 1.0
        assert row["success_interval"] == [pytest.approx(0.4385, abs=1e-4), 1.0]

    @staticmethod
    def test_an_evaluation_is_of_one_thing() -> None:
        _, test = evaluate(ExpertPolicy(), CAVE, num_episodes=1)
        _, train = evaluate(ExpertPolicy(), CAVE, split="train", num_episodes=1)
        for mixed in ([], test + train):
            with pytest.raises(BadSetting, match="one environment and split"):
                Evaluation.of(mixed, "x")


class TestAttempts:
    @staticmethod
    def of(*scores: Sequence[float], threshold: float = 1.0) -> list[Episode]:
        """Episodes with these scores: of each task of the split, its attempts."""
        _, episodes = evaluate(clumsy("mute", lambda _: ""), CAVE, num_episodes=len(scores))
        made = []
        for episode, attempts in zip(episodes, scores, strict=True):
            for number, score in enumerate(attempts):
                end = replace(episode.turns[-1], score=score, success=score >= threshold)
                made.append(replace(episode, attempt=number, turns=[*episode.turns[:-1], end]))
        return made

    @staticmethod
    def test_the_published_figures() -> None:
        assert pass_at_k(5, 2, 3) == 0.9  # the plug-in estimate would be 0.784
        assert pass_hat_k(5, 4, 3) == 0.4
        assert best_of_k([0.0, 0.5, 1.0], 2) == pytest.approx((0.5 + 1 + 1) / 3)
        assert [pass_at_k(4, c, 4) for c in range(5)] == [0, 1, 1, 1, 1]
        assert [pass_hat_k(4, c, 4) for c in range(5)] == [0, 0, 0, 0, 1]
        assert all(math.isnan(one) for one in (pass_at_k(2, 2, 3), pass_hat_k(2, 2, 3), best_of_k([1.0, 1.0], 3)))
        for wrong in ((2, 3, 1), (2, -1, 1), (2, 1, 0)):
            with pytest.raises(BadSetting):
                pass_at_k(*wrong)

    @staticmethod
    @given(st.lists(st.sampled_from([0.0, 0.25, 0.999, 1.0]), min_size=1, max_size=7), st.integers(1, 7))
    def test_figures_are_means_over_all_draws(scores: list[float], k: int) -> None:
        draws = list(combinations(scores, k))
        if not draws:
            assert math.isnan(best_of_k(scores, k))
            return
        n, c = len(scores), scores.count(1.0)
        assert best_of_k(scores, k) == pytest.approx(sum(map(max, draws)) / len(draws))
        assert pass_at_k(n, c, k) == pytest.approx(sum(1.0 in draw for draw in draws) / len(draws))
        assert pass_hat_k(n, c, k) == pytest.approx(sum(set(draw) == {1.0} for draw in draws) / len(draws))

    def test_an_evaluation_has_them_by_task(self) -> None:
        episodes = self.of([1, 1, 0, 0, 0], [0.999] * 5, [1] * 5)
        found = Evaluation.of(episodes, "x")
        assert [one.k for one in found.at_k] == [2, 3, 4, 5]
        three = found.at_k[1]
        assert three.pass_at_k == pytest.approx((0.9 + 0 + 1) / 3), "0.999 is no success"
        assert three.pass_hat_k == pytest.approx(1 / 3)
        assert three.best_of_k_oracle == pytest.approx((0.9 + 0.999 + 1) / 3)
        assert three.pass_at_k_interval == bootstrap([0.9, 0.0, 1.0])
        assert Evaluation.of(episodes, "x").as_dict()["at_k"][1]["pass_at_k"] == three.pass_at_k
        one = AtK.of(episodes, 1)
        assert one.pass_at_k == one.pass_hat_k == pytest.approx(found.success)

    def test_equal_tasks_are_one_cluster(self) -> None:
        episodes = self.of([1, 0], [1, 0], [0, 0])
        for episode in episodes[2:4]:
            episode.task_key = episodes[0].task_key
        values, tasks = [1.0, 1.0, 0.0], ["a", "a", "b"]
        assert at_k(episodes)[0].pass_at_k_interval == share_interval([value == 1 for value in values], tasks)

    def test_too_few_attempts_give_no_figure(self) -> None:
        assert Evaluation.of(self.of([1], [1, 1]), "x").at_k == ()
        assert math.isnan(AtK.of(self.of([1], [1, 1]), 2).pass_at_k)
        assert [one.k for one in at_k(self.of([1] * 20))] == [2, 3, 4, 5, 6, 7, 8, 16, 20]
        with pytest.raises(BadSetting, match="need episodes"):
            AtK.of([], 1)


class TestFailures:
    @staticmethod
    def of(name: str, env_id: str, act: Callable[[PolicyInput], str], **more: Any) -> dict[str, int]:
        result, _ = evaluate(clumsy(name, act), env_id, num_episodes=4, **more)
        assert sum(result.failures.values()) == round((1 - result.success) * 4)
        return dict(result.failures)

    def test_each_environment_sorts_its_failures(self) -> None:
        shop, ask = "agentgym_flow/WebShop-v0", "agentgym_flow/Search-v0"

        def buy(seen: PolicyInput) -> str:
            listed = seen.info["admissible_actions"]
            wanted = [one for one in listed if one == "click[buy now]" or one.startswith("click[b0")]
            return wanted[0] if wanted else "search[a lamp]"

        assert self.of("hasty", shop, buy) == {"wrong purchase": 4}
        assert self.of("sure", ask, lambda _: "answer[nobody]") == {"wrong answer": 4}
        assert self.of("stubborn", ask, lambda _: "search[x]", env_kwargs={"max_steps": 5}) == {"loop": 4}
        assert self.of("mute", shop, lambda _: "") == {"invalid actions": 4}
        finish = self.of("idle", "agentgym_flow/Canvas-v0", lambda _: "<action>finish</action>")
        assert finish == {"invalid actions": 4}

    @staticmethod
    def test_general_reasons() -> None:
        _, [episode] = evaluate(clumsy("left", lambda _: "left"), CAVE, num_episodes=1)
        turns = [replace(turn, next_state_key=str(n), action_valid=True) for n, turn in enumerate(episode.turns)]
        episode = replace(episode, turns=turns, meta={})

        def ended(**end: Any) -> Episode:
            return replace(episode, turns=[*turns[:-1], replace(turns[-1], **end)])

        assert why_failed(ended(success=True)) == ""
        assert why_failed(episode) == "step budget"
        assert why_failed(ended(truncated=False)) == "unfinished"
        assert why_failed(ended(truncated=False, terminated=True)) == "wrong end"
        cut = [replace(turn, output=PolicyOutput("left", cut=True)) for turn in turns]
        assert why_failed(replace(episode, turns=cut)) == "cut answers"
        assert why_failed(replace(episode, turns=[replace(turn, next_state_key="0") for turn in turns])) == "loop"
        assert why_failed(replace(episode, meta={"failed_requests": [{}] * len(turns)})) == "failed requests"
        assert why_failed(replace(episode, meta={"truncated_by": "context"}, turns=[])) == "out of context"
        assert why_failed(replace(episode, meta={"error": {}})) == "lost episode"
        assert why_failed(replace(episode, meta={"failed_requests": 5})) == "step budget", "whatever a log says"
        assert why_failed(replace(episode, env_id="nowhere/Maze-v0")) == "step budget"

    @staticmethod
    @pytest.mark.parametrize(("actions", "why"), [("up right down", "stuck box"), ("right right left", "step budget")])
    def test_a_stuck_box_is_told_from_other_failures(actions: str, why: str) -> None:
        level = "######\n#   .#\n#@$  #\n#    #\n######"
        policy = clumsy("x", lambda seen: actions.split()[len(seen.episode.turns)])
        result, _ = evaluate(policy, "agentgym_flow/Sokoban-v0", env_kwargs={"level": level, "max_steps": 3})
        assert result.failures == {why: 1}

    @staticmethod
    @pytest.mark.parametrize(
        ("goal", "texts", "why"),
        [
            ("put a clean mug in cabinet.", "pick put", "wrong state"),
            ("put a clean mug in cabinet.", "pick clean put", ""),  # a success, in the words of an episode
            ("heat some mug and put it in cabinet.", "pick heat cool put", "wrong state"),
            ("put a mug in cabinet.", "pick shelve", "wrong receptacle"),
            ("put a mug in cabinet.", "pick shelve pick", ""),
            ("put two mug in cabinet.", "pick put", "one of two objects"),
            ("examine the mug with the desklamp.", "pick", "lamp not used"),
            ("put a mug in cabinet.", "see", "object not taken"),
            ("put a mug in cabinet.", "none", "object not found"),
            ("put a mug in cabinet.", "no no none", "invalid actions"),
            ("Bring the cup, please.", "pick put", ""),
        ],
    )
    def test_the_texts_of_alfworld_tell_why_an_episode_failed(goal: str, texts: str, why: str) -> None:
        _, [episode] = evaluate(clumsy("idle", lambda _: "look"), "agentgym_flow/ALFWorld-v0", num_episodes=1)
        known = {
            "see": "On the desk 1, you see a mug 2, and a pen 1.",
            "none": "On the desk 1, you see a mugger 2, and a pen 1.",
            "no": "Nothing happens.",
            "pick": "You pick up the mug 2 from the desk 1.",
            "clean": "You clean the mug 2 using the sinkbasin 1.",
            "heat": "You heat the mug 2 using the microwave 1.",
            "cool": "You cool the mug 2 using the fridge 1.",
            "put": "You move the mug 2 to the cabinet 3.",
            "shelve": "You move the mug 2 to the shelf 1.",
        }
        turns = [
            replace(episode.turns[0], next_observation=known[word], next_state_key=str(n), action_valid=word != "no")
            for n, word in enumerate(texts.split())
        ]
        assert why_failed(replace(episode, goal=goal, turns=turns)) == (why or "unfinished")

    def test_wandering_in_alfworld_has_a_reason(self) -> None:
        wander = clumsy("x", lambda seen: seen.info["admissible_actions"][len(seen.episode.turns) % 9])
        result, _ = evaluate(wander, "agentgym_flow/ALFWorld-v0", num_episodes=12)
        assert sum(result.failures.values()) == 12 - round(12 * result.success)
        assert set(result.failures) & {"object not found", "object not taken"}


class TestTasks:
    @staticmethod
    def test_every_task_of_the_split_is_played_once() -> None:
        result, episodes = evaluate(RandomPolicy(), CAVE, seed=100)
        assert [(e.task, e.seed, e.attempt) for e in episodes] == [(i, 100 + i, 0) for i in range(8)]
        assert (result.tasks, result.split_tasks, result.attempts, result.episodes) == (8, 8, 1, 8)

    @staticmethod
    def test_of_train_only_the_first_are_played() -> None:
        plans: list[EpisodePlan] = []
        result, _ = evaluate(RandomPolicy(), "agentgym_flow/Sokoban-v0", split="train", on_plan=plans.append)
        assert [(plan.tasks, plan.split_tasks) for plan in plans] == [(range(500), 10_000)]
        assert (result.episodes, result.split_tasks) == (500, 10_000)

    @staticmethod
    def test_attempts_are_episodes_of_one_start_and_one_task_in_the_interval() -> None:
        result, episodes = evaluate(ExpertPolicy(), CAVE, num_episodes=6, attempts=3, seed=5)
        assert [(e.task, e.seed, e.attempt) for e in episodes] == [(i % 6, 5 + i % 6, i // 6) for i in range(18)]
        assert (result.tasks, result.attempts, result.episodes, result.split_tasks) == (6, 3, 18, 8)
        assert len({e.start_digest for e in episodes}) == 6
        assert result.success_interval == wilson(6, 6)
        _, random = evaluate(RandomPolicy(), CAVE, num_episodes=2, attempts=8)
        assert len({tuple(turn.action for turn in e.turns) for e in random}) > 2  # attempts differ

    @staticmethod
    def test_tasks_that_are_the_same_count_once_in_the_interval() -> None:
        result, episodes = evaluate(ExpertPolicy(), "agentgym_flow/Sokoban-v0", split="valid")
        different = len({e.task_key for e in episodes})
        assert (result.episodes, result.tasks) == (500, different)
        assert different < 500
        assert result.success_interval == pytest.approx(wilson(different, different), abs=1e-5)

    @staticmethod
    def test_more_episodes_than_tasks_are_refused() -> None:
        with pytest.raises(BadSetting, match=r"split 'test' has 8 tasks, so 9 episodes .* set attempts"):
            evaluate(RandomPolicy(), CAVE, num_episodes=9)

    @staticmethod
    def test_a_type_is_played_as_in_the_whole_split_and_can_be_told_apart() -> None:
        search = "agentgym_flow/Search-v0"
        _, episodes = evaluate(make_policy("scripted", search), search, split="valid", num_episodes=60)
        types = by_task_type(episodes, "scripted")
        assert sum(one.episodes for one in types.values()) == 60
        assert len(types) > 3
        plans: list[EpisodePlan] = []
        kinds, count = ["comparison", "4 hops"], types["comparison"].episodes + types["4 hops"].episodes
        _, some = evaluate(
            make_policy("scripted", search),
            search,
            split="valid",
            num_episodes=count,
            task_types=kinds,
            on_plan=plans.append,
        )
        assert some == [episode for episode in episodes if episode.task_type in kinds]
        assert types["4 hops"] == by_task_type(some, "scripted")["4 hops"]
        assert plans[0].split_tasks > count
        with pytest.raises(UnknownOption, match="Did you mean '4 hops'"):
            evaluate(RandomPolicy(), search, task_types=["4hops"])

    @staticmethod
    def test_the_batch_changes_nothing() -> None:
        one = evaluate(RandomPolicy(), CAVE, attempts=2, num_envs=1)
        assert evaluate(RandomPolicy(), CAVE, attempts=2, num_envs=7) == one

    @staticmethod
    def test_arguments_reach_the_environment() -> None:
        _, episodes = evaluate(RandomPolicy(), CAVE, num_episodes=2, env_kwargs={"rooms": 3, "max_steps": 4})
        assert all((e.kwargs["rooms"], e.max_steps) == (3, 4) for e in episodes)

    @staticmethod
    def test_what_does_not_exist_is_refused() -> None:
        with pytest.raises(UnknownEnvironment, match="Did you mean 'agentgym_flow/Sokoban-v0'"):
            evaluate(RandomPolicy(), "agentgym_flow/Sokoban-v1")
        with pytest.raises(UnknownEnvironment, match="not a text environment"):
            evaluate(RandomPolicy(), "CartPole-v1", env_kwargs={})
        with pytest.raises(UnknownSplit, match="Did you mean 'valid'"):
            evaluate(RandomPolicy(), CAVE, split="vald")
        with pytest.raises(UnknownData):
            evaluate(RandomPolicy(), "agentgym_flow/Sokoban-v0", env_kwargs={"data": "no-such-data"})
        with pytest.raises(UnknownOption, match="Did you mean 'rooms'"):
            evaluate(RandomPolicy(), CAVE, env_kwargs={"room": 3})
        for settings in ({"num_episodes": 0}, {"attempts": 0}, {"seed": -1}, {"seed": "3"}, {"num_envs": 0}):
            with pytest.raises(BadSetting, match=next(iter(settings))):
                evaluate(RandomPolicy(), CAVE, **settings)  # type: ignore[arg-type]

    @staticmethod
    def test_official_data_are_logged_without_their_path_and_verify_elsewhere(
        sample_data: Path, tmp_path: Path
    ) -> None:
        levels = sample_data / "boxoban" / "unfiltered-valid.txt"
        log = tmp_path / "log.jsonl.gz"
        result, episodes = evaluate(
            ExpertPolicy(),
            "agentgym_flow/Sokoban-v0",
            split="valid",
            num_episodes=3,
            env_kwargs={"data": levels},
            log=log,
        )
        assert result.success == 1.0
        assert list(episodes[0].data) == ["unfiltered-valid"]
        assert str(sample_data) not in json.dumps([logged.line() for logged in read_log(log)])
        elsewhere = tmp_path / "renamed-valid.txt"
        elsewhere.write_bytes(levels.read_bytes())
        assert verify_log(log, {"unfiltered-valid": elsewhere}).ok


class TestLog:
    @staticmethod
    def test_the_log_may_be_named_by_text(tmp_path: Path) -> None:
        log = str(tmp_path / "log.jsonl")
        evaluate(RandomPolicy(), CAVE, num_episodes=2, log=log)
        assert len(list(read_log(log))) == 2

    @staticmethod
    def test_the_log_is_in_the_order_of_tasks_whatever_the_batch(tmp_path: Path) -> None:
        for num_envs in (1, 5, 64):
            evaluate(
                RandomPolicy(),
                CAVE,
                split="train",
                num_episodes=30,
                num_envs=num_envs,
                log=tmp_path / f"{num_envs}.jsonl.gz",
            )
        assert [logged.seed for logged in read_log(tmp_path / "5.jsonl.gz")] == list(range(30))
        assert len({file.read_bytes() for file in tmp_path.iterdir()}) == 1
        assert {logged.meta["policy"] for logged in read_log(tmp_path / "5.jsonl.gz") if logged.meta} == {"random"}

    @staticmethod
    def test_ctrl_c_keeps_every_finished_episode(tmp_path: Path) -> None:
        finished: list[int] = []

        def act(policy_input: PolicyInput) -> str:
            if len(finished) == 9:
                raise KeyboardInterrupt
            # The first task never ends, so all others wait for it.
            return "left" if policy_input.episode.seed == 0 else policy_input.env.expert_action() or "left"

        def count(episode: Episode) -> None:
            finished.append(episode.seed)

        with pytest.raises(KeyboardInterrupt):
            evaluate(
                clumsy("stopped", act),
                CAVE,
                split="train",
                num_episodes=30,
                num_envs=3,
                env_kwargs={"max_steps": 1000},
                log=tmp_path / "log.jsonl",
                on_episode=count,
            )
        assert [logged.seed for logged in read_log(tmp_path / "log.jsonl")] == sorted(finished)
        assert len(finished) == 9
        assert verify_log(tmp_path / "log.jsonl").ok

    @staticmethod
    @pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
    def test_an_error_late_keeps_every_finished_episode(name: str, tmp_path: Path) -> None:
        finished: list[int] = []

        def act(policy_input: PolicyInput) -> str:
            if len(finished) == 9:
                raise ConnectionError("the server is gone")
            return policy_input.env.expert_action() or "left"

        with pytest.raises(ConnectionError):
            evaluate(
                clumsy("cut off", act),
                CAVE,
                split="train",
                num_episodes=30,
                num_envs=3,
                log=tmp_path / name,
                on_episode=lambda episode: finished.append(episode.seed),
            )
        assert [logged.seed for logged in read_log(tmp_path / name)] == sorted(finished)
        assert verify_log(tmp_path / name).ok
        assert sorted(file.name for file in tmp_path.iterdir()) == [name, f"{name}.unfinished"]

    @staticmethod
    def test_a_reset_that_raises_keeps_every_finished_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        begin = CaveEnv._begin

        def begin_or_fail(self: CaveEnv, task: int, *rest: Any) -> str:
            if task == 5:
                raise RuntimeError("this task cannot be set up")
            return begin(self, task, *rest)

        monkeypatch.setattr(CaveEnv, "_begin", begin_or_fail)
        with pytest.raises(RuntimeError, match="cannot be set up"):
            evaluate(ExpertPolicy(), CAVE, num_episodes=8, num_envs=1, log=tmp_path / "log.jsonl")
        assert [logged.task for logged in read_log(tmp_path / "log.jsonl")] == [0, 1, 2, 3, 4]

    @staticmethod
    def test_an_error_leaves_no_log(tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError):
            evaluate(
                clumsy("broken", lambda policy_input: str(1 / 0)), CAVE, num_episodes=3, log=tmp_path / "log.jsonl"
            )
        assert list(tmp_path.iterdir()) == []


class TestPairedDifference:
    @staticmethod
    def played(policy: Any, **settings: Any) -> Sequence[Episode]:
        return evaluate(policy, CAVE, split="train", num_episodes=40, **settings)[1]

    def test_a_clear_difference_is_beyond_noise(self) -> None:
        random, expert = self.played(RandomPolicy()), self.played(ExpertPolicy())
        better = paired_difference(random, expert)
        assert better.mean == pytest.approx(1 - sum(e.success for e in random) / 40)
        assert 0 < better.low < better.mean < better.high <= 1
        worse = paired_difference(expert, random)
        assert worse.mean == -better.mean
        assert worse.high < 0

    def test_no_difference_is_none(self) -> None:
        mean, low, high = paired_difference(self.played(ExpertPolicy()), self.played(ExpertPolicy()))
        assert (mean, low) == (0, -high)
        assert high == pytest.approx(1.96 * math.sqrt(2) / 42, abs=1e-4)  # two more tasks, which went either way

    def test_few_tasks_that_all_end_alike_prove_little(self) -> None:
        """Three tasks without a difference, or all won now, say next to nothing about other tasks."""
        random, expert = self.played(RandomPolicy()), self.played(ExpertPolicy())
        same = paired_difference(expert[:3], expert[:3], "score")
        assert (same.low, same.high) == pytest.approx((-0.554, 0.554), abs=1e-3)
        tasks = {old.task for old in random if not old.success}
        lost, won = ([one for one in played if one.task in tasks][:3] for played in (random, expert))
        better = paired_difference(lost, won)
        assert better.mean == better.high == 1
        assert better.low == pytest.approx(-0.101, abs=1e-3)  # the sign test has p = 0.25

    def test_order_does_not_matter_and_pairing_does(self) -> None:
        random, expert = self.played(RandomPolicy()), self.played(ExpertPolicy())
        assert paired_difference(random[::-1], expert) == paired_difference(random, expert)
        returns = paired_difference(random, expert, "total_reward")
        assert returns.mean == pytest.approx(
            sum(e.total_reward for e in expert) / 40 - sum(e.total_reward for e in random) / 40
        )

    def test_what_cannot_be_compared_is_refused(self) -> None:
        expert = self.played(ExpertPolicy())
        with pytest.raises(BadSetting, match="80 are only on one"):
            paired_difference(expert, self.played(ExpertPolicy(), seed=1))
        with pytest.raises(BadSetting, match="once on each side"):
            paired_difference([*expert, expert[0]], expert)
        with pytest.raises(BadSetting, match="metric must be"):
            paired_difference(expert, expert, "sucess")
        with pytest.raises(BadSetting, match="same tasks"):
            paired_difference([], [])


def test_printed_json_has_null_in_place_of_nan() -> None:
    values = {"mean_return": math.nan, "interval": (-math.inf, 1.5), "types": [{"score": math.inf}]}
    assert finite(values) == {"mean_return": None, "interval": [None, 1.5], "types": [{"score": None}]}
