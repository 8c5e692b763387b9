"""Real SkyRL-Gym plays any id: `make`, `init`, `step`, and its metrics. `make nightly` installs it."""

from __future__ import annotations

from typing import Any

import pytest
from expert_play import TEXT_IDS, won

from agentgym_flow.errors import BadSetting, UnknownEnvironment, UnknownOption

pytest.importorskip("skyrl_gym", reason="needs skyrl-gym, in an environment of its own: make nightly")

import skyrl_gym
from skyrl_gym.metrics import aggregate_for_environment

from agentgym_flow.integrations.skyrl import NAME

pytestmark = pytest.mark.nightly

PROMPT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "replaced"}]


def make(env_id: str, extras: dict[str, Any] | None = None, **config: Any) -> Any:
    return skyrl_gym.make(NAME, env_config={"env_id": env_id, **config}, extras=extras or {})


@pytest.mark.parametrize("env_id", TEXT_IDS)
def test_the_expert_wins_every_environment_through_skyrl_gym(env_id: str) -> None:
    episode, answers = won(env_id, 3)
    env = make(env_id, {"task": 3}, reward="return")
    messages, metadata = env.init(PROMPT)
    assert [message["role"] for message in messages] == ["system", "user"]
    assert episode.goal in messages[1]["content"]
    assert metadata == {"task_key": episode.task_key, "state_key": episode.state_key}
    for answer, turn in zip(answers, episode.turns, strict=True):
        step = env.step(answer)
        assert (step["reward"], step["done"]) == (turn.reward, turn.terminated)
        assert step["metadata"]["next_state_key"] == turn.next_state_key
        assert step["done"] or turn.next_observation[-20:] in step["observations"][0]["content"]
    assert step["observations"] == []
    metrics = aggregate_for_environment(NAME, [env.get_metrics()])
    assert metrics["success"] == metrics["valid_actions"] == 1
    assert metrics["return"] == pytest.approx(episode.total_reward)
    env.close()


def test_success_is_rewarded_once_and_nonsense_costs_a_turn() -> None:
    episode, answers = won("agentgym_flow/Sokoban-v0", 0, max_steps=30)
    env = make("agentgym_flow/Sokoban-v0", {"task": 0, "max_turns": 30})
    env.init(PROMPT)
    rewards = [env.step("I would rather not.")["reward"]]
    rewards += [env.step(answer)["reward"] for answer in answers]
    assert rewards == [0.0] * len(episode.turns) + [1.0]
    assert env.get_metrics()["valid_actions"] < 1


def test_turns_of_the_generator_are_the_step_budget_and_equal_rows_begin_equally() -> None:
    first, second = (make("agentgym_flow/Search-v0", {"seed": 5, "max_turns": 2}) for _ in range(2))
    assert first.init([]) == second.init([])
    assert not first.step("what?")["done"]
    assert first.step("what?")["done"]
    assert first.max_turns == 2


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"env_id": "agentgym_flow/Sokobahn-v0"}, UnknownEnvironment, "Did you mean 'agentgym_flow/Sokoban-v0'"),
        ({}, BadSetting, "needs an env_id"),
        ({"env_id": "agentgym_flow/Sokoban-v0", "rewards": "success"}, UnknownOption, "Did you mean 'reward'"),
        ({"env_id": "agentgym_flow/Sokoban-v0", "reward": "outcome"}, UnknownOption, "success, return"),
        ({"env_id": "agentgym_flow/Sokoban-v0", "template": "compact"}, BadSetting, "no follow_up"),
    ],
)
def test_configurations_that_cannot_work_say_why(config: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        skyrl_gym.make(NAME, env_config=config, extras={"task": 0})


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        ({}, BadSetting, "a row has neither a task nor a seed; it has nothing"),
        ({"max_turns": 3, "task": None}, BadSetting, "neither a task nor a seed; it has max_turns, task"),
        ({"seed": 0, "tasks": 7}, UnknownOption, "Did you mean 'task'"),
        ({"task": 7.5}, BadSetting, "whole number"),
    ],
)
def test_a_row_without_a_task_is_refused(row: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make("agentgym_flow/Sokoban-v0", row)
