"""The environment with the original packages as its engine: same class, same files, same outputs."""

from __future__ import annotations

import copy
import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from agentgym_flow.envs import make_text_env
from agentgym_flow.episode import Recorder
from agentgym_flow.seeding import Stream

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(
        find_spec("textworld") is None or find_spec("alfworld") is None, reason="the extra 'alfworld' is not installed"
    ),
]


def played(engine: str, options: dict[str, Any], **settings: Any) -> list[tuple[Any, ...]]:
    """Play an episode: random commands, some of them in the other wording or nonsense, then the expert."""
    env = make_text_env("agentgym_flow/ALFWorld-v0", engine=engine, **settings)
    outcome: list[tuple[Any, ...]] = [env.reset(seed=5, options=options)]
    rng = Stream("textworld env")
    while env.playing:
        if env.steps < 12:
            action = env.sample_action(rng).replace("move ", "put ").replace(" to ", " in/on ", rng.below(2))
        else:
            action = env.expert_action() or "look"
        outcome.append(env.step(action))
    return outcome


@pytest.mark.parametrize("task_type", [1, 2, 6])
def test_both_engines_give_the_same_episode(task_type: int) -> None:
    options = {"task_type": task_type}
    ours, theirs = (played(engine, options, split="valid", max_steps=30) for engine in ("fast", "textworld"))
    assert ours == theirs


def test_both_engines_give_the_same_episode_of_an_official_file(sample_data: Path) -> None:
    settings = {"data": sample_data / "alfworld", "split": "valid_seen", "max_steps": 20}
    assert played("fast", {"task_type": 4}, **settings) == played("textworld", {"task_type": 4}, **settings)


def test_copies_of_the_environment_go_on_alike() -> None:
    env = make_text_env("agentgym_flow/ALFWorld-v0", engine="textworld", split="valid")
    env.reset(seed=1)
    env.step(env.admissible_actions()[0])
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        action = env.admissible_actions()[-2]
        assert other.step(action)[:4] == copy.deepcopy(env).step(action)[:4]


def test_logs_do_not_tell_which_engine_played() -> None:
    digests = []
    for engine in ("fast", "textworld"):
        recorder = Recorder(make_text_env("agentgym_flow/ALFWorld-v0", engine=engine, split="test", max_steps=6))
        recorder.reset(seed=2, task=3)
        while not recorder.done:
            recorder.step(recorder.env.expert_action() or "look")
        digests.append([(turn.observation, turn.reward, turn.state_key) for turn in recorder.episode.turns])
    assert digests[0] == digests[1]


def test_a_batch_of_the_original_engine_is_a_batch() -> None:
    batches = [
        gym.make_vec("agentgym_flow/ALFWorldIndex-v0", num_envs=2, engine=engine, split="valid", max_steps=3)
        for engine in ("fast", "textworld")
    ]
    starts = [batch.reset(seed=3) for batch in batches]
    assert starts[0][0] == starts[1][0]
    for _ in range(5):  # past the end of an episode
        steps = [batch.step([1, 0]) for batch in batches]
        assert steps[0][0] == steps[1][0]
        assert (steps[0][4]["state_key"] == steps[1][4]["state_key"]).all()
