"""Episodes that go on with newer weights: every turn names the version that sampled it, and no count is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from fake_vllm import ModelVLLM
from flow_parts import Clock
from test_conversation import TEMPLATE as SPEECH
from test_conversation import short_env, talker
from test_leased_groups import trained_by_workers

from agentgym_flow.dataflow import rollout
from agentgym_flow.dataflow.batches.inbox import Receiver
from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.records import PARTIAL, Slot
from agentgym_flow.dataflow.rollout import RolloutService
from agentgym_flow.dataflow.stage import Actor, Stage, load_state, stage_of, state_to_send, turn_router
from agentgym_flow.dataflow.weights import full
from agentgym_flow.envs.sokoban.prompt import PROMPT_TEMPLATES
from agentgym_flow.episodes import Episode, Turn
from agentgym_flow.errors import FlowDown, Forged
from agentgym_flow.play import EnvPool
from agentgym_flow.training.config import AgentConfig

__all__ = ("short_env", "talker")  # fixtures

SLOTS = [Slot(0, task, sample, task, 11) for task in range(2) for sample in range(2)]
TALK = {"layout": "conversation", "max_completion_length": 2, "temperature": 0.8}
pytestmark = pytest.mark.usefixtures("narrow")


class Partial:
    """A manager, the weights that its trainers have published, and what happens after each turn of its worker."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        model: tuple[Any, Any],
        make_env: Any,
        template: Any = PROMPT_TEMPLATES["compact"],
        manager: Manager | None = None,
        turns: tuple[str, ...] = ("one",),
        partial: bool = True,
        **settings: Any,
    ) -> None:
        self.manager = manager or Manager()
        self.model, tokenizer = model
        args = AgentConfig(output_dir="unused", num_generations=8, **settings)
        self.actor = Actor(self.model, tokenizer, template, args)
        names = [*dict.fromkeys(turns)]
        self.stage = Stage(make_env, dict.fromkeys(names, self.actor), turn_router(turns), partial=partial)
        setup = {"policies": names, "order": "ready", "staleness": 4, PARTIAL: partial}
        self.claims = {name: self.manager.open("s", name, 0, setup, name) for name in names}
        self.update = -1
        self.states: dict[int, dict[str, torch.Tensor]] = {}  # by optimizer step
        self.publish()
        for claim in self.claims.values():
            self.manager.admit(claim, SLOTS)
        self.publish_after: list[int] = []
        self.gate = asyncio.Lock()
        self.turns = 0
        self.service = self.worker()
        patch.setattr(rollout, "stage_of", lambda _: self.stage)
        patch.setattr(rollout, "WAIT", 0.02)
        patch.setattr(rollout, "take_turn", self._then(rollout.take_turn))

    def worker(self, **settings: Any) -> RolloutService:
        return RolloutService(self.manager, name="w", **{"num_envs": 4, "versions": 1, **settings})

    def publish(self) -> None:
        """Publish the next update of all policies, with weights that differ much."""
        self.update += 1
        first = self.states.get(0) or {name: weight.clone() for name, weight in state_to_send(self.model).items()}
        changed = {name: weight + 0.05 * torch.randn_like(weight) for name, weight in first.items()}
        self.states[10 * self.update] = changed if self.update else first
        for claim in self.claims.values():
            if self.update:
                self.manager.ack(claim, self.update - 1, [], [])
            self.manager.publish(claim, self.update, 10 * self.update, full(self.states[10 * self.update]))

    async def after(self, policy: Any) -> None:
        """Publish after some turns, and let the worker know, and load it where there is room; all episodes wait."""
        if not self.publish_after or self.turns < self.publish_after[0]:
            return
        del self.publish_after[0]
        self.publish()
        self.service._newest.update(self.manager.newest())
        for name, residents in policy.player.residents.items():
            told = policy.newest["s"][name]
            while len(residents._makers) > 1 and not residents.has(told[1]):
                residents.newer(policy.policies[name], *told)
                await asyncio.sleep(0.001)

    def _then(self, take_turn: Callable[..., Any]) -> Callable[..., Any]:
        async def taken(policy: Any, *more: Any) -> bool:
            over: bool = await take_turn(policy, *more)
            self.turns += 1
            async with self.gate:
                if not over:
                    await self.after(policy)
            return over

        return taken

    @contextmanager
    def playing(self) -> Iterator[None]:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(self.service.run)
            try:
                yield
            finally:
                self.service.stop()
            running.result()

    def episodes(self, claim: str = "one") -> list[Episode]:
        """Let the worker play all slots; return the episodes as the trainer gets them."""
        with self.playing():
            end = time.monotonic() + 60
            while len(found := self.manager.arrivals(self.claims[claim], 0, 0.05)) < len(SLOTS):
                assert time.monotonic() < end, "an episode does not go on"
        policies = {name: actor.policy() for name, actor in self.stage.actors.items()}
        receiver = Receiver(EnvPool(self.stage.make_env), self.stage.route, policies)
        return [receiver.replay(one.slot, one.payload.decode(), one.steps, one.used) for one in found]

    def differs(self, turn: Turn, step: int | None) -> float:
        """The largest difference of a turn's log-probabilities from those of the weights at a step."""
        assert step is not None
        load_state(self.model, self.states[step])
        prompt, sampled = turn.output.prompt_ids or (), turn.output.completion_ids or ()
        with torch.inference_mode():
            logits = self.model.eval()(torch.tensor([[*prompt, *sampled]])).logits[0]
        scores = torch.log_softmax(logits.float() / self.actor.args.temperature, -1)[len(prompt) - 1 :]
        own = [float(scores[number, token]) for number, token in enumerate(sampled)]
        return max(abs(one - other) for one, other in zip(own, turn.output.logprobs or (), strict=True))

    def check(self, episodes: list[Episode]) -> None:
        """Every turn was sampled by the version that it records, and by no other; an episode spans three."""
        for episode in episodes:
            for turn in episode.turns:
                others = [self.differs(turn, step) for step in self.states if step != turn.output.version]
                assert self.differs(turn, turn.output.version) < 1e-4 < 1e-3 < min(others)
        versions = [[turn.output.version for turn in episode.turns] for episode in episodes]
        assert all(one == sorted(one) for one in versions)
        assert max(len({*one}) for one in versions) >= 3


