"""Packages of others use the environments and the credit functions."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.errors import BadRenderMode, BadSetting
from agentgym_flow.rewards import RewardFlow
from agentgym_flow.rewards.token_advantages import TokenEpisode, TokenTurn, batch_advantages, token_advantages


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


def test_a_loaded_model_of_stable_baselines3_needs_a_new_seed_for_new_levels(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="a peer of this test only; the extra dev brings it")
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    def levels(model: Any) -> list[list[float]]:
        """The first boards of the next five episodes."""
        return [model.get_env().reset().ravel().tolist() for _ in range(5)]

    envs = make_vec_env("agentgym_flow/SokobanGrid-v0", env_kwargs={"size": 5, "boxes": 1})
    model = PPO("MlpPolicy", envs, device="cpu", seed=0)
    model.save(tmp_path / "model.zip")
    first, then = levels(model), levels(model)
    loaded = PPO.load(tmp_path / "model.zip", env=envs, device="cpu")
    assert levels(loaded) == first != then, "the seed of the file is set again, as docs/integrations.md says"
    loaded.set_random_seed(1)
    assert levels(loaded) not in (first, then)
    envs.close()


def counted(env: gym.Env) -> gym.Env:
    """Show the words of a text in 64 numbers."""

    def count(text: str) -> np.ndarray:
        return np.bincount([zlib.crc32(word.encode()) % 64 for word in text.split()], minlength=64).astype(np.float32)

    return gym.wrappers.TransformObservation(env, count, gym.spaces.Box(0, np.inf, (64,), np.float32))


def test_stable_baselines3_learns_on_alfworld_whose_text_is_made_numbers() -> None:
    pytest.importorskip("stable_baselines3", reason="a peer of this test only; the extra dev brings it")
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    envs = make_vec_env("agentgym_flow/ALFWorldIndex-v0", n_envs=2, seed=0, wrapper_class=counted)
    assert envs.reset().any()
    PPO("MlpPolicy", envs, n_steps=16, batch_size=32, n_epochs=1, device="cpu", seed=0).learn(32)
    envs.close()


def test_a_picture_that_is_not_offered_is_an_error_of_both_kinds() -> None:
    with pytest.warns(UserWarning, match="render_mode"), pytest.raises(BadRenderMode) as caught:
        gym.make("agentgym_flow/ALFWorldIndex-v0", render_mode="rgb_array")
    assert isinstance(caught.value, TypeError)


HALL = (
    TokenEpisode(
        [TokenTurn("hall", "kitchen", 0.0, (0, 3)), TokenTurn("kitchen", "done", 1.0, (5, 8))], success=True, length=8
    ),
    TokenEpisode(
        [TokenTurn("hall", "cellar", 0.0, (0, 4)), TokenTurn("cellar", "hall", 0.0, (6, 8))], success=False, length=8
    ),
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
            steps.append(TokenTurn(state, following, 0.0, (end + 1, end + 3)))
            end, state = end + 3, following
        attempts.append(TokenEpisode(steps, success, end + 2))
    for attempt, row in zip(attempts, token_advantages(attempts), strict=True):
        assert len(row) == attempt.length
        inside = {place for step in attempt.steps for place in range(*step.span)}
        assert all(row[place] == 0 for place in range(attempt.length) if place not in inside)
        assert all(len({row[place] for place in range(*step.span)}) == 1 for step in attempt.steps)


@pytest.mark.parametrize(
    ("attempts", "message"),
    [
        ([], "got 0"),
        ([HALL[0], TokenEpisode([TokenTurn("yard", "hall", 0.0, (0, 1))], success=False, length=1)], "2 starts"),
        ([TokenEpisode([TokenTurn("a", "b", 0.0, (0, 9))], success=True, length=8)], "leaves the 8 tokens"),
        (
            [
                TokenEpisode(
                    [TokenTurn("a", "b", 0.0, (0, 3)), TokenTurn("b", "c", 0.0, (2, 4))], success=True, length=8
                )
            ],
            "overlaps",
        ),
    ],
)
def test_what_cannot_be_credited_says_why(attempts: list[TokenEpisode], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        token_advantages(attempts)


HALL_TURNS = [[(step.state, step.next_state, step.reward) for step in attempt.steps] for attempt in HALL]
HALL_MASK = [[1, 1, 1, 0, 0, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0, 1, 1, 0]]


def test_a_padded_batch_of_several_groups_is_filled_group_by_group() -> None:
    mask = np.array(HALL_MASK * 2)[[0, 2, 1, 3]]  # rows of the two groups alternate
    turns = [HALL_TURNS[0], HALL_TURNS[0], HALL_TURNS[1], HALL_TURNS[1]]
    filled = batch_advantages(turns, [True, True, False, False], mask, ["b", "a", "b", "a"], gamma=0.9, norm="mean")
    expected = np.array(token_advantages(HALL, gamma=0.9, norm="mean"))
    assert filled.shape == mask.shape
    assert filled.dtype == np.float32
    np.testing.assert_allclose(filled[[0, 2], :8], expected, rtol=1e-6)
    np.testing.assert_array_equal(filled[[0, 2]], filled[[1, 3]])
    assert not filled[mask == 0].any()


def test_turns_that_a_cut_response_has_lost_still_count_for_the_others() -> None:
    mask = np.array(HALL_MASK)
    mask[0, 3:] = 0
    whole = batch_advantages(HALL_TURNS, [True, False], HALL_MASK, [7, 7], gamma=0.9)
    cut = batch_advantages(HALL_TURNS, [True, False], mask, [7, 7], gamma=0.9)
    np.testing.assert_array_equal(cut, whole * mask)
    assert cut[0, 0] > 0


@pytest.mark.parametrize(
    ("turns", "mask", "index", "message"),
    [
        (HALL_TURNS, HALL_MASK, [7], "1 groups"),
        (HALL_TURNS, HALL_MASK[0], [7, 7], "shape \\(9,\\)"),
        (
            [HALL_TURNS[0], HALL_TURNS[1][:1]],
            HALL_MASK,
            [7, 7],
            "row 1 has 2 spans of the policy's tokens and 1 turns",
        ),
        ([HALL_TURNS[0], HALL_TURNS[1][::-1]], HALL_MASK, [7, 7], "2 starts"),
    ],
)
def test_batches_that_do_not_fit_together_say_why(turns: list[Any], mask: Any, index: list[int], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        batch_advantages(turns, [True, False], mask, index)
