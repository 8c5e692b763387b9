"""Episodes without rounds: the same as in rounds, nobody waits for others, and a failing answer costs one episode."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import Episode
from agentgym_flow.errors import BadPolicy, GenerationFailed, ServerDown, UnknownTask
from agentgym_flow.play import EnvPool, EpisodeSpec, groups, rollout, rollout_groups
from agentgym_flow.policies import ExpertPolicy, PolicyInput, PolicyOutput, RandomPolicy
from agentgym_flow.testing.example import CaveEnv

SPECS = [EpisodeSpec(seed, seed % 7, seed % 2) for seed in range(25)]


class Slow:
    """Any policy, one input at a time, after as long as its own stream says."""

    name = "slow"

    def __init__(self, policy: Any = None, seconds: float = 0.001) -> None:
        self.policy = policy or RandomPolicy()
        self.seconds = seconds
        self.waiting = self.most = self.asked = 0

    async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
        self.asked += 1
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        try:
            await asyncio.sleep(self.seconds * ((len(policy_input.episode.turns) * 7 + policy_input.episode.seed) % 5))
        finally:
            self.waiting -= 1
        [output] = self.policy.act([policy_input])
        return output


class Failing(Slow):
    """Raises at the second turn of chosen episodes, so many times."""

    def __init__(self, error: Exception, times: int, seeds: Sequence[int]) -> None:
        super().__init__(seconds=0)
        self.error, self.times, self.seeds = error, dict.fromkeys(seeds, times), seeds

    async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
        policy_input.rng.word()  # a draw before it fails
        if len(policy_input.episode.turns) == 1 and self.times.get(policy_input.episode.seed, 0):
            self.times[policy_input.episode.seed] -= 1
            raise self.error
        return await super().respond(policy_input)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 40))
def test_the_same_starts_give_the_same_episodes_as_in_rounds(num_envs: int) -> None:
    finished: list[Episode] = []
    alone = rollout(Slow(seconds=0.0001), CaveEnv, SPECS, num_envs=num_envs, on_episode=finished.append)
    assert alone == rollout(RandomPolicy(), CaveEnv, SPECS)
    assert sorted(map(id, finished)) == sorted(map(id, alone))


def test_no_episode_waits_for_the_answer_to_another() -> None:
    finished: list[int] = []

    class Snail(Slow):
        async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
            while policy_input.episode.seed == 0 and len(finished) < 7:
                await asyncio.sleep(0.001)
            return await super().respond(policy_input)

    episodes = rollout(
        Snail(seconds=0), CaveEnv, SPECS[:8], num_envs=2, on_episode=lambda episode: finished.append(episode.seed)
    )
    assert finished == [1, 2, 3, 4, 5, 6, 7, 0]
    assert [episode.seed for episode in episodes] == list(range(8))


def test_at_most_num_envs_are_under_way_and_the_pool_is_used_again() -> None:
    policy, made = Slow(seconds=0.001), []

    def make() -> TextEnv:
        made.append(CaveEnv())
        return made[-1]

    pool = EnvPool(make)
    rollout(policy, pool, SPECS, num_envs=6)
    assert policy.most == len(made) == 6
    rollout(policy, pool, SPECS, num_envs=6)
    assert len(made) == 6
    grouped = rollout_groups(policy, pool, [EpisodeSpec(1, 1), EpisodeSpec(2, 2)], 3)
    assert [len(group) for group in grouped] == [3, 3]


# ---------------------------------------------------------------- failures
@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "PAUSE", 0.001)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("error", [GenerationFailed("no server answers"), ConnectionError("reset by peer")])
def test_an_answer_that_fails_is_asked_for_again_with_the_same_draws(error: Exception) -> None:
    calm = rollout(Failing(error, 0, []), CaveEnv, SPECS)
    policy = Failing(error, groups.TRIES - 1, [3, 4])
    assert rollout(policy, CaveEnv, SPECS) == calm


@pytest.mark.usefixtures("impatient")
def test_an_answer_that_goes_on_failing_costs_its_own_episode() -> None:
    calm = rollout(Failing(OSError(), 0, []), CaveEnv, SPECS)
    policy = Failing(GenerationFailed("no server answers"), groups.TRIES, [3, 4])
    episodes = rollout(policy, CaveEnv, SPECS, num_envs=4)
    lost = [episode for episode in episodes if "error" in episode.meta]
    assert [episode.seed for episode in lost] == [3, 4]
    for episode in lost:
        assert episode.meta["error"] == {"class": "GenerationFailed", "message": "no server answers"}
        assert len(episode.turns) == 1
    assert [e for e in episodes if e.seed not in (3, 4)] == [e for e in calm if e.seed not in (3, 4)]


def test_what_concerns_all_ends_the_rollout() -> None:
    finished: list[Episode] = []
    with pytest.raises(ServerDown):
        rollout(Failing(ServerDown("gone"), 1, [20]), CaveEnv, SPECS, num_envs=2, on_episode=finished.append)
    assert len(finished) > 10
    with pytest.raises(UnknownTask):
        rollout(Slow(), CaveEnv, [*SPECS, EpisodeSpec(0, 48)])

    class Wrong(Slow):
        async def respond(self, policy_input: PolicyInput) -> Any:
            return 7

    with pytest.raises(BadPolicy, match="7"):
        rollout(Wrong(), CaveEnv, SPECS)


def test_ctrl_c_ends_it_and_the_environments_come_back() -> None:
    pool = EnvPool(CaveEnv)
    finished: list[Episode] = []
    timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])

    class Endless(Slow):
        async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
            if policy_input.episode.seed == 9:
                timer.start() if not timer.is_alive() else None
                await asyncio.sleep(60)
            return await super().respond(policy_input)

    began = time.monotonic()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            rollout(Endless(seconds=0), pool, SPECS, num_envs=3, on_episode=finished.append)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 30
    assert len(finished) == len(SPECS) - 1
    assert rollout(RandomPolicy(), pool, SPECS, num_envs=3) == rollout(RandomPolicy(), CaveEnv, SPECS)


def test_it_runs_where_a_loop_is_running_already() -> None:
    async def notebook() -> list[Episode]:
        return rollout(Slow(seconds=0), CaveEnv, SPECS[:5])

    assert asyncio.run(notebook()) == rollout(RandomPolicy(), CaveEnv, SPECS[:5])


# ---------------------------------------------------------------- environments that ask the outside world
class Shelf:
    """A retriever that takes its time and notes how many queries came together."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.threads: set[str] = set()

    def search(self, queries: Sequence[str], topk: int) -> list[list[Any]]:
        self.sizes.append(len(queries))
        self.threads.add(threading.current_thread().name)
        time.sleep(0.05)
        return [[] for _ in queries]


def test_queries_that_come_together_are_asked_together_and_hold_up_nobody() -> None:
    class Searcher(Slow):
        async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
            return PolicyOutput(f"search[river {policy_input.episode.seed} {len(policy_input.episode.turns)}]")

    def make(shelf: Shelf) -> TextEnv:
        return make_text_env("agentgym_flow/Search-v0", retriever=shelf, max_steps=3)

    specs = [EpisodeSpec(seed) for seed in range(6)]
    shelf, other = Shelf(), Shelf()
    episodes = rollout(Searcher(), lambda: make(shelf), specs, num_envs=6)
    assert max(shelf.sizes) > 1
    assert sum(shelf.sizes) == 12  # the last step of an episode asks for nothing
    assert "MainThread" not in shelf.threads

    class InRounds:
        name = "slow"

        def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
            return [
                PolicyOutput(f"search[river {policy_input.episode.seed} {len(policy_input.episode.turns)}]")
                for policy_input in inputs
            ]

    assert [e.digests() for e in rollout(InRounds(), lambda: make(other), specs)] == [e.digests() for e in episodes]


def test_experts_may_play_it_too() -> None:
    assert all(episode.success for episode in rollout(Slow(ExpertPolicy(), 0), CaveEnv, SPECS[:5]))
