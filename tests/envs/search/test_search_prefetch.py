"""One request for the searches of all episodes of a round: how often is asked, and that nothing else changes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from fault_server import faults, status
from hypothesis import given
from hypothesis import strategies as st
from search_stand_ins import Shelf, Unasked, make, write_set

from agentgym_flow.envs.search.env import Passages, SearchEnv
from agentgym_flow.errors import RetrieverFailed
from agentgym_flow.play import EpisodeSpec, rollout, rollout_groups
from agentgym_flow.policies import ExpertPolicy, FunctionPolicy, PolicyInput, RandomPolicy
from agentgym_flow.retrieval.corpus import Hit
from agentgym_flow.retrieval.retrievers import LexicalRetriever


class Failing(Shelf):
    """Raises an error whenever it is asked."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        self.asked.append(list(queries))
        raise self.error


@pytest.fixture(scope="module")
def bridges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small published set."""
    return write_set(tmp_path_factory.mktemp("sets") / "bridges")


def started(bridges: Path, retriever: Any, count: int = 1, **kwargs: Any) -> list[SearchEnv]:
    """Return environments that have begun an episode."""
    envs = [make(data=bridges, retriever=retriever, **kwargs) for _ in range(count)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    return envs


def by_script(*rounds: Callable[[PolicyInput], str]) -> FunctionPolicy:
    """Return a policy whose action depends on the number of the step."""

    def act(inputs: Sequence[PolicyInput]) -> list[str]:
        return [rounds[len(policy_input.episode.turns)](policy_input) for policy_input in inputs]

    return FunctionPolicy("script", act)  # type: ignore[arg-type]


# ---------------------------------------------------------------- how often is asked
def test_a_round_is_one_request(bridges: Path) -> None:
    shelf = Shelf()
    policy = by_script(
        lambda _: "search[Tarn]",
        lambda policy_input: f"search[number {policy_input.episode.seed % 3}]",
        lambda policy_input: "hm" if policy_input.episode.seed else "search[Lorne]",
        lambda _: "answer[x]",
    )
    episodes = rollout(policy, lambda: make(data=bridges, retriever=shelf), [EpisodeSpec(seed) for seed in range(8)])
    assert shelf.asked == [["Tarn"], ["number 0", "number 1", "number 2"], ["Lorne"]], "and for a query once"
    assert all(episode.turns[0].recording == episodes[0].turns[0].recording for episode in episodes)
    assert len(episodes[0].turns[0].recording) == 2  # type: ignore[arg-type]


def test_wrappers_are_looked_through(bridges: Path) -> None:
    shelf = Shelf()

    def wrapped() -> Any:
        return gym.wrappers.TimeLimit(gym.make("agentgym_flow/Search-v0", data=bridges, retriever=shelf), 20)

    policy = by_script(lambda _: "search[Tarn]", lambda _: "search[Lorne]", lambda _: "answer[x]")
    rollout(policy, wrapped, [EpisodeSpec(seed) for seed in range(5)], num_envs=5)
    assert shelf.asked == [["Tarn"], ["Lorne"]]


def test_each_retriever_and_each_number_of_passages_is_asked_by_itself(bridges: Path) -> None:
    one, other = Shelf(), Shelf()
    envs = [*started(bridges, one, 2), *started(bridges, other, 2), *started(bridges, other, 1, topk=1)]
    Passages.prepare_steps(envs, ["search[Tarn]"] * 5)
    assert (one.asked, other.asked) == ([["Tarn"]], [["Tarn"], ["Tarn"]])
    brought = [len(env.step("search[Tarn]")[4]["retrieved"]) for env in envs]
    assert brought == [2, 2, 2, 2, 1]
    assert (len(one.asked), len(other.asked)) == (1, 2), "the steps ask nobody"


def test_clones_are_asked_for_together(bridges: Path) -> None:
    [env] = started(bridges, shelf := Shelf())
    envs = [env, *(copy.deepcopy(env) for _ in range(6))]
    Passages.prepare_steps(envs, ["search[Tarn]"] * 7)
    assert shelf.asked == [["Tarn"]]


def test_who_does_not_search_is_not_asked_for(bridges: Path) -> None:
    envs = started(bridges, Unasked(), 7)
    envs[3].step("answer[x]")  # has ended
    envs[4].steps = envs[4].max_steps - 1  # its last step
    envs[5].external.use_recording([None, [["7", "Tarn", "A river."]]])
    envs[5].reset()
    envs.append(make(data=envs[0].source._found, retriever=Unasked()))  # has not begun
    said = [
        "answer[Tarn]",
        "hm",
        "search[]",
        "search[Tarn]",
        "search[Tarn]",
        "search[Tarn]",
        " search[ \n ] ",
        "search[x]",
    ]
    Passages.prepare_steps(envs, said)
    assert envs[5].step(said[5])[4]["retrieved"] == ["7"]


def test_what_can_be_computed_is_not_asked_for_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = [make(split="valid") for _ in range(3)]
    for env in envs:
        env.reset(seed=1)
    asked = []
    search = LexicalRetriever.search
    monkeypatch.setattr(LexicalRetriever, "search", lambda *given: (asked.append(given[1]), search(*given))[1])
    Passages.prepare_steps(envs, ["search[river]"] * 3)
    assert asked == []
    envs[0].step("search[river]")
    assert asked == [["river"]]


# ---------------------------------------------------------------- failures
@pytest.mark.parametrize(
    "error", [RetrieverFailed("nobody there"), OSError("a pipe burst"), IndexError("its own fault")]
)
def test_a_failure_is_told_by_the_steps_and_costs_one_request(bridges: Path, error: Exception) -> None:
    failing = Failing(error)
    envs = started(bridges, failing, 5)
    before = [copy.deepcopy(env) for env in envs]
    Passages.prepare_steps(envs, ["search[Tarn]"] * 4 + ["answer[x]"])
    assert failing.asked == [["Tarn"]]
    for env, old in zip(envs[:4], before, strict=False):
        with pytest.raises(type(error), match=str(error)):
            env.step("search[Tarn]")
        assert env.info() == old.info()
        assert (env.steps, env.playing, env.external.recorded_responses) == (0, True, None)
    assert envs[4].step("answer[x]")[2]
    assert failing.asked == [["Tarn"]]
    with pytest.raises(type(error)):
        envs[0].step("search[Tarn]")
    assert failing.asked == [["Tarn"]] * 2, "the next step asks anew"


def test_a_rollout_whose_retriever_fails_goes_on(bridges: Path) -> None:
    failing = Failing(RuntimeError("a pipe burst"))
    policy = by_script(
        lambda policy_input: "search[Tarn]" if policy_input.episode.seed % 2 else "hm",
        lambda _: "answer[x]",
        lambda _: "",
    )
    episodes = rollout(policy, lambda: make(data=bridges, retriever=failing), [EpisodeSpec(seed) for seed in range(6)])
    assert failing.asked == [["Tarn"]]
    for episode in episodes:
        assert episode.terminated is (episode.seed % 2 == 0)
        assert ("error" in episode.meta) is (episode.seed % 2 == 1)
        if "error" in episode.meta:
            assert episode.meta["error"] == {"class": "RuntimeError", "message": "a pipe burst"}


def test_a_server_that_fails_is_waited_for_once(bridges: Path) -> None:
    with faults(*[status(500)] * 50) as server:
        remote = {"deadline": 5, "retries": 1, "backoff": 0.01, "breaker_failures": 100}
        make_env = lambda: make(data=bridges, retriever=server.url, remote=remote)  # noqa: E731
        episodes = rollout(by_script(lambda _: "search[Tarn]"), make_env, [EpisodeSpec(seed) for seed in range(16)])
        assert len(server.asked) == 2, "one request, and its second try"
    assert [episode.meta["error"]["class"] for episode in episodes] == ["RetrieverFailed"] * 16
    assert all("status 500" in episode.meta["error"]["message"] for episode in episodes)


@pytest.mark.parametrize("answer", [[], [[]], [[], [], []], None])
def test_a_wrong_number_of_results_is_told_by_the_steps(bridges: Path, answer: Any) -> None:
    class Confused(Shelf):
        def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
            return answer  # type: ignore[no-any-return]

    envs = started(bridges, Confused(), 2)
    Passages.prepare_steps(envs, ["search[a]", "search[b]"])
    for env, query in zip(envs, "ab", strict=True):
        with pytest.raises((ValueError, TypeError)):
            env.step(f"search[{query}]")


# ---------------------------------------------------------------- nothing else changes
ACTIONS = st.sampled_from(
    ["search[Tarn]", "search[ Tarn ]", "search[Voss]", "search[nowhere]", "search[]", "hm", "answer[Ada Voss]"]
)


@given(st.lists(st.tuples(ACTIONS, ACTIONS, st.booleans()), min_size=1, max_size=7))
def test_episodes_are_the_same_with_and_without(bridges: Path, moves: list[tuple[str, str, bool]]) -> None:
    """Also when other steps were prepared than are taken, and when the environment is copied in between."""
    [plain], [prepared] = started(bridges, Shelf()), started(bridges, Shelf())
    for action, stray, copied in moves:
        if not plain.playing:
            break
        Passages.prepare_steps([prepared], [stray])
        prepared = copy.deepcopy(prepared) if copied else prepared
        assert prepared.step(action) == plain.step(action)
        assert prepared.external.recorded_responses == plain.external.recorded_responses
        assert prepared.external._prefetched is None, "nothing is kept for a later step"


def test_rollouts_are_the_same_one_by_one(bridges: Path) -> None:
    specs = [EpisodeSpec(seed, attempt=seed % 2) for seed in range(20)]
    alone, together = (
        rollout(RandomPolicy(), lambda: make(data=bridges, retriever=Shelf()), specs, num_envs=count)
        for count in (1, 7)
    )
    assert alone == together


def test_groups_with_and_without_a_recording_are_alike() -> None:
    """The expert of the generated questions with BM25, and with an object that finds the same."""

    class Same(Shelf):
        def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
            self.asked.append(list(queries))
            return make()._finder.retriever.search(queries, topk)  # type: ignore[union-attr]

    same = Same()
    specs = [EpisodeSpec(0, task) for task in range(6)]
    computed = rollout_groups(ExpertPolicy(), lambda: make(split="test"), specs, 2)
    recorded = rollout_groups(ExpertPolicy(), lambda: make(split="test", retriever=same), specs, 2)
    for one, other in zip(computed, recorded, strict=True):
        assert [[t.action for t in e.turns] for e in one] == [[t.action for t in e.turns] for e in other]
        assert [[t.next_observation for t in e.turns] for e in one] == [
            [t.next_observation for t in e.turns] for e in other
        ]
        assert all(episode.success for episode in other)
    assert len(same.asked) == max(len(episode.turns) for group in recorded for episode in group) - 1
