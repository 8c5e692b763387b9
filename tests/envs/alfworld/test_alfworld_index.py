"""The numeric face: its own compliance suite, equality with the text face, numbers beyond the list."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentgym_flow  # noqa: F401 (registers the ids)
from agentgym_flow.envs.alfworld.compiled_game import Task
from agentgym_flow.envs.alfworld.env import INFO, ALFWorldEnv
from agentgym_flow.envs.alfworld.game import NOTHING_HAPPENS
from agentgym_flow.envs.alfworld.vector import NUM_ACTIONS, ALFWorldIndexEnv
from agentgym_flow.errors import BadAction, BadSetting, ResetNeeded, UnknownOption, UnknownSplit, UnknownTask
from agentgym_flow.testing import NumericCompliance


class TestALFWorldIndex(NumericCompliance):
    env_id = "agentgym_flow/ALFWorldIndex-v0"
    text_id = "agentgym_flow/ALFWorld-v0"
    variants: ClassVar[Any] = ({"max_steps": 8}, {"split": "valid", "max_steps": 8})
    vector_settings: ClassVar[Any] = ({}, {"info_keys": ["action_mask", "admissible_actions", "success"]})
    vector_steps = 30

    def is_marked(self, env: Any, action: int, observation: Any) -> bool:
        # What is possible, be it only to look once more.
        return bool(copy.deepcopy(env).step(action)[4]["action_valid"])

    def text_of(self, number: int, info: dict[str, Any]) -> str:
        commands = info["admissible_actions"]
        return str(commands[number]) if number < len(commands) else "no such command"


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(0, 80), min_size=1, max_size=25))
def test_both_faces_play_the_same_game(seed: int, actions: list[int]) -> None:
    text, index = ALFWorldEnv(split="valid"), ALFWorldIndexEnv(split="valid")
    said, told = text.reset(seed=seed)
    seen, info = index.reset(seed=seed)
    assert seen == said
    for action in actions:
        commands = told["admissible_actions"]
        mask = info.pop("action_mask")
        assert mask.dtype == np.int8
        assert mask.tolist() == [1] * len(commands) + [0] * (NUM_ACTIONS - len(commands))
        assert info == told
        result = index.step(action)
        *expected, told = text.step(commands[action] if action < len(commands) else "beyond the list")
        assert list(result[:4]) == expected
        info = result[4]
        if result[2] or result[3]:
            break
    assert (text.reset()[0], text.np_random.random()) == (index.reset()[0], index.np_random.random())


def test_official_games_are_won_by_their_experts_numbers(sample_data: Path) -> None:
    env = ALFWorldIndexEnv(data=sample_data / "alfworld", split="valid_seen")
    for task in range(env.num_tasks):
        _, info = env.reset(options={"task": task})
        over = False
        while not over:
            command = env.text.expert_action()
            _, reward, over, truncated, info = env.step(info["admissible_actions"].index(command))
            assert not truncated
        assert (reward, info["success"]) == (1.0, True)
        assert info["game_file"]


def test_a_number_beyond_the_list_is_a_step_in_which_nothing_happens() -> None:
    env = ALFWorldIndexEnv(max_steps=2)
    _, before = env.reset(seed=0)
    for count, number in enumerate((len(before["admissible_actions"]), NUM_ACTIONS - 1), start=1):
        observation, reward, terminated, truncated, info = env.step(number)
        assert (observation, reward, terminated, truncated) == (NOTHING_HAPPENS, 0.0, False, count == 2)
        assert not info["action_valid"]
        assert info["state_key"] == before["state_key"]
    with pytest.raises(ResetNeeded):
        env.step(0)


def test_of_more_commands_than_numbers_the_first_have_one(small: SimpleNamespace) -> None:
    drawers = {f"drawer {number}": number for number in range(1, 140)}
    game = small.build(drawers, {"apple 1": "drawer 1"}, small.placed("apple", "drawer"))
    env = ALFWorldIndexEnv()
    env.text.source.task = lambda number: Task(game, "many")  # type: ignore[method-assign]
    _, info = env.reset(seed=0)
    assert len(info["admissible_actions"]) > NUM_ACTIONS
    assert info["action_mask"].all()
    last = info["admissible_actions"][NUM_ACTIONS - 1]
    assert last.startswith("go to drawer")
    observation, *_ = env.step(NUM_ACTIONS - 1)
    assert last.removeprefix("go to ") in observation


@pytest.mark.parametrize("action", [NUM_ACTIONS, -1, 1.0, "look", None, [1], np.array([1, 2])])
def test_what_is_no_action_is_refused_and_changes_nothing(action: object) -> None:
    env = ALFWorldIndexEnv()
    env.reset(seed=0)
    with pytest.raises(BadAction, match="does not exist"):
        env.step(action)  # type: ignore[arg-type]
    assert env.text.steps == 0


def test_numpy_integers_are_actions() -> None:
    env, twin = ALFWorldIndexEnv(), ALFWorldIndexEnv()
    for action in (np.int64(2), np.uint8(1), np.array(3)):
        env.reset(seed=0)
        twin.reset(seed=0)
        np.testing.assert_equal(env.step(action), twin.step(int(action)))  # type: ignore[arg-type]


def test_info_keys_choose_what_is_told() -> None:
    env = ALFWorldIndexEnv(info_keys=["action_mask", "goal"])
    assert list(env.reset(seed=0)[1]) == ["goal", "action_mask"]
    assert list(env.step(0)[4]) == ["goal", "action_mask"]
    with pytest.raises(UnknownOption, match="state_key"):
        ALFWorldIndexEnv(info_keys=["state_kei"])


def test_every_key_of_the_text_face_can_be_chosen() -> None:
    env = ALFWorldEnv()
    assert tuple(env.reset(seed=0)[1]) == tuple(INFO)[:-1]
    env.request_info(["official_key"])
    assert tuple(env.reset(seed=0)[1]) == tuple(INFO)
    assert "official_key" not in ALFWorldIndexEnv().reset(seed=0)[1]


def test_options_are_checked_as_in_the_text_face() -> None:
    env = ALFWorldIndexEnv(split="test")
    with pytest.raises(ResetNeeded):
        env.step(0)
    with pytest.raises(UnknownOption, match="task_type"):
        env.reset(options={"tasktype": 1})
    with pytest.raises(UnknownTask):
        env.reset(options={"task": env.num_tasks})
    with pytest.raises(ResetNeeded):
        env.step(0)
    assert env.reset(seed=3, options={"task_type": 2})[1]["task_type"] == "look_at_obj_in_light"
    with pytest.raises(UnknownSplit):
        ALFWorldIndexEnv(split="validation")
    with pytest.raises(UnknownOption, match="fast"):
        ALFWorldIndexEnv(engine="fats")


def test_the_generator_that_was_set_draws_the_game() -> None:
    env = gym.make("agentgym_flow/ALFWorldIndex-v0").unwrapped
    tasks = []
    for _ in range(2):
        env.np_random = np.random.Generator(np.random.PCG64(5))
        tasks.append(env.reset()[1]["task"])
    assert tasks[0] == tasks[1]


@pytest.mark.parametrize("aliases", [None, True, False])
def test_both_faces_take_aliases_and_agree_on_task_keys(aliases: bool | None) -> None:
    text, index = ALFWorldEnv(aliases=aliases), ALFWorldIndexEnv(aliases=aliases)
    key = text.reset(seed=1)[1]["task_key"]
    assert index.reset(seed=1)[1]["task_key"] == key
    assert (key == ALFWorldIndexEnv().reset(seed=1)[1]["task_key"]) == (aliases is not False)


def test_aliases_are_checked_as_in_the_text_environment() -> None:
    with pytest.raises(BadSetting, match="aliases must be True, False or None"):
        ALFWorldIndexEnv(aliases="yes")  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="the original engine has no aliases"):
        ALFWorldIndexEnv(engine="textworld", aliases=True)
