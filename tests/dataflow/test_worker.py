"""A worker's models and errors: versions that share little room, weights that do not fit, and how it ends."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="training needs the extra train")

from agentgym_flow.dataflow import stage, weights
from agentgym_flow.dataflow.records import Lease, Slot, stage_digest
from agentgym_flow.dataflow.residents import Residents
from agentgym_flow.dataflow.rollout import RolloutService
from agentgym_flow.dataflow.stage import Stage
from agentgym_flow.errors import BadData, FlowDown, RunsFinished
from agentgym_flow.prompts import template_for
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.tiny import tiny_model, word_tokenizer


class Model(torch.nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)


class Generator:
    version = 0

    def update(self, model: Any, version: int) -> None:
        self.version = version


class Policy:
    def __init__(self) -> None:
        self.model, self.generator = Model(), Generator()


class Actor:
    def policy(self) -> Any:
        return Policy()


def state(version: int) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((2, 2), float(version)), "bias": torch.zeros(2)}


class Weights:
    """Gives the weights of every version, as a delta if possible; some versions fail, and deltas may not fit."""

    def __init__(self, failing: set[int] | None = None, misfit: bool = False) -> None:
        self.fetched: list[tuple[int, int | None]] = []
        self.failing, self.misfit = failing or set(), misfit

    def fetch(self, policy: str, version: int, have: int | None) -> bytes:
        self.fetched.append((version, have))
        if version in self.failing:
            raise BadData("not kept any more")
        if have is None:
            return weights.full(state(version))
        return weights.delta(state(version if self.misfit else have), state(version))  # without any difference


def take_all(flow: Weights, room: int, versions: list[int]) -> list[float | str]:
    """Take all versions at once, use each until `room` were taken, and return the weights that each got."""
    taken = 0

    async def use(residents: Residents, version: int) -> float | str:
        nonlocal taken
        try:
            policy: Any = await residents.take(version, weights.digest(state(version)))
        except BadData as error:
            return str(error)
        taken += 1
        while taken < min(room, len(versions)):  # others have theirs before this one is free again
            await asyncio.sleep(0.001)
        found = float(policy.model.weight[0, 0])
        assert policy.generator.version == version
        residents.give_back(policy)
        return found

    async def main() -> list[float | str]:
        residents = Residents(flow, "policy", [Actor().policy] * room)  # type: ignore[arg-type]
        return await asyncio.wait_for(asyncio.gather(*(use(residents, version) for version in versions)), 20)

    return asyncio.run(main())


@pytest.mark.parametrize("room", [1, 2, 3])
def test_versions_take_turns_where_there_is_little_room(room: int) -> None:
    flow = Weights()
    versions = [1, 1, 2, 2, 3, 3, 1, 2]
    assert take_all(flow, room, versions) == versions
    assert len(flow.fetched) <= len(versions)


def test_a_version_that_is_gone_fails_for_those_who_asked_for_it() -> None:
    flow = Weights(failing={2})
    assert take_all(flow, 1, [1, 2, 2, 3]) == [1, "not kept any more", "not kept any more", 3]


def test_a_delta_that_does_not_fit_is_followed_by_the_whole() -> None:
    flow = Weights(misfit=True)
    assert take_all(flow, 1, [1, 2]) == [1, 2]
    assert flow.fetched == [(1, None), (2, None)], "the only model is the one to fill"
    flow = Weights(misfit=True)
    assert take_all(flow, 2, [1, 2, 3]) == [1, 2, 3]
    assert (3, None) in flow.fetched
    assert any(have is not None for _, have in flow.fetched)


class Down:
    """A manager that is not there any more."""

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any, **__: Any) -> Any:
            raise FlowDown("the manager has ended")

        return call


def test_a_worker_ends_with_the_error_itself() -> None:
    with pytest.raises(FlowDown, match="the manager has ended"):
        RolloutService(Down(), name="w").run()


def test_a_gpu_that_is_not_to_be_seen_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_a_build_for_cuda(check_available: bool = False) -> torch.device | None:
        return None if check_available else torch.device("cuda")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", of_a_build_for_cuda)
    tokenizer = word_tokenizer(["push"])
    template = template_for("agentgym_flow/Sokoban-v0", "compact")
    actor = stage.Actor(tiny_model(tokenizer), tokenizer, template, AgentConfig(output_dir="unused", num_generations=8))
    assert actor.policy().model.device.type == "cpu"


class Finished:
    """A manager whose runs are finished; it tells when it was asked for the third time."""

    def __init__(self) -> None:
        self.asked = 0
        self.thrice = threading.Event()

    def exchange(self, worker: str, commits: Any, held: Any, count: int, wait: float) -> Any:
        self.asked += 1
        if self.asked == 3:
            self.thrice.set()
        raise RunsFinished("no trainer needs more episodes")

    def renew(self, worker: str, held: Any) -> Any:
        return []

    def give_back(self, worker: str, held: Any) -> None:
        assert held == []


def test_a_worker_ends_when_all_runs_are_finished_or_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_flow.dataflow.rollout.WAIT", 0.001)
    RolloutService(Finished(), name="w").run()  # type: ignore[arg-type]
    flow = Finished()
    service = RolloutService(flow, name="w", stay=True)  # type: ignore[arg-type]
    thread = threading.Thread(target=service.run)
    thread.start()
    assert flow.thrice.wait(30)
    service.stop()
    thread.join()


def test_weights_of_another_run_under_the_same_version_are_not_played_with() -> None:
    async def main() -> None:
        flow = Weights()
        residents = Residents(flow, "policy", [Actor().policy] * 2)  # type: ignore[arg-type]
        await residents.take(1, weights.digest(state(1)))
        with pytest.raises(BadData, match="version 1 of policy has other weights here than the lease names"):
            await residents.take(1, weights.digest(state(7)))
        assert flow.fetched == [(1, None), (1, 1), (1, None)], "as a delta, and then all of it"

    asyncio.run(main())


def test_other_weights_under_the_same_version_reach_the_generator() -> None:
    """A generator skips the version that it has, and would answer from what it keeps of the weights before."""

    class Skipping(Generator):
        def update(self, model: Any, version: int) -> None:
            if version != self.version:
                self.known, self.version = float(model.weight[0, 0]), version

    class OfAnotherRun(Weights):
        def fetch(self, policy: str, version: int, have: int | None) -> bytes:
            return weights.full(state(7))

    async def main() -> None:
        policy = Policy()
        policy.generator = Skipping()
        residents = Residents(Weights(), "policy", [lambda: policy])  # type: ignore[arg-type]
        residents.give_back(await residents.take(1, weights.digest(state(1))))
        assert policy.generator.known == 1.0
        residents._flow = OfAnotherRun()  # type: ignore[assignment]
        await residents.take(1, weights.digest(state(7)))
        assert policy.generator.known == 7.0

    asyncio.run(main())


class Described:
    """A manager whose stream has these settings."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def describe(self) -> dict[str, Any]:
        return {"s": self.settings}


def test_a_run_with_other_settings_is_not_played_with_those_of_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def stage_of(setup: dict[str, Any]) -> Stage:
        made.append(setup)
        return Stage(lambda: setup["size"], {}, lambda _: "policy")

    monkeypatch.setattr("agentgym_flow.dataflow.rollout.stage_of", stage_of)
    flow = Described(size=6, policies=["policy"])
    service = RolloutService(flow, name="w")  # type: ignore[arg-type]
    service._staging = asyncio.Lock()

    def sizes(leased_with: Any) -> Any:
        lease = Lease("s", Slot(0, 0, 0, 0, 0), 1, {}, {}, stage_digest(leased_with), 60.0)
        player = asyncio.run(service._player(lease))
        return player and player.stage.make_env()

    assert [sizes({"size": 6, "policies": ["policy"]}), sizes({"size": 6, "policies": ["policy"]})] == [6, 6]
    assert made == [{"size": 6, "policies": ["policy"]}]
    assert sizes({"size": 7, "policies": ["policy"]}) is None, "the lease is of another time"
    flow.settings = {"size": 7, "policies": ["policy"]}
    assert sizes({"size": 7, "policies": ["policy"]}) == 7
    assert sizes({"size": 6, "policies": ["policy"]}) is None
