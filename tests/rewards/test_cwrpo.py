"""CWRPO's advantages and weights: numbers by hand, and how the published option differs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.episodes import Group
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.rewards.credit import CREDIT, WEIGHTS, grpo, settings_of
from agentgym_flow.rewards.credit.cwrpo import cwrpo, trajectory_weights


def ended(make_episode, *returns: float, task_type: str = "", task_key: str = "maze:1", lengths: tuple[int, ...] = ()):
    """Attempts that get one reward, at their end."""
    attempts = []
    for number, worth in enumerate(returns):
        turns = lengths[number] if lengths else 2
        rewards = [0.0] * (turns - 1) + [worth]
        path = "s" * (turns + 1)
        attempts.append(make_episode(path, attempt=number, rewards=rewards, task_type=task_type, task_key=task_key))
    return Group(attempts)


def test_the_defaults_are_the_objective_on_groups_of_one_task() -> None:
    defaults = {"outcome": "return", "scope": "group", "statistics": None, "credit": "terminal", "gamma": 0.95}
    assert settings_of("cwrpo") == {**defaults, "reproduce_official": False}
    assert CREDIT["cwrpo"] is cwrpo
    assert WEIGHTS["cwrpo"] is trajectory_weights


def test_advantages_are_those_worked_out_by_hand(make_episode) -> None:
    """Returns 1, 0, -.2, -.8: mean 0, and the squares sum to 1.68, so the sample deviation is sqrt(.56)."""
    group = ended(make_episode, 1.0, 0.0, -0.2, -0.8)
    deviation = math.sqrt(0.56) + 1e-6
    expected = [[value / deviation] * 2 for value in (1.0, 0.0, -0.2, -0.8)]
    for found, row in zip(cwrpo([group])[0], expected, strict=True):
        assert found == pytest.approx(row, abs=1e-12)
    assert cwrpo([group]) == grpo([group], outcome="return")


def test_one_data_set_is_the_published_scope(make_episode) -> None:
    """An easy and a hard task: compared with each other, all attempts at the easy one are praised."""
    easy = ended(make_episode, 1.0, 1.0, task_type="math", task_key="maze:1")
    hard = ended(make_episode, 0.0, 0.0, task_type="math", task_key="maze:2")
    other = ended(make_episode, -1.0, 0.0, task_type="code", task_key="maze:3")
    batch = [easy, hard, other]
    within = cwrpo(batch)
    assert within[0] == within[1] == [[0.0, 0.0]] * 2
    across = cwrpo(batch, scope="task_type")
    praised = 0.5 / (math.sqrt(1 / 3) + 1e-6)
    assert [row[0] for row in across[0]] == pytest.approx([praised] * 2)
    assert [row[0] for row in across[1]] == pytest.approx([-praised] * 2)
    assert across[2] == within[2]


def test_the_released_code_has_a_floor_under_the_deviation(make_episode) -> None:
    group = ended(make_episode, 0.0, 0.004)  # the deviation is .002
    assert [row[0] for row in cwrpo([group], reproduce_official=True)[0]] == pytest.approx([-0.2, 0.2])
    assert [row[0] for row in cwrpo([group])[0]] == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5)], rel=1e-3)
    wide = ended(make_episode, -1.0, 1.0)
    assert [row[0] for row in cwrpo([wide], reproduce_official=True)[0]] == pytest.approx([-1.0, 1.0])
    assert cwrpo([wide], outcome="success", reproduce_official=True) == [[[0.0] * 2] * 2]


def test_the_released_code_takes_the_deviation_of_the_population(make_episode) -> None:
    """Six returns of one data set: mean 0, and the squares sum to 2.16, so it is sqrt(.36) = .6."""
    returns = (1.0, 0.2, 0.2, -0.2, -0.2, -1.0)
    batch = [ended(make_episode, one, task_type="math", task_key=f"maze:{one}{n}") for n, one in enumerate(returns)]
    found = [group[0][0] for group in cwrpo(batch, scope="task_type", reproduce_official=True)]
    assert found == pytest.approx([1 / 0.6, 1 / 3, 1 / 3, -1 / 3, -1 / 3, -1 / 0.6])


def test_credit_per_turn_is_that_worked_out_by_hand(make_episode) -> None:
    """Halved per turn: .5 and 1 against -1. Their mean is 1/6, the squares of the distances sum to 2.16667."""
    group = ended(make_episode, 1.0, -1.0, lengths=(2, 1))
    deviation = math.sqrt((0.25 + 1 + 1 - 3 / 36) / 2) + 1e-6
    found = cwrpo([group], credit="turn", gamma=0.5)[0]
    assert found[0] == pytest.approx([(0.5 - 1 / 6) / deviation, (1 - 1 / 6) / deviation])
    assert found[1] == pytest.approx([(-1 - 1 / 6) / deviation])
    assert cwrpo([group], gamma=0.5)[0][0][0] == pytest.approx(1 / (math.sqrt(2) + 1e-6))


def test_undiscounted_credit_per_turn_of_final_rewards_is_terminal_credit(make_episode) -> None:
    group = ended(make_episode, 1.0, -0.2, 0.25, lengths=(3, 1, 4))
    assert cwrpo([group], credit="turn", gamma=1.0) == cwrpo([group], statistics="turn")


def test_attempts_that_are_worth_the_same_teach_nothing_however_long_they_took(make_episode) -> None:
    group = ended(make_episode, -0.2, -0.2, -0.2, lengths=(1, 3, 5))
    assert cwrpo([group], credit="turn") == cwrpo([group]) == [[[0.0], [0.0] * 3, [0.0] * 5]]


def test_wrong_settings_are_refused(make_episode) -> None:
    group = ended(make_episode, 0.0, 1.0)
    with pytest.raises(UnknownOption, match="Known: terminal, turn"):
        cwrpo([group], credit="turns")
    with pytest.raises(BadSetting, match="gamma"):
        cwrpo([group], credit="turn", gamma=1.01)


# ---------------------------------------------------------------- weights
def spoken(group: Group, *lengths: list[int]) -> Group:
    """Give the turns of a group answers of so many tokens, in one conversation with observations of three."""
    for episode, of_turns in zip(group, lengths, strict=True):
        said: list[int] = []
        for turn, length in zip(episode.turns, of_turns, strict=True):
            turn.output.prompt_ids, turn.output.completion_ids = [*said, 1, 2, 3], [7] * length
            said = [*turn.output.prompt_ids, *turn.output.completion_ids]
    return group


def test_every_episode_counts_the_same_by_its_tokens(make_episode) -> None:
    group = spoken(ended(make_episode, 0.0, 0.0, lengths=(2, 1)), [4, 2], [2])
    [[long, short]] = trajectory_weights([group])
    assert long * 6 == pytest.approx(short * 2)
    assert long * 6 + short * 2 == pytest.approx(6 + 2)  # the mean weight of a token is 1


def test_observations_count_where_they_are_trained_on(make_episode) -> None:
    """The first prompt is given, so the long one has 4 + 3 + 2 tokens after it and the short one 2."""
    group = spoken(ended(make_episode, 0.0, 0.0, lengths=(2, 1)), [4, 2], [2])
    [[long, short]] = trajectory_weights([group], observations=True)
    assert long * 9 == pytest.approx(short * 2)


def test_turns_count_where_there_are_no_tokens(make_episode) -> None:
    group = ended(make_episode, 0.0, 0.0, lengths=(3, 1))
    assert trajectory_weights([group]) == [[pytest.approx(2 / 3), 2.0]]
    assert trajectory_weights([]) == []
    assert trajectory_weights([Group([make_episode("s")])]) == [[1.0]]


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_the_mean_over_tokens_becomes_a_mean_over_episodes(make_episode, lengths: list[int]) -> None:
    group = ended(make_episode, *[0.0] * len(lengths), lengths=tuple(lengths))
    [weights] = trajectory_weights([group])
    shares = [weight * length / sum(lengths) for weight, length in zip(weights, lengths, strict=True)]
    assert shares == pytest.approx([1 / len(lengths)] * len(lengths))
