"""The environment with the original packages as its engine: same class, same files, same outputs."""

from __future__ import annotations

import copy
import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from agentgym_flow.core import Stream, TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.alfworld.real import TextWorldGame
from agentgym_flow.episodes import EpisodeRecorder
from agentgym_flow.errors import BadSetting, EnginesDiffer

pytestmark = [
    pytest.mark.nightly,
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
            action = rng.choice([env.sample_action(rng), "put the thing in/on it", " look\n", "Look", "help me"])
        else:
            action = env.expert_action() or "look"
        outcome.append(env.step(action))
    return outcome


@pytest.mark.parametrize("task_type", [1, 2, 6])
def test_both_engines_give_the_same_episode(task_type: int) -> None:
    options = {"task_type": task_type}
    settings = {"split": "valid", "max_steps": 30, "aliases": False}
    assert played("fast", options, **settings) == played("textworld", options, **settings)


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
        recorder = EpisodeRecorder(make_text_env("agentgym_flow/ALFWorld-v0", engine=engine, split="test", max_steps=6))
        recorder.reset(seed=2, task=3)
        while not recorder.done:
            recorder.step(recorder.env.expert_action() or "look")
        digests.append([(turn.observation, turn.reward, turn.state_key) for turn in recorder.episode.turns])
    assert digests[0] == digests[1]


def official_file(sample_data: Path) -> Path:
    return min((sample_data / "alfworld" / "valid_seen").glob("pick_and_place*/*/*"))


def test_the_other_wording_is_nothing_to_the_original_nor_to_us_on_official_data(sample_data: Path) -> None:
    """With official data each engine takes only the wording that the file prints."""
    settings = {"data": official_file(sample_data), "split": "valid"}
    for kwargs in ({"engine": "textworld"}, {"engine": "fast"}, {"engine": "fast", "aliases": True}):
        env = make_text_env("agentgym_flow/ALFWorld-v0", **settings, **kwargs)
        env.reset(options={"task": 0})
        while not (action := env.expert_action() or "").startswith("move "):
            env.step(action)
        thing, place = action.removeprefix("move ").split(" to ")
        observation, _, _, _, info = env.step(f"put {thing} in/on {place}")
        understood = "aliases" in kwargs
        assert (observation == f"You move the {thing} to the {place}.") == info["action_valid"] == understood
        assert env.settings == kwargs
    keys = [
        make_text_env("agentgym_flow/ALFWorld-v0", **kwargs).reset(options={"task": 0})[1]["task_key"]
        for kwargs in ({}, {"aliases": False}, {"engine": "textworld"})
    ]
    assert keys[0] != keys[1] == keys[2]  # one key, one rule
    with pytest.raises(BadSetting, match="the original engine has no aliases"):
        make_text_env("agentgym_flow/ALFWorld-v0", engine="textworld", aliases=True)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("start", "at the start: the engines differ in the observation: 'something else' with the original, "),
        ("act", "in step 2, 'look': the engines differ in the observation: 'something else' with the original, "),
        (
            "commands",
            r"at the start: .* the commands that are possible now: \[\] with the original, \['help'\] with eng",
        ),
        (
            "won",
            "in step 2, 'look': the engines differ in whether the task is fulfilled: True with the original, False",
        ),
    ],
)
def test_the_first_difference_of_the_engines_is_named(
    changed: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Play of the original is compared at every step; here it is changed."""
    act, commands, won = TextWorldGame.act, TextWorldGame.commands, TextWorldGame.won.fget
    assert won is not None
    later = lambda play: len(play._played) > 1  # noqa: E731
    changes = {
        "start": lambda play: "something else",
        "act": lambda play, command: act(play, command) if not play._played else ("something else", True),
        "commands": lambda play: [command for command in commands(play) if command != "help"],
        "won": property(lambda play: later(play) or won(play)),
    }
    monkeypatch.setattr(TextWorldGame, changed, changes[changed])
    env = make_text_env("agentgym_flow/ALFWorld-v0", engine="textworld", split="valid")
    with pytest.raises(EnginesDiffer, match=f"task 3 of valid, {message}"):
        look_around(env)


def look_around(env: TextEnv) -> None:
    env.reset(options={"task": 3})
    for _ in range(3):
        env.step("look")


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
