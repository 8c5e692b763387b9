"""The structure reward on the real Canvas: what it reads is there, and wrapper, vector and recorded episodes agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import agentgym_flow  # noqa: F401 (registers the ids)
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import EpisodeRecorder, Group
from agentgym_flow.rewards import StructureReward, StructureScore, VectorStructureReward, with_structure_rewards

ENV, TASK, TURNS = "agentgym_flow/Canvas-v0", 18, 6
CHECKED = (
    "<action>add</action><structure>conditional</structure><condition>Review</condition><true>done</true>"
    "<false>Revise</false>"
)
REPEATED = (
    "<action>add</action><structure>loop</structure><operators>Verify ? done : Revise</operators><count>3</count>"
)
FINISH = "<action>finish</action>"


def add(name: str) -> str:
    return f"<action>add</action><operator>{name}</operator>"


WHOLE = [add("Plan"), add("Programmer"), CHECKED, REPEATED, add("Format"), FINISH]
POOR = [add("Custom"), FINISH]
UNFINISHED = [*WHOLE[:-1], add("Verify")]
PROFILES = ("executed", "paper", "upstream")


def make(**settings: Any) -> Callable[[], gym.Env]:
    return lambda: gym.make(ENV, split="valid", max_steps=TURNS, **settings)


def play(env: gym.Env, actions: Sequence[str], task: int = TASK) -> tuple[list[float], dict[str, Any]]:
    _, info = env.reset(options={"task": task})
    rewards = []
    for action in actions:
        _, reward, _, _, info = env.step(action)
        rewards.append(float(reward))
    return rewards, info


@pytest.mark.parametrize("profile", PROFILES)
def test_a_whole_design_releases_what_it_answers_and_a_poor_one_nothing(profile: Any) -> None:
    rewards, info = play(StructureReward(make()(), profile), WHOLE)
    assert (info["score"], info["structure"]) == (1.0, 0.6 if profile == "executed" else 1.0)
    assert rewards == [0.0] * 5 + [1.0]
    rewards, info = play(StructureReward(make()(), profile), POOR)
    assert (info["score"], rewards) == (1.0, [0.0, 1.0 if profile == "executed" else -1.0])


def test_the_published_rewards_count_the_last_result_of_an_episode_that_ran_out_of_turns() -> None:
    """Released code scores the last result, finished or not; a design that is not handed in releases nothing here."""
    for profile, expected in {"executed": -0.4, "paper": 1.0, "upstream": 1.0}.items():
        rewards, info = play(StructureReward(make()(), profile), UNFINISHED)  # type: ignore[arg-type]
        assert (info["score"], info["structure"]) == (0.0, 0.6 if profile == "executed" else 1.0)
        assert rewards[-1] == expected, profile


@pytest.mark.parametrize("profile", PROFILES)
def test_a_time_limit_of_gymnasium_counts_like_that_of_the_environment(profile: Any) -> None:
    """The environment hides the correctness during play, and learns of such an end only from the wrapper."""
    expected, inner = play(StructureReward(make()(), profile), UNFINISHED)
    unlimited = gym.make(ENV, split="valid", max_steps=99, max_episode_steps=TURNS)
    rewards, info = play(StructureReward(unlimited, profile), UNFINISHED)
    assert (rewards, info["workflow"]) == (expected, inner["workflow"])
    env = StructureReward(gym.wrappers.TimeLimit(gym.make(ENV, split="valid"), 2), "paper", release="always")
    assert play(env, [add("Programmer"), CHECKED])[0] == [0.0, 0.6]


def test_correctness_is_told_at_the_end_alone() -> None:
    for actions, expected in ((WHOLE, 1.0), (UNFINISHED, 1.0), (["nothing"] * TURNS, 0.0)):
        env = make()()
        for turns in range(1, len(actions)):
            assert play(env, actions[:turns])[1]["workflow"]["correctness"] == 0.0
        assert play(env, actions)[1]["workflow"]["correctness"] == expected


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("profile", PROFILES)
def test_slots_and_recorded_episodes_have_the_rewards_of_the_wrapper(profile: Any, mode: AutoresetMode) -> None:
    plays = [WHOLE, UNFINISHED, ["nothing", *UNFINISHED[1:]]]
    alone = [play(StructureReward(make()(), profile), actions)[0] for actions in plays]
    envs = SyncVectorEnv([make()] * len(plays), autoreset_mode=mode)
    slots = VectorStructureReward(envs, StructureScore(profile))
    slots.reset(options={"task": TASK})
    together = [slots.step([actions[turn] for actions in plays])[1].tolist() for turn in range(TURNS)]
    assert [list(rewards) for rewards in zip(*together, strict=True)] == alone
    slots.close()
    episodes = []
    for actions in plays:
        recorder = EpisodeRecorder(
            make_text_env(ENV, split="valid", max_steps=TURNS), keep=StructureScore(profile).reads
        )
        recorder.reset(seed=0, task=TASK)
        for action in actions:
            recorder.step(action)
        episodes.append(recorder.episode)
    rewarded = with_structure_rewards(Group(episodes), StructureScore(profile))
    assert [[turn.reward for turn in episode.turns] for episode in rewarded] == alone