@pytest.mark.parametrize("versions", [1, 2])
@pytest.mark.parametrize("talks", [False, True])
def test_each_turn_is_sampled_by_the_version_that_it_records(
    talks: bool, versions: int, monkeypatch: pytest.MonkeyPatch, talker: Any, warm: Any, short_env: Any
) -> None:
    """Prompts of conversations begin with what was said under earlier weights: its keys and values are made anew."""
    settings = {"model": talker, "template": SPEECH, **TALK} if talks else {"model": warm}
    flow = Partial(monkeypatch, make_env=short_env, **settings)
    flow.service = flow.worker(versions=versions)
    flow.publish_after = [6, 12]
    episodes = flow.episodes()
    flow.check(episodes)
    ages = [one.updates["one"] for one in flow.manager.arrivals(flow.claims["one"], 0)]
    assert ages == [min(turn.output.version or 0 for turn in episode.turns) // 10 for episode in episodes], "the oldest"


def test_a_stream_without_the_setting_keeps_the_weights_of_the_lease(
    monkeypatch: pytest.MonkeyPatch, warm: Any, short_env: Any
) -> None:
    flow = Partial(monkeypatch, warm, short_env, partial=False)
    flow.publish_after = [6]
    assert {turn.output.version for episode in flow.episodes() for turn in episode.turns} == {0}


def test_newer_weights_are_heard_of_while_all_places_are_full(
    monkeypatch: pytest.MonkeyPatch, warm: Any, short_env: Any
) -> None:
    flow = Partial(monkeypatch, warm, short_env, manager=Manager(lease_seconds=2.0))
    flow.service = flow.worker(num_envs=1)

    async def after(policy: Any) -> None:
        if not flow.update:
            flow.publish()
            while flow.service._newest["s"]["one"][0] != 2:
                await asyncio.sleep(0.01)

    monkeypatch.setattr(flow, "after", after)
    assert {turn.output.version for turn in next(one for one in flow.episodes() if len(one.turns) > 1).turns} == {0, 10}


def test_two_policies_with_room_for_one_version_do_not_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch, warm: Any, short_env: Any
) -> None:
    flow = Partial(monkeypatch, warm, short_env, turns=("one", "two") * 9)
    flow.publish_after = [3, 6, 9, 12]
    episodes = flow.episodes("two")
    assert {turn.output.policy for episode in episodes for turn in episode.turns} == {"one", "two"}
    flow.check(episodes)


