"""Episodes of Search against a server that fails: each completes or is marked, and nothing is answered twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from fault_server import cut_off, dripping, faults, good, hanging_up, saying, silent, status
from retriever_running import Echo, Program, running

from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.search.env import ENV_ID
from agentgym_flow.episodes import Episode, EpisodeRecorder, read_log, write_log
from agentgym_flow.errors import RetrieverFailed
from agentgym_flow.play import ERROR, EpisodeSpec, rollout
from agentgym_flow.policies import FunctionPolicy, PolicyInput, PolicyOutput
from agentgym_flow.replay import verify_log

EPISODES, SEARCHES = 64, 4
QUICK = {"backoff": 0.01, "breaker_rest": 0.05, "read_timeout": 0.4, "deadline": 20.0, "retries": 60}
"""Settings of a client that does not make the tests wait."""

TROUBLE = (status(503, Retry_After="0"), saying(b"nonsense"), cut_off, hanging_up, status(500), silent, dripping)


def act(episode: int, step: int) -> str:
    """Return what an episode does in a step: searches for what no other episode or step searches for, and an answer."""
    return f"search[{episode} at {step}]" if step < SEARCHES else "answer[nothing]"


def queries() -> list[str]:
    return [f"{episode} at {step}" for episode in range(EPISODES) for step in range(SEARCHES)]


ASKING = FunctionPolicy(
    "asking", lambda inputs: [PolicyOutput(act(one.episode.seed, len(one.episode.turns))) for one in inputs]
)


def make(address: str, **remote: Any) -> TextEnv:
    return make_text_env(ENV_ID, split="valid", retriever=address, remote={**QUICK, **remote})


class Threads:
    """So many rollouts, each in a thread and an environment of its own."""

    def __init__(self, make_env: Callable[[], TextEnv]) -> None:
        self.episodes: list[Episode | None] = [None] * EPISODES
        self.turns = 0
        self._make_env = make_env
        self._threads = [threading.Thread(target=self._play, args=(n,), daemon=True) for n in range(EPISODES)]
        for thread in self._threads:
            thread.start()

    def _play(self, number: int) -> None:
        [self.episodes[number]] = rollout(ASKING, self._make_env, [EpisodeSpec(number, number)], stop=self._count)

    def _count(self, policy_input: PolicyInput) -> bool:
        self.turns += 1
        return False

    def join(self) -> list[Episode]:
        for thread in self._threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in self._threads)
        return [episode for episode in self.episodes if episode is not None]


def check(episodes: Sequence[Episode], folder: Path) -> list[Episode]:
    """Check that each episode is whole, or is marked and whole up to there, and that the log shows it; return the lost.

    Each step has the answer to its own question, once, in the recording.
    """
    assert len(episodes) == EPISODES
    for number, episode in enumerate(episodes):
        lost = ERROR in episode.meta
        assert episode.seed == episode.task == number
        assert episode.terminated != lost
        assert len(episode.turns) == SEARCHES + 1 or lost
        for step, turn in enumerate(episode.turns):
            assert turn.action == act(number, step)
            texts = None if turn.recording is None else [text for _, _, text in turn.recording]
            assert texts == ([f"about {number} at {step}"] * 3 if step < SEARCHES else None)
            assert turn.next_observation.count(f"about {number} at {step}") == (3 if step < SEARCHES else 0)
    log = folder / f"{len(list(folder.iterdir()))}.jsonl"
    write_log(log, episodes)
    verdict = verify_log(log)
    assert verdict.ok, verdict.problems()[:3]
    marked = [episode for episode in episodes if ERROR in episode.meta]
    assert verdict.unfinished == len(marked)
    assert sum(ERROR in (line.meta or {}) for line in read_log(log)) == len(marked)
    assert all(episode.meta[ERROR]["class"] == "RetrieverFailed" for episode in marked)
    return marked


def digests(episodes: Sequence[Episode]) -> list[str]:
    return [episode.digests()[-1] for episode in episodes]


# ---------------------------------------------------------------- a server in trouble
def test_64_threads_get_through_every_kind_of_trouble(tmp_path: Path) -> None:
    with faults(*TROUBLE * 2) as server:
        episodes = Threads(lambda: make(server.url, breaker_failures=100)).join()
        assert not server.script, "all the trouble was had"
    assert check(episodes, tmp_path) == []
    assert sorted(server.answered) == sorted(queries()), "each query is answered once"


def test_64_episodes_in_lock_step_ask_once_a_round_whatever_happens(tmp_path: Path) -> None:
    specs = [EpisodeSpec(number, number) for number in range(EPISODES)]
    with faults(*TROUBLE) as server:
        episodes = rollout(ASKING, lambda: make(server.url), specs, num_envs=EPISODES)
    assert check(episodes, tmp_path) == []
    assert sorted(server.answered) == sorted(queries())
    assert len(server.asked) == SEARCHES + len(TROUBLE)
    with faults() as calm:
        assert digests(rollout(ASKING, lambda: make(calm.url), specs, num_envs=7)) == digests(episodes)


def test_what_fails_for_good_is_marked_and_the_others_go_on(tmp_path: Path) -> None:
    """Eight environments at a time: the first round is lost after its tries, and the other episodes are whole."""
    impatient = {"retries": 1, "breaker_failures": 100}
    with faults(status(500), status(500)) as server:
        specs = [EpisodeSpec(number, number) for number in range(EPISODES)]
        episodes = rollout(ASKING, lambda: make(server.url, **impatient), specs, num_envs=8)
    lost = check(episodes, tmp_path)
    assert lost == episodes[:8]
    assert all("status 500" in episode.meta[ERROR]["message"] for episode in lost)
    assert not any("SECRET" in json.dumps(episode.meta) for episode in lost)
    assert sorted(server.answered) == sorted(query for query in queries() if int(query.split()[0]) >= 8)


def test_one_query_that_fails_loses_one_episode() -> None:
    """A server that takes one query a request fails for the third: the others of the round have their answers."""
    specs = [EpisodeSpec(number, number) for number in range(8)]
    with faults(good, good, status(500)) as server:
        episodes = rollout(ASKING, lambda: make(server.url, single=True, retries=0), specs)
    assert [ERROR in episode.meta for episode in episodes] == [number == 2 for number in range(8)]
    assert sorted(server.answered) == sorted(query for query in queries()[: 8 * SEARCHES] if query[0] != "2")


def test_a_step_that_failed_may_be_taken_again() -> None:
    with faults(status(500)) as server:
        recorder = EpisodeRecorder(make(server.url, retries=0))
        episode = recorder.reset(seed=0, task=0)
        with pytest.raises(RetrieverFailed):
            recorder.step(act(0, 0))
        assert recorder.step(act(0, 0)).recording is not None
    assert server.answered == ["0 at 0"]
    assert [turn.state_key for turn in episode.turns] == [episode.state_key]


def test_what_was_answered_is_kept_for_later_runs(tmp_path: Path) -> None:
    """A run that is lost half-way goes on from the cache of queries, and asks nothing again."""
    cache = str(tmp_path / "queries.db")
    specs = [EpisodeSpec(number, number) for number in range(EPISODES)]
    with faults() as server:
        half = rollout(ASKING, lambda: make(server.url, cache=cache), specs[: EPISODES // 2])
        once = list(server.answered)
        whole = rollout(ASKING, lambda: make(server.url, cache=cache), specs)
    assert sorted(server.answered) == sorted(queries())
    assert once == server.answered[: len(once)]
    assert digests(whole)[: len(half)] == digests(half)
    again = rollout(ASKING, lambda: make(server.url, cache=cache, retries=0), specs)  # nobody is there any more
    assert digests(again) == digests(whole)


# ---------------------------------------------------------------- a server that is killed
def wait_for(rollouts: Threads, turns: int) -> None:
    end = time.monotonic() + 60
    while rollouts.turns < turns:
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("away", [0.2, pytest.param(3.0, marks=pytest.mark.heavy)])
def test_a_server_that_is_killed_and_started_again_loses_no_episode(
    program: Program, tmp_path: Path, away: float
) -> None:
    program.start()
    rollouts = Threads(lambda: make(program.address, deadline=60.0))
    kills = (EPISODES // 2, EPISODES * 3)
    for turns in kills:
        wait_for(rollouts, turns)
        program.stop(signal.SIGKILL)
        time.sleep(away)
        program.start()
    episodes = rollouts.join()
    assert check(episodes, tmp_path) == []
    searched = Counter(program.notes.read_text().split("\n")[:-1])
    assert set(searched) == set(queries())
    again = sum(times - 1 for times in searched.values())
    assert again <= EPISODES * len(kills), "only what was under way when the server died is asked again"


@pytest.mark.heavy
def test_a_rollout_in_lock_step_survives_kills(program: Program, tmp_path: Path) -> None:
    program.start()
    rounds = iter(range(100))

    def asking(inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        if next(rounds) in (1, 3):
            program.stop(signal.SIGKILL)
            threading.Timer(1.0, program.start).start()
        return list(ASKING.act(inputs))

    specs = [EpisodeSpec(number, number) for number in range(EPISODES)]
    episodes = rollout(FunctionPolicy("asking", asking), lambda: make(program.address), specs, num_envs=EPISODES)
    assert check(episodes, tmp_path) == []
    assert Counter(program.notes.read_text().split("\n")[:-1]) == Counter(queries())


@pytest.mark.heavy
def test_a_server_that_hangs_and_comes_back_loses_no_episode(program: Program, tmp_path: Path) -> None:
    """Stopped in its tracks it takes connections and answers none; what it had read it answers when nobody waits."""
    program.start()
    rollouts = Threads(lambda: make(program.address, deadline=60.0))
    wait_for(rollouts, EPISODES)
    program.process.send_signal(signal.SIGSTOP)
    time.sleep(3.0)
    program.process.send_signal(signal.SIGCONT)
    assert check(rollouts.join(), tmp_path) == []


@pytest.mark.heavy
def test_episodes_of_impatient_clients_are_marked_and_the_later_ones_are_whole(
    program: Program, tmp_path: Path
) -> None:
    program.start()
    rollouts = Threads(lambda: make(program.address, deadline=0.5, breaker_failures=3))
    wait_for(rollouts, EPISODES)
    program.stop(signal.SIGKILL)
    episodes = rollouts.join()  # the server is away for good
    lost = check(episodes, tmp_path)
    assert len(lost) > 0
    assert any(episode.turns for episode in lost)
    program.start()
    recorder = EpisodeRecorder(make(program.address, deadline=0.5, breaker_failures=3))
    recorder.reset(seed=0, task=0)
    assert recorder.step(act(0, 0)).recording is not None


# ---------------------------------------------------------------- processes
@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.heavy)])
def test_environments_in_processes_of_their_own_ask_the_server(context: str) -> None:
    """The parent has asked before: its connections, breaker and cache are not the children's."""
    with running(Echo()) as address:
        make(address).reset(seed=0)
        parent = make(address)
        parent.reset(seed=0)
        parent.step("search[parent]")
        told = {}
        for mode, more in (("sync", {}), ("async", {"shared_memory": False, "context": context})):
            envs = gym.make_vec(
                ENV_ID,
                num_envs=4,
                vectorization_mode=mode,
                vector_kwargs=more,
                split="valid",
                retriever=address,
                remote=QUICK,
            )
            told[mode] = [envs.reset(seed=7)[0]]
            for step in range(2):
                told[mode].append(envs.step([f"search[{number} at {step}]" for number in range(4)])[0])
            envs.close()
        assert told["sync"] == told["async"]
        assert "about 3 at 1" in told["async"][-1][3]
        assert "about parent" in parent.step("search[parent]")[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_in_the_middle_of_everything_leaves_the_child_able_to_ask(tmp_path: Path) -> None:
    """Other threads hold locks, connections and the breaker's probe meanwhile; nothing of that is the child's."""
    with running(Echo(0.001)) as address:
        rollouts = Threads(lambda: make(address, cache=str(tmp_path / "queries.db")))
        env = make(address, cache=str(tmp_path / "queries.db"))
        env.reset(seed=0)
        for number in range(3):
            child = multiprocessing.get_context("fork").Process(target=_ask, args=(env, number), daemon=True)
            child.start()
            child.join(30)
            assert child.exitcode == 0
        rollouts.join()


def _ask(env: TextEnv, number: int) -> None:
    found, *_ = env.step(f"search[child {number}]")
    os._exit(0 if f"about child {number}" in found else 1)
