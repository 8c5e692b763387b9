from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_flow.core import External, Stream, TextEnv, Transition
from agentgym_flow.episodes import Episode
from agentgym_flow.errors import BadPolicy, BadSetting, GroupMismatch, UnknownTask
from agentgym_flow.play import EnvPool, EpisodeSpec, rollout, rollout_groups
from agentgym_flow.policies import ExpertPolicy, FunctionPolicy, PolicyInput, PolicyOutput, RandomPolicy
from agentgym_flow.testing.example import CaveEnv

SPECS = [EpisodeSpec(seed, seed % 7, seed % 2) for seed in range(25)]


class Counted:
    """Makes caves and counts how many were made, closed and are busy."""

    def __init__(self, make: Callable[[], CaveEnv] = CaveEnv) -> None:
        self.made = self.closed = 0
        self._make = make

    def __call__(self) -> CaveEnv:
        self.made += 1
        env = self._make()

        def close() -> None:
            self.closed += 1

        env.close = close  # type: ignore[method-assign]
        return env


class BrittleEnv(CaveEnv):
    """A cave that raises when it is told to break."""

    def _apply(self, action: str) -> Transition:
        if action == "break":
            self.room = 10**6
            raise RuntimeError("a pipe burst")
        return super()._apply(action)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 40))
def test_episodes_do_not_depend_on_the_batch(num_envs: int) -> None:
    assert rollout(RandomPolicy(), CaveEnv, SPECS, num_envs=num_envs) == rollout(
        RandomPolicy(), CaveEnv, SPECS, num_envs=1
    )


def test_results_come_in_the_order_of_specs() -> None:
    finished: list[Episode] = []
    episodes = rollout(RandomPolicy(), CaveEnv, SPECS, num_envs=6, on_episode=finished.append)
    assert [(e.seed, e.task, e.attempt) for e in episodes] == [(s.seed, s.task, s.attempt) for s in SPECS]
    assert sorted(map(id, finished)) == sorted(map(id, episodes))
    assert finished != episodes, "short episodes finish first"
    assert all(episode.terminated or episode.truncated for episode in episodes)


