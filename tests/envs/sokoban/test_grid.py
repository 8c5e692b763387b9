"""The numeric face: Gymnasium's own checker, and equality with the text face."""

from __future__ import annotations

import copy
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import agentgym_flow  # noqa: F401 (registers the ids)
from agentgym_flow.envs.sokoban.env import SokobanEnv
from agentgym_flow.envs.sokoban.grid import INFO_KEYS, SokobanGridEnv
from agentgym_flow.envs.sokoban.level import ACTIONS, Level, cell_codes
from agentgym_flow.errors import BadAction, BadSetting, ResetNeeded, UnknownOption, UnknownTask

LEVELS = {"size": (7, 7), "boxes": 2}


@pytest.mark.parametrize("backend", ["native", "gym-sokoban"])
def test_gymnasiums_checker_is_content(backend: str) -> None:
    if backend == "gym-sokoban":
        pytest.importorskip("gym_sokoban", reason="the extra 'sokoban' is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make("agentgym_flow/SokobanGrid-v0", backend=backend).unwrapped)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_both_faces_play_the_same_game(seed: int, actions: list[int]) -> None:
    text, grid = SokobanEnv(**LEVELS), SokobanGridEnv(**LEVELS)
    _, told = text.reset(seed=seed)
    seen, info = grid.reset(seed=seed)
    for action in actions:
        assert info.items() >= {key: told[key] for key in INFO_KEYS if key in told}.items()
        board = text.game.board
        np.testing.assert_array_equal(seen.ravel(), cell_codes(board.cells, board.player))
        _, reward, terminated, truncated, told = text.step(ACTIONS[action])
        result = grid.step(action)
        assert result[1:4] == (reward, terminated, truncated)
        seen, info = result[0], result[4]
        if terminated or truncated:
            break


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(0, 3), max_size=25))
def test_the_mask_marks_exactly_the_actions_that_change_the_state(seed: int, actions: list[int]) -> None:
    env = SokobanGridEnv(size=6, boxes=3, max_steps=100)
    _, info = env.reset(seed=seed)
    for action in actions:
        if info["success"]:
            break
        assert info["action_mask"].dtype == np.int8
        changes = []
        for candidate in range(4):
            clone = copy.deepcopy(env)
            changes.append(clone.step(candidate)[4]["state_key"] != info["state_key"])
        assert info["action_mask"].tolist() == changes
        info = env.step(action)[4]


def test_nothing_is_shared_between_steps() -> None:
    env = SokobanGridEnv()
    first, info = env.reset(seed=0)
    kept, mask = first.copy(), info["action_mask"].copy()
    second, *_, later = env.step(0)
    assert not np.shares_memory(first, second)
    assert not np.shares_memory(info["action_mask"], later["action_mask"])
    first[:] = 0
    info["action_mask"][:] = 9
    third, *_, last = env.step(1)
    assert third.any()
    assert last["action_mask"].max() <= 1
    assert kept.any()
    assert mask.max() <= 1


def test_terminated_and_truncated_never_come_together() -> None:
    env = SokobanGridEnv(level="#####\n#@$.#\n#####", max_steps=1)
    env.reset(seed=0)
    assert env.step(3)[2:4] == (True, False)
    env.reset()
    assert env.step(0)[2:4] == (False, True)
    with pytest.raises(ResetNeeded):
        env.step(0)


def test_renderings_show_the_board_and_other_modes_are_refused() -> None:
    env = SokobanGridEnv(render_mode="ansi", level="#######\n#+ $  #\n#  $ .#\n#######")
    env.reset(seed=0)
    assert Level.parse(env.render()) == env.game.level
    picture = SokobanGridEnv(render_mode="rgb_array")
    picture.reset(seed=0)
    assert picture.render().shape == (96, 96, 3)
    assert SokobanGridEnv(render_mode=None).render() is None
    with pytest.raises(BadSetting, match="render_mode"):
        SokobanGridEnv(render_mode="human")


def test_keys_for_a_person_cover_the_actions() -> None:
    assert sorted(SokobanGridEnv().get_keys_to_action().values()) == [0, 1, 2, 3]


def test_info_keys_choose_what_is_told() -> None:
    env = SokobanGridEnv(info_keys=["action_mask", "task"])
    _, info = env.reset(seed=0)
    assert list(info) == ["task", "action_mask"]
    with pytest.raises(UnknownOption, match="state_key"):
        SokobanGridEnv(info_keys=["state_kei"])


@pytest.mark.parametrize("action", [-1, 4, 1.5, "up", None])
def test_actions_outside_the_space_are_named(action: object) -> None:
    env = SokobanGridEnv()
    env.reset(seed=0)
    with pytest.raises(BadAction, match="up, down, left, right"):
        env.step(action)  # type: ignore[arg-type]


def test_options_are_checked_as_in_the_text_face() -> None:
    env = SokobanGridEnv()
    with pytest.raises(ResetNeeded):
        env.step(0)
    with pytest.raises(UnknownOption, match="task"):
        env.reset(options={"tasks": 1})
    with pytest.raises(UnknownTask):
        env.reset(options={"task": 10_000})


def test_a_pickled_episode_goes_on_alike() -> None:
    env = SokobanGridEnv()
    env.reset(seed=3)
    env.step(1)
    twin = pickle.loads(pickle.dumps(env))
    for action in (0, 1, 2, 3):
        ours, theirs = env.step(action), twin.step(action)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1:4] == theirs[1:4]
    ours, theirs = env.reset(), twin.reset()
    np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.parametrize("action", [4, -1, 1.0, "up", None, [1], np.array([1]), np.array([1, 2])])
def test_what_is_no_action_is_refused_and_changes_nothing(action: object) -> None:
    env = SokobanGridEnv()
    env.reset(seed=0)
    with pytest.raises(BadAction, match="does not exist"):
        env.step(action)  # type: ignore[arg-type]
    assert env.steps == 0


def test_numpy_integers_are_actions() -> None:
    env, twin = SokobanGridEnv(), SokobanGridEnv()
    for action in (np.int64(2), np.uint8(1), np.array(3)):
        env.reset(seed=0)
        twin.reset(seed=0)
        np.testing.assert_equal(env.step(action), twin.step(int(action)))  # type: ignore[arg-type]