def test_a_worker_that_dies_between_two_versions_costs_the_episode_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, warm: Any, short_env: Any
) -> None:
    clock = Clock()
    flow = Partial(monkeypatch, warm, short_env, manager=Manager(clock=clock))
    flow.publish_after = [6]

    class Dead:
        def __getattr__(self, name: str) -> Any:
            raise FlowDown("the worker has died")

    async def die(policy: Any) -> None:
        await Partial.after(flow, policy)
        if flow.turns == 9:
            flow.service._flow = Dead()  # type: ignore[assignment]
            raise FlowDown("the worker has died")

    with monkeypatch.context() as dying:
        dying.setattr(flow, "after", die)
        with pytest.raises(FlowDown, match="has died"):
            flow.service.run()
    clock.now += 100
    flow.service, flow.publish_after = flow.worker(), [15]
    episodes = flow.episodes()
    arrivals = flow.manager.arrivals(flow.claims["one"], 0)
    assert {one.attempt for one in arrivals if one.slot.sample} <= {1, 2}
    assert max(one.attempt for one in arrivals) == 2
    (stream,) = flow.manager.status()["streams"].values()
    assert stream["states"]["committed"] == len(SLOTS)
    assert stream["counts"]["expired"] == stream["counts"]["leased"] - len(SLOTS) > 0
    second = [episode for one, episode in zip(arrivals, episodes, strict=True) if one.attempt == 2]
    for turn in (turn for episode in second for turn in episode.turns):
        assert turn.output.version in (10, 20), "the second attempt began with the weights of its own lease"
        assert flow.differs(turn, turn.output.version) < 1e-4


def test_versions_that_a_commit_does_not_name_are_forged(
    monkeypatch: pytest.MonkeyPatch, warm: Any, short_env: Any
) -> None:
    flow = Partial(monkeypatch, warm, short_env)
    flow.publish_after = [6]
    flow.episodes()
    arrival = max(flow.manager.arrivals(flow.claims["one"], 0), key=lambda one: len(one.used))
    receiver = Receiver(EnvPool(short_env), flow.stage.route, {"one": flow.actor.policy()})
    text = arrival.payload.decode()
    line, columns = text.split("\n")
    assert len(arrival.used) == 2
    for payload, used, message in (
        (text, arrival.used[:1], "version 2 of one is not among those of the commit"),
        (text, (), "versions of the turns are in the episode, but not in its commit"),
        (f"{line}\n{columns[: columns.rindex(',[')]}]", arrival.used, "or the reverse"),
        (f"{line}\n{columns[: columns.rindex(',[')]},[1.5]]", arrival.used, "the versions are not an integer for each"),
    ):
        with pytest.raises(Forged, match=message):
            receiver.replay(arrival.slot, payload, arrival.steps, used)


@pytest.mark.parametrize("struck", [False, True])
def test_a_server_gets_new_weights_between_turns_and_is_checked_before(
    struck: bool, monkeypatch: pytest.MonkeyPatch, make_warm: Any, short_env: Any
) -> None:
    server = ModelVLLM(make_warm()[0])
    server.start()
    flow = Partial(monkeypatch, make_warm(), short_env, generator=server.url, vllm_server_timeout=5.0)
    flow.publish_after = [6, 12]

    def strike(number: int) -> None:
        if number == 8:  # as another client would: the fourth version that the server stores is nobody's
            with server.lock:
                server.use({name: weight * 0.9 for name, weight in server.first.items()})
                server.answers["/weight_info"] = {"weight_version": "whole-0-12345678"}

    server.on_request = strike if struck else server.on_request
    episodes = flow.episodes()
    (stream,) = flow.manager.status()["streams"].values()
    assert bool(stream["counts"].get("given_back", 0)) == struck
    if not struck:
        flow.check(episodes)
    assert max(flow.differs(turn, turn.output.version) for episode in episodes for turn in episode.turns) < 1e-4
    server.kill()


@pytest.mark.heavy
def test_a_run_trains_on_episodes_of_several_versions(
    make_trainer: Any, make_warm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    respond = rollout._EpisodePolicies.respond

    async def slowly(self: Any, policy_input: Any) -> Any:
        """Every second episode takes longer than an update, also where the trainer gets little of the processor."""
        await asyncio.sleep(0.1 * (self.playing.lease.slot.sample % 2))
        return await respond(self, policy_input)

    monkeypatch.setattr(rollout._EpisodePolicies, "respond", slowly)
    monkeypatch.setattr("test_leased_groups.stage_of", lambda setup: replace(stage_of(setup), partial=True))
    trainer = make_trainer(model=make_warm(), max_steps=16, logging_steps=2)
    manager = trained_by_workers(trainer, order="ready", staleness=2, partial_rollouts=True)
    (stream,) = manager.status()["streams"].values()
    assert sum(stream["policies"]["policy"]["ages"].values()) == 8 * 16
    assert stream["policies"]["policy"]["ages"].keys() <= {"0", "1", "2"}
    versions = [row["dataflow/versions"] for row in trainer.state.log_history if "dataflow/versions" in row]
    assert len(versions) == 8
    assert max(versions) > 1
    assert stream["counts"].get("failed", 0) == stream["counts"].get("rejected", 0) == 0