@pytest.mark.parametrize(("num_envs", "made"), [(1, 1), (6, 6), (100, 25)])
def test_the_pool_is_bounded_used_again_and_closed(num_envs: int, made: int) -> None:
    make, sizes = Counted(), []

    def act(inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        sizes.append(len(inputs))
        return RandomPolicy().act(inputs)

    rollout(FunctionPolicy("watching", act), make, SPECS, num_envs=num_envs)
    assert (make.made, make.closed) == (made, made)
    assert max(sizes) == made
    busy = sizes[: next((i for i, size in enumerate(sizes) if size < made), len(sizes))]
    assert sum(sizes) == sum(len(e.turns) for e in rollout(RandomPolicy(), CaveEnv, SPECS))
    assert num_envs != 6 or len(busy) > 20, "a finished slot takes the next spec at once"


def test_the_seed_draws_the_task_when_none_is_given() -> None:
    [episode] = rollout(RandomPolicy(), CaveEnv, [EpisodeSpec(9)])
    assert episode.task == CaveEnv().reset(seed=9)[1]["task"]


def test_the_policy_stream_is_that_of_the_episode() -> None:
    seen: list[Stream] = []

    def act(inputs: Sequence[PolicyInput]) -> list[str]:
        seen.extend(policy_input.rng for policy_input in inputs if not policy_input.episode.turns)
        return ["left"] * len(inputs)

    rollout(FunctionPolicy("keys", act), CaveEnv, [EpisodeSpec(5, 3, 2), EpisodeSpec(5, 3, 1)])  # type: ignore[arg-type]
    assert [stream.key for stream in seen] == [("policy", 5, 2, 3), ("policy", 5, 1, 3)]


def test_inputs_follow_their_episode() -> None:
    def act(inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        for policy_input in inputs:
            last = policy_input.episode.turns[-1] if policy_input.episode.turns else None
            assert policy_input.observation == (last.next_observation if last else policy_input.episode.observation)
            assert policy_input.info["state_key"] == (last.next_state_key if last else policy_input.episode.state_key)
            assert policy_input.env.state_key() == policy_input.info["state_key"]
        return RandomPolicy().act(inputs)

    rollout(FunctionPolicy("checking", act), CaveEnv, SPECS, num_envs=4)


def test_what_the_policy_says_is_recorded() -> None:
    output = PolicyOutput(
        "left", completion="<action>left</action>", prompt_ids=[1], completion_ids=[2], logprobs=[-0.5]
    )
    policy = FunctionPolicy("speaking", lambda inputs: [output] * len(inputs))
    [episode] = rollout(policy, lambda: CaveEnv(max_steps=2), [EpisodeSpec(0)])
    assert [turn.output for turn in episode.turns] == [output] * 2


def test_an_environment_that_raises_marks_its_episode_only() -> None:
    def act(inputs: Sequence[PolicyInput]) -> list[str]:
        return ["break" if v.episode.seed % 3 == 1 and len(v.episode.turns) == 2 else "left" for v in inputs]

    make = Counted(lambda: BrittleEnv(max_steps=5))
    specs = [EpisodeSpec(seed, 0) for seed in range(9)]
    episodes = rollout(FunctionPolicy("clumsy", act), make, specs, num_envs=2)  # type: ignore[arg-type]
    for episode in episodes:
        if episode.seed % 3 == 1:
            assert episode.meta == {"error": {"class": "RuntimeError", "message": "a pipe burst"}}
            assert (len(episode.turns), episode.terminated, episode.truncated, episode.score) == (2, False, False, 0.0)
        else:
            assert (episode.meta, episode.truncated) == ({}, True)
    # Three of the first two environments and their successors broke, the last of them when no spec was waiting.
    assert make.made == make.closed == 4


def test_what_closing_a_broken_environment_raises_is_ignored() -> None:
    class Wreck(BrittleEnv):
        def close(self) -> None:
            raise OSError("already gone")

    policy = FunctionPolicy("breaking", lambda inputs: ["break"] * len(inputs))  # type: ignore[arg-type, misc]
    [episode] = rollout(policy, Wreck, [EpisodeSpec(0)])
    assert episode.meta["error"]["class"] == "RuntimeError"


def test_policies_and_resets_that_raise_end_the_rollout() -> None:
    make = Counted()
    with pytest.raises(ZeroDivisionError):
        rollout(FunctionPolicy("broken", lambda inputs: [1 / 0]), make, SPECS, num_envs=3)  # type: ignore[list-item]
    assert (make.made, make.closed) == (3, 3)
    with pytest.raises(BadPolicy):
        rollout(FunctionPolicy("short", lambda inputs: []), CaveEnv, SPECS)
    with pytest.raises(UnknownTask):
        rollout(RandomPolicy(), CaveEnv, [EpisodeSpec(0, 48)])


def test_stop_cuts_an_episode_short() -> None:
    episodes = rollout(
        RandomPolicy(),
        CaveEnv,
        SPECS,
        num_envs=5,
        stop=lambda policy_input: policy_input.info["wrong_words"] > 0 or len(policy_input.episode.turns) == 4,
    )
    whole = rollout(RandomPolicy(), CaveEnv, SPECS)
    assert {len(episode.turns) for episode in episodes} >= {4}
    for short, full in zip(episodes, whole, strict=True):
        assert len(short.turns) <= 4
        assert short.turns == full.turns[: len(short.turns)]
        if len(short.turns) < len(full.turns):
            assert (short.terminated, short.truncated) == (False, False)


def test_stop_is_not_asked_after_the_end() -> None:
    asked: list[bool] = []

    def stop(policy_input: PolicyInput) -> bool:
        asked.append(policy_input.episode.terminated or policy_input.episode.truncated)
        return False

    rollout(ExpertPolicy(), CaveEnv, SPECS, stop=stop)
    assert asked
    assert not any(asked)


def test_ctrl_c_comes_after_the_callbacks_of_what_had_finished() -> None:
    finished: list[Episode] = []
    rounds = 0

    def act(inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        nonlocal rounds
        rounds += 1
        if rounds == 12:
            raise KeyboardInterrupt
        return ExpertPolicy().act(inputs)

    make = Counted()
    with pytest.raises(KeyboardInterrupt):
        rollout(FunctionPolicy("interrupted", act), make, SPECS, num_envs=4, on_episode=finished.append)
    assert len(finished) >= 4
    assert all(episode.terminated for episode in finished)
    assert make.made == make.closed


def test_without_starts_no_environment_is_made() -> None:
    make = Counted()
    assert rollout(RandomPolicy(), make, []) == rollout_groups(RandomPolicy(), make, [], 4) == []
    assert make.made == 0


@pytest.mark.parametrize("number", [0, -1, 2.5, True])
def test_numbers_are_checked(number: int) -> None:
    with pytest.raises(BadSetting, match="num_envs"):
        rollout(RandomPolicy(), CaveEnv, SPECS, num_envs=number)
    with pytest.raises(BadSetting, match="group_size"):
        rollout_groups(RandomPolicy(), CaveEnv, SPECS, number)


def test_groups_share_the_start_and_differ_in_the_attempt() -> None:
    tasks = [EpisodeSpec(0, 3), EpisodeSpec(1, 3), EpisodeSpec(2), EpisodeSpec(0, 3, attempt=4)]
    groups = rollout_groups(RandomPolicy(), CaveEnv, tasks, 4, num_envs=5)
    assert [len(group) for group in groups] == [4] * 4
    assert [episode.attempt for episode in groups[0]] == [0, 1, 2, 3]
    assert [episode.attempt for episode in groups[3]] == [4, 5, 6, 7]
    assert len({tuple(turn.action for turn in episode.turns) for episode in groups[0]}) > 1
    for group, task in zip(groups, tasks, strict=True):
        assert {episode.seed for episode in group} == {task.seed}
        assert len({episode.start_digest for episode in group}) == 1


def test_a_group_that_does_not_start_alike_is_noticed() -> None:
    made = 0

    class DriftingEnv(CaveEnv):
        def _begin(self, task: int, noise: Stream, options: object) -> str:
            nonlocal made
            made += 1
            return super()._begin(task, noise, {}) + "!" * made

    with pytest.raises(GroupMismatch):
        rollout_groups(RandomPolicy(), DriftingEnv, [EpisodeSpec(0)], 2)


def test_a_round_is_prepared_once_for_each_kind() -> None:
    told: list[tuple[str, list[tuple[int, int, str]]]] = []

    class Noting(External):
        @classmethod
        def prepare_steps(cls, envs: Sequence[TextEnv], actions: Sequence[str]) -> None:
            kind = type(envs[0])
            assert all(type(env) is kind and env.playing for env in envs)
            told.append((kind.__name__, [(e.task, e.steps, action) for e, action in zip(envs, actions, strict=True)]))

    class Preparing(CaveEnv):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.external = Noting(self.env_id)

    class Other(Preparing):
        pass

    made = 0

    def make_env() -> CaveEnv:
        nonlocal made
        made += 1
        return Other(max_steps=2) if made == 2 else Preparing(max_steps=2)

    def act(inputs: Sequence[PolicyInput]) -> list[str]:
        return [f"say[{policy_input.episode.task}]" for policy_input in inputs]

    policy = FunctionPolicy("talking", act)  # type: ignore[arg-type]
    rollout(policy, make_env, [EpisodeSpec(0, task) for task in range(4)], num_envs=3)
    assert told == [
        ("Preparing", [(0, 0, "say[0]"), (2, 0, "say[2]")]),
        ("Other", [(1, 0, "say[1]")]),
        ("Preparing", [(0, 1, "say[0]"), (2, 1, "say[2]")]),
        ("Other", [(1, 1, "say[1]")]),
        ("Preparing", [(3, 0, "say[3]")]),
        ("Preparing", [(3, 1, "say[3]")]),
    ]


def test_a_pool_keeps_its_environments_between_rollouts() -> None:
    make = Counted()
    pool = EnvPool(make)
    first = rollout(
        RandomPolicy(), pool, SPECS, num_envs=4, stop=lambda policy_input: len(policy_input.episode.turns) == 2
    )
    assert (make.made, make.closed) == (4, 0)
    again = rollout(RandomPolicy(), pool, SPECS, num_envs=6)
    assert (make.made, make.closed) == (6, 0)
    assert again == rollout(RandomPolicy(), CaveEnv, SPECS), "episodes that were cut short leave nothing behind"
    assert first != again
    pool.close()
    assert make.closed == 6


def test_a_broken_environment_does_not_come_back_to_the_pool() -> None:
    make = Counted(BrittleEnv)
    pool = EnvPool(make)
    rollout(
        FunctionPolicy("breaker", lambda inputs: [PolicyOutput("break")] * len(inputs)), pool, SPECS[:3], num_envs=1
    )
    assert (make.made, make.closed) == (3, 3)
    with pytest.raises(UnknownTask):
        rollout(RandomPolicy(), pool, [EpisodeSpec(0, 10**6)])
    assert (make.made, make.closed) == (4, 4)
