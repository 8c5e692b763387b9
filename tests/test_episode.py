from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from agentgym_flow.core import Transition
from agentgym_flow.episodes import Episode, EpisodeRecorder, Group, LoggedEpisode, PolicyOutput
from agentgym_flow.errors import GroupMismatch, ResetNeeded
from agentgym_flow.replay import verify
from agentgym_flow.testing.example import CaveEnv

GOLDEN = {
    0: "8aa35fbadd147a31f8ddf5280685023721ed8ca54ecf1f7ed17924c39b348bdd",
    1: "40f74486ad9347caa160da8377f48e86642cea8b1838aef2c319a33851ad03b8",
}


def play(seed: int = 0, task: int | None = None, attempt: int = 0, actions: int = 99, **settings: object) -> Episode:
    recorder = EpisodeRecorder(CaveEnv(**settings))  # type: ignore[arg-type]
    episode = recorder.reset(seed=seed, task=task, attempt=attempt)
    while not recorder.done and len(episode.turns) < actions:
        recorder.step(recorder.env.expert_action() or "left")
    return episode


@pytest.mark.parametrize("seed", GOLDEN)
def test_recorded_play_keeps_its_digests(seed: int) -> None:
    assert play(seed).digests()[-1] == GOLDEN[seed]


def test_an_episode_sums_up_its_turns() -> None:
    episode = play()
    assert (episode.terminated, episode.truncated, episode.success, episode.score) == (True, False, True, 1.0)
    assert episode.total_reward == pytest.approx(1 - 0.1 * len(episode.turns))
    assert len(episode.state_keys) == len(episode.turns) + 1 == len(episode.digests())
    assert episode.state_keys[-1].startswith("end:success:")
    for earlier, later in zip(episode.turns, episode.turns[1:], strict=False):
        assert earlier.next_observation == later.observation
        assert earlier.next_state_key == later.state_key
    assert episode.turns[0].observation == episode.observation


def test_numbers_of_numpy_are_recorded_as_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    line = LoggedEpisode.of(play(seed=3)).line()
    apply, score = CaveEnv._apply, CaveEnv.score

    def with_numpy(self: CaveEnv, action: str) -> Transition:
        observation, reward, terminated, valid = apply(self, action)
        return Transition(observation, np.float64(reward), np.bool_(terminated), np.bool_(valid))  # type: ignore[arg-type]

    monkeypatch.setattr(CaveEnv, "_apply", with_numpy)
    monkeypatch.setattr(CaveEnv, "score", lambda self: np.float64(score(self)))
    episode = play(seed=3, attempt=np.int64(0))  # type: ignore[arg-type]
    assert LoggedEpisode.of(episode).line() == line
    assert verify(LoggedEpisode.parse(line)) is None


def test_an_episode_without_turns_has_achieved_nothing() -> None:
    episode = play(actions=0)
    assert (episode.terminated, episode.truncated, episode.success, episode.score, episode.total_reward) == (
        False,
        False,
        False,
        0.0,
        0,
    )
    assert episode.digests() == [episode.start_digest]


def test_every_fact_of_a_turn_is_in_the_chain() -> None:
    whole = play().digests()
    changes = {
        "output": PolicyOutput("x"),
        "reward": 0.5,
        "next_observation": "x",
        "next_state_key": "x",
        "terminated": True,
        "truncated": True,
        "success": True,
        "score": 0.5,
        "recording": 1,
    }
    for name, value in changes.items():
        episode = play()
        setattr(episode.turns[1], name, value)
        changed = episode.digests()
        assert changed[:2] == whole[:2], name
        assert all(new != old for new, old in zip(changed[2:], whole[2:], strict=True)), name


def test_remarks_are_not_in_the_chain() -> None:
    episode, other = play(attempt=0), play(attempt=3)
    episode.meta["policy"] = "x"
    episode.turns[0].output.completion = "left, I think"
    episode.turns[0].phi = 0.5
    assert episode.digests() == other.digests()


@pytest.mark.parametrize("change", [{"seed": 1}, {"task": 3}, {"max_steps": 9}, {"rooms": 4}, {"terse": True}], ids=str)
def test_groups_start_alike(change: dict[str, int]) -> None:
    group = Group([play(task=2, attempt=0), play(task=2, attempt=1, actions=1)])
    assert len(group) == 2
    assert group.task_key == group.episodes[0].task_key
    assert len(group.turns) == sum(len(episode.turns) for episode in group)
    with pytest.raises(GroupMismatch, match="attempts 0 and 7 do not start alike"):
        Group([play(task=2), play(**{"task": 2, "attempt": 7, **change})])  # type: ignore[arg-type]


def test_an_empty_group_is_none() -> None:
    with pytest.raises(GroupMismatch, match="at least one"):
        Group([])


def test_the_recorder_looks_through_wrappers() -> None:
    shaped = gym.wrappers.TransformReward(CaveEnv(), lambda reward: reward + 100)
    recorder = EpisodeRecorder(shaped)
    recorder.reset(seed=0)
    assert recorder.step("left").reward == pytest.approx(-0.1)


def test_the_recorder_needs_a_text_environment_and_a_reset() -> None:
    with pytest.raises(TypeError, match="on a TextEnv, got CartPoleEnv"):
        EpisodeRecorder(gym.make("CartPole-v1"))
    recorder = EpisodeRecorder(CaveEnv())
    assert not recorder.done
    with pytest.raises(ResetNeeded):
        recorder.step("left")


def test_the_recorder_keeps_what_the_policy_adds() -> None:
    recorder = EpisodeRecorder(CaveEnv())
    recorder.reset(seed=0)
    output = PolicyOutput("left", "<action>left</action>", [1], [2, 3], [0.0, -1])
    assert recorder.step(output).output == output
