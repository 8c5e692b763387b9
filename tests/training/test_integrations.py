"""Packages of others use the environments and the credit functions."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.errors import BadRenderMode, BadSetting
from agentgym_flow.rewards import RewardFlow
from agentgym_flow.rewards.token_advantages import Attempt, Step, token_advantages


@pytest.mark.parametrize("wrapper", [None, RewardFlow])
def test_stable_baselines3_learns_on_the_grid(wrapper: type[gym.Wrapper] | None) -> None:
    pytest.importorskip("stable_baselines3", reason="a peer of this test only; the extra dev brings it")
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    settings = {"size": 5, "boxes": 1, "max_steps": 20}
    envs = make_vec_env("agentgym_flow/SokobanGrid-v0", n_envs=2, seed=0, env_kwargs=settings, wrapper_class=wrapper)
    model = PPO("MlpPolicy", envs, n_steps=32, batch_size=32, n_epochs=1, device="cpu", seed=0).learn(64)
    mean, _ = evaluate_policy(model, envs, n_eval_episodes=2)
    assert np.isfinite(mean)
    envs.close()


def test_a_picture_that_is_not_offered_is_an_error_of_both_kinds() -> None:
    with pytest.warns(UserWarning, match="render_mode"), pytest.raises(BadRenderMode) as caught:
        gym.make("agentgym_flow/ALFWorldIndex-v0", render_mode="rgb_array")
    assert isinstance(caught.value, TypeError)


HALL = (
    Attempt([Step("hall", "kitchen", 0.0, (0, 3)), Step("kitchen", "done", 1.0, (5, 8))], success=True, length=8),
    Attempt([Step("hall", "cellar", 0.0, (0, 4)), Step("cellar", "hall", 0.0, (6, 8))], success=False, length=8),
)


def test_advantages_of_turns_become_those_of_tokens() -> None:
    kitchen, cellar = 0.9, 0.9**3  # one step from success; by the hall and the kitchen, three
    apart = (kitchen - cellar) / 2
    first, second = token_advantages(HALL, gamma=0.9, norm="mean")
    assert first == pytest.approx([0.5 + apart] * 3 + [0, 0] + [0.5] * 3)
    assert second == pytest.approx([-0.5 - apart] * 4 + [0, 0] + [-0.5] * 2)
    assert token_advantages(HALL, "rloo") == [[1.0, 1, 1, 0, 0, 1, 1, 1], [-1.0, -1, -1, -1, 0, 0, -1, -1]]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=1, max_size=6), st.data())
def test_every_token_of_a_turn_gets_the_same_and_others_nothing(
    shapes: list[tuple[bool, int]], data: st.DataObject
) -> None:
    attempts = []
    for success, turns in shapes:
        steps, end, state = [], 0, "start"
        for number in range(turns):
            following = data.draw(st.sampled_from("abc")) + str(number)
            steps.append(Step(state, following, 0.0, (end + 1, end + 3)))
            end, state = end + 3, following
        attempts.append(Attempt(steps, success, end + 2))
    for attempt, row in zip(attempts, token_advantages(attempts), strict=True):
        assert len(row) == attempt.length
        inside = {place for step in attempt.steps for place in range(*step.span)}
        assert all(row[place] == 0 for place in range(attempt.length) if place not in inside)
        assert all(len({row[place] for place in range(*step.span)}) == 1 for step in attempt.steps)


@pytest.mark.parametrize(
    ("attempts", "message"),
    [
        ([], "got 0"),
        ([HALL[0], Attempt([Step("yard", "hall", 0.0, (0, 1))], success=False, length=1)], "2 starts"),
        ([Attempt([Step("a", "b", 0.0, (0, 9))], success=True, length=8)], "leaves the 8 tokens"),
        ([Attempt([Step("a", "b", 0.0, (0, 3)), Step("b", "c", 0.0, (2, 4))], success=True, length=8)], "overlaps"),
    ],
)
def test_what_cannot_be_credited_says_why(attempts: list[Attempt], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        token_advantages(attempts)
