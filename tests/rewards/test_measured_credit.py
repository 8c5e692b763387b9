"""Measured advantages against exact ones, the coverage of their intervals, and the comparison with credit functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import numpy as np
import pytest

from agentgym_flow._util.intervals import exact_interval
from agentgym_flow.core import Stream, TextEnv, Transition
from agentgym_flow.episodes import EpisodeRecorder, Group
from agentgym_flow.errors import BadData, BadSetting, ResetNeeded, UnknownOption
from agentgym_flow.play import EnvPool, EpisodeSpec, rollout_groups
from agentgym_flow.play.forks import ERROR_RATE, corrected_advantages, discordance, forked_groups, looks, measure
from agentgym_flow.policies import FunctionPolicy, PolicyInput, PolicyOutput
from agentgym_flow.rewards.credit.audit import audit, parse_credit, rank_correlation

GOAL, STEPS, FORWARD = 3, 6, 0.6


class Corridor(TextEnv):
    """Walk right to the goal within six steps; a step to the left of the start falls into a pit."""

    env_id = "tests/Corridor-v0"

    def __init__(self) -> None:
        super().__init__(split="train", max_steps=STEPS, settings={})
        self.at = 1

    @property
    def num_tasks(self) -> int:
        return 2

    def _begin(self, task: int, noise: Stream, options: object) -> str:
        self.at = 1 + task
        return str(self.at)

    def _apply(self, action: str) -> Transition:
        self.at += 1 if action == "right" else -1
        return Transition(str(self.at), float(self.at == GOAL), self.at in (-1, GOAL), True)

    def state_key(self) -> str:
        end = "end:success:" if self.at == GOAL else "end:fail:" if self.at == -1 else ""
        return f"{end}{self.at}"


@cache
def value(at: int, left: int) -> float:
    """Return the exact value of a state, by enumeration."""
    if at in (GOAL, -1) or left == 0:
        return float(at == GOAL)
    return FORWARD * value(at + 1, left - 1) + (1 - FORWARD) * value(at - 1, left - 1)


def walk(inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
    return [
        PolicyOutput("right" if one.rng.uniform() < FORWARD else "left", prompt_ids=(int(one.observation),))
        for one in inputs
    ]


POLICY = FunctionPolicy("walk", walk)
TASKS = [EpisodeSpec(0, 0), EpisodeSpec(1, 1)]


def forks_of(groups):
    return [fork for one in groups for of_episode in one.forks for fork in of_episode]


@pytest.fixture(scope="module")
def measured():
    groups = forked_groups(POLICY, Corridor, TASKS, 4, groups=4)
    cost = measure(POLICY, forks_of(groups), precise=forks_of(groups), half_width=0.1)
    return groups, cost


# ---------------------------------------------------------------- the measure
def test_measured_values_are_the_exact_ones(measured) -> None:
    groups, _ = measured
    states = list(dict.fromkeys(forks_of(groups)))
    assert len(states) >= 20
    for fork in states:
        low, high = fork.interval
        left = STEPS - len(fork.recorder.episode.turns)
        assert low <= value(fork.recorder.env.at, left) <= high  # all of them: the seed is fixed
        assert fork.half_width <= 0.1
    for one in groups:
        errors = [
            abs(found - value(int(turn.next_observation), STEPS - 1 - number)
                + value(int(turn.observation), STEPS - number)) / half
            for episode, of_episode, halves in zip(one.group, one.advantages(), one.half_widths(), strict=True)
            for number, (turn, found, half) in enumerate(zip(episode.turns, of_episode, halves, strict=True))
        ]  # fmt: skip
        assert max(errors) < 2


def test_the_steps_that_are_left_count(measured) -> None:
    """One step before the goal, the value is nearly 1 at first, and .6 in the last turn."""
    groups, _ = measured
    near = {len(f.recorder.episode.turns): f.value for f in forks_of(groups) if f.recorder.env.at == GOAL - 1}
    assert near[0] > near[max(near)] + 0.1
    assert near[max(near)] == pytest.approx(value(GOAL - 1, STEPS - max(near)), abs=0.1)


def test_the_groups_are_those_of_a_rollout_and_equal_beginnings_share_a_state(measured) -> None:
    groups, _ = measured
    played = rollout_groups(POLICY, Corridor, TASKS, 16)
    attempts = [[e.digests() for one in groups[task::2] for e in one.group] for task in (0, 1)]
    assert attempts == [[e.digests() for e in group] for group in played]
    assert len({id(of[0]) for one in groups[::2] for of in one.forks}) == 1
    assert len(set(forks_of(groups))) < len(forks_of(groups)) / 2


def test_the_seed_determines_everything_but_not_the_number_in_parallel(measured) -> None:
    groups, _ = measured
    again = forked_groups(POLICY, Corridor, TASKS, 4, groups=4, num_envs=3)
    measure(POLICY, forks_of(again), least=30, num_envs=5)
    assert all(a.outcomes[:16] == b.outcomes[:16] for a, b in zip(forks_of(again), forks_of(groups), strict=True))
    other = forked_groups(POLICY, Corridor, TASKS, 4, groups=4)
    measure(POLICY, forks_of(other), least=30, seed=1)
    assert [one.advantages() for one in other] != [one.advantages() for one in again]


def test_common_random_numbers_leave_fewer_discordant_pairs(measured) -> None:
    shared, apart = discordance(measured[0])
    assert 0 < shared < 0.8 * apart


def test_intervals_hold_the_value_although_looks_are_adaptive() -> None:
    """In 95 % of measurements the interval at every look holds the value; so does the last one."""
    rng, schedule = np.random.default_rng(0), looks(0.1)
    for share in (0.02, 0.1, 0.3, 0.5, 0.85):
        missed = 0
        for _ in range(300):
            outcomes = rng.random(schedule[-1]) < share
            for look in schedule:
                low, high = exact_interval(int(outcomes[:look].sum()), look, ERROR_RATE)
                if not low <= share <= high:
                    missed += 1
                    break
                if high - low <= 0.2:
                    break
            else:
                raise AssertionError("the last look is always narrow enough")
        assert missed <= 0.05 * 300


def test_exact_intervals_are_those_of_the_binomial_tables() -> None:
    assert exact_interval(3, 10) == pytest.approx((0.06674, 0.65245), abs=1e-5)
    assert exact_interval(0, 10) == pytest.approx((0.0, 0.30850), abs=1e-5)
    assert exact_interval(10, 10)[1] == 1.0


def test_an_asynchronous_policy_measures_the_same(measured) -> None:
    class Slow:
        name = "slow"

        async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
            return walk([policy_input])[0]

    groups = forked_groups(Slow(), Corridor, TASKS, 2)
    measure(Slow(), forks_of(groups), least=4)
    first = measured[0][0].forks[0][0]
    assert groups[0].forks[0][0].outcomes == first.outcomes[:4]


def test_a_fork_leaves_its_recorder_alone() -> None:
    recorder = EpisodeRecorder(Corridor())
    with pytest.raises(ResetNeeded, match="reset"):
        recorder.fork()
    recorder.reset(seed=0, task=0)
    recorder.step("right")
    other = recorder.fork()
    other.step("right")
    assert (other.done, recorder.done, len(recorder.episode.turns), recorder.env.at) == (True, False, 1, 2)


@pytest.mark.parametrize("wrong", [0.0, 0.7])
def test_a_half_width_out_of_range_is_refused(wrong: float) -> None:
    with pytest.raises(BadSetting, match="half_width"):
        looks(wrong)


# ---------------------------------------------------------------- measured turns in training
def test_corrected_advantages_are_unbiased_whatever_the_credit() -> None:
    [group] = rollout_groups(POLICY, Corridor, [EpisodeSpec(0, 0)], 4)
    wrong = [[[1.0] * len(episode.turns) for episode in group]]
    exact = [
        value(int(turn.next_observation), STEPS - 1 - number) - value(int(turn.observation), STEPS - number)
        for episode in group
        for number, turn in enumerate(episode.turns)
    ]
    envs, found = EnvPool(Corridor), []
    for seed in range(150):
        [of_group], cost = corrected_advantages(
            POLICY, envs, [group], wrong, share=0.6, continuations=2, seed=seed, num_envs=64
        )
        found.append([a for of_episode in of_group for a in of_episode])
    assert cost.steps > cost.continuations > 0
    table = np.array(found)
    errors = np.abs(table.mean(axis=0) - exact) / (table.std(axis=0) / len(table) ** 0.5)
    assert errors.max() < 3.5
    assert (table != 1.0).mean() == pytest.approx(0.6, abs=0.05)


def test_a_share_of_one_measures_every_turn_and_equal_states_once() -> None:
    groups = rollout_groups(POLICY, Corridor, TASKS, 3)
    none = [[[0.0] * len(episode.turns) for episode in group] for group in groups]
    settings = {"share": 1.0, "continuations": 3, "seed": 0}
    first, cost = corrected_advantages(POLICY, EnvPool(Corridor), groups, none, **settings)
    states = {(g, *(t.action for t in e.turns[:n])) for g, group in enumerate(groups) for e in group
              for n in range(len(e.turns))}  # fmt: skip
    assert cost.continuations <= 3 * len(states)
    assert corrected_advantages(POLICY, EnvPool(Corridor), groups, none, **settings)[0] == first


def test_an_environment_that_does_not_replay_is_refused() -> None:
    [group] = rollout_groups(POLICY, Corridor, [EpisodeSpec(0, 0)], 2)
    group.episodes[0].turns[0].state_key = "elsewhere"
    credit = [[[0.0] * len(episode.turns) for episode in group]]
    with pytest.raises(BadData, match="fork_share"):
        corrected_advantages(POLICY, EnvPool(Corridor), [group], credit, share=1.0, continuations=1, seed=0)


# ---------------------------------------------------------------- the comparison
def tabular(group: Group, advantages: Sequence[Sequence[Sequence[float]]]) -> list[np.ndarray]:
    """Return gradients of a policy with one probability for each place."""
    found = []
    for of in advantages:
        vector = np.zeros(GOAL + 1)
        for episode, of_turns in zip(group, of, strict=True):
            for turn, a in zip(episode.turns, of_turns, strict=True):
                right = turn.action == "right"
                vector[int(turn.observation)] += a * (1 - FORWARD if right else -FORWARD)
        found.append(vector)
    return found


@pytest.fixture(scope="module")
def compared(measured):
    groups, _ = measured
    halves = tuple([one.advantages(slice(half, None, 2)) for one in groups] for half in (0, 1))
    names = ("grpo", "g2po", 'gagpo{"lam": 0}')
    run = partial(audit, [one.group for one in groups], [one.advantages() for one in groups], halves)
    return run({name: parse_credit(name) for name in names}, precise=[4] * len(groups), gradients=tabular)


def test_the_audit_finds_the_better_estimator(compared) -> None:
    rows = {row.name: row for row in compared.rows}
    assert [row.one.value for row in compared.rows] == sorted((row.one.value for row in compared.rows), reverse=True)
    assert rows['gagpo{"lam": 0}'].one.value > rows["grpo"].one.value + 0.1
    assert rows["g2po"].rank.value > rows["grpo"].rank.value
    assert compared.preferred[0] == compared.rows[0].name
    assert "grpo" not in compared.preferred
    assert compared.ceiling.rank.value > 0.85
    assert compared.ceiling.one.value > rows["grpo"].one.value
    assert compared.as_dict()["preferred"] == compared.preferred


def test_without_gradients_nothing_is_preferred(measured) -> None:
    groups, _ = measured
    truth = [one.advantages() for one in groups]
    found = audit([one.group for one in groups], truth, (truth, truth), {"grpo": parse_credit("grpo")}, precise=[4, 2])
    assert (found.preferred, found.rows[0].one, found.rows[0].many) == ([], None, None)
    assert (found.ceiling.rank.value, found.ceiling.sign.value) == (1.0, 1.0)


def test_nothing_is_preferred_where_no_advantage_was_measured(measured) -> None:
    groups = [one.group for one in measured[0]]
    truth = [[[0.0] * len(episode.turns) for episode in group] for group in groups]
    credit = {name: parse_credit(name) for name in ("grpo", "g2po")}
    found = audit(groups, truth, (truth, truth), credit, precise=[4], gradients=tabular)
    assert found.preferred == []
    assert {(row.one, row.many) for row in [*found.rows, found.ceiling]} == {(None, None)}
    assert found.ceiling.silent == 1


def test_a_single_task_tells_no_function_from_another(measured) -> None:
    task = measured[0][0].group.task_key
    of_task = [one for one in measured[0] if one.group.task_key == task]
    groups, truth = [one.group for one in of_task], [one.advantages() for one in of_task]
    assert len(groups) > 1
    credit = {name: parse_credit(name) for name in ("grpo", "gigpo", "gagpo")}
    found = audit(groups, truth, (truth, truth), credit, precise=[4], gradients=tabular)
    assert [*found.preferred] == [row.name for row in found.rows]
    for row in [*found.rows, found.ceiling]:
        for mean in (row.one, row.rank, row.sign):
            low, high = mean.interval
            assert -1 <= low <= mean.value <= high <= 1
            assert high - low > 0.1, row


def test_the_weights_of_episodes_are_in_the_gradient(measured) -> None:
    groups = [one.group for one in measured[0]]
    truth = [one.advantages() for one in measured[0]]
    credit = {name: parse_credit(name) for name in ("grpo", "cwrpo")}
    rows = {row.name: row for row in audit(groups, truth, (truth, truth), credit, precise=[4], gradients=tabular).rows}
    assert rows["grpo"].rank == rows["cwrpo"].rank
    assert rows["grpo"].one != rows["cwrpo"].one


def test_ranks_of_ties_are_their_mean() -> None:
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert rank_correlation([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(0.94868, abs=1e-5)
    assert rank_correlation([1, 1], [1, 2]) is None


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("gagpo{lam: 0}", BadSetting, "not JSON"),
        ('gagpo{"lambda": 0}', UnknownOption, "Did you mean 'lam'|Known"),
        ("gapo", UnknownOption, "gagpo"),
    ],
)
def test_a_credit_function_that_does_not_exist_is_refused(text: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        parse_credit(text)


def test_settings_in_the_text_change_those_of_the_environment() -> None:
    own = {"graphgpo": {"gamma": 0.1, "potential": "average"}}
    assert parse_credit('graphgpo{"gamma": 0.5}', own)[1] == {
        "outcome": "success",
        "gamma": 0.5,
        "potential": "average",
    }
