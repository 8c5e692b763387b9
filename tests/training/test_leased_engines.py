"""Workers whose model runs on servers of vLLM: what servers do wrong is played again, and nothing stale is trained on.

The servers answer with the weights that they were sent, so the ratios of the trainer's probabilities to theirs tell
whether an episode was played with the weights of its lease. tests/with_vllm does the same with real vLLM.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from fake_vllm import FakeVLLM, ModelVLLM
from test_leased_groups import Trainers, actor, own, together, trained_by_workers, workers

from agentgym_flow.dataflow import rollout
from agentgym_flow.dataflow.batches import LeasedGroups
from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.run import generators_of_workers
from agentgym_flow.dataflow.stage import stage_of
from agentgym_flow.errors import BadSetting, NoWorkers, UpdateFailed
from agentgym_flow.generation.vllm_server import VLLMServers
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.models import with_lora
from agentgym_flow.training.trainer import AgentTrainer

AT = 100
"""The number of the request at which something happens, in the middle of a batch."""

pytestmark = pytest.mark.usefixtures("narrow")


@pytest.fixture
def servers(make_warm: Any) -> Iterator[list[ModelVLLM]]:
    started = [ModelVLLM(make_warm()[0]) for _ in range(2)]
    for server in started:
        server.start()
    yield started
    for server in started:
        server.kill()


@pytest.fixture
def play(make_trainer: Trainers, make_warm: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Trains with workers on these servers; returns the figures of the stream, and the metrics."""
    monkeypatch.setattr(rollout, "WAIT", 0.05)

    def train(servers: list[ModelVLLM], *, manager: Manager | None = None, batches: int = 2, **worker: Any) -> Any:
        urls = ",".join(server.url for server in servers)
        settings = {"max_steps": 2 * batches, "logging_steps": 1, "vllm_server_timeout": 5.0}
        staleness = worker.pop("staleness", 0)
        trainer: AgentTrainer = make_trainer(model=make_warm(), generator=urls, **settings)
        manager = trained_by_workers(trainer, staleness=staleness, manager=manager, count=1, worker=worker)
        (stream,) = manager.status()["streams"].values()
        assert stream["counts"]["admitted"] == batches * 16
        assert stream["states"]["used"] + stream["states"]["trained"] == batches * 16
        assert stream["counts"].get("failed", 0) == 0, "no attempt is held against an episode"
        return stream, [row for row in trainer.state.log_history if "importance/ratio_max" in row]

    return train


def true(rows: list[dict[str, float]]) -> bool:
    """Whether all that was trained on was sampled by the weights that the trainer believes."""
    return len(rows) == 2 and all(abs(row["importance/ratio_max"] - 1) < 1e-4 for row in rows)


def test_episodes_are_played_by_servers_and_the_mismatch_is_shown(servers: list[ModelVLLM], play: Any) -> None:
    _, rows = play(servers)
    assert true(rows)
    assert all(row["importance/effective_sample_size"] > 0.999 for row in rows)
    assert all(server.requests for server in servers), "each has one version"
    generator = servers[0].generator
    generate = generator.generate_batch
    generator.generate_batch = lambda asked: [
        one._replace(logprobs=(one.logprobs[0] - 0.5,)) for one in generate(asked)
    ]  # type: ignore[method-assign]
    _, rows = play(servers[:1])
    assert all(row["importance/ratio_max"] == pytest.approx(1.6487, abs=1e-3) for row in rows)


def restart(server: ModelVLLM) -> None:
    """Give a server the weights and the version that it was started with."""
    with server.lock:
        server.use(server.first)
        server.answers["/weight_info"] = {"weight_version": "default"}


def older(server: ModelVLLM) -> None:
    """Give a server older weights, as another client would."""
    with server.lock:
        server.use(server.first)
        server.answers["/weight_info"] = {"weight_version": "whole-0-12345678"}


@pytest.mark.parametrize(
    ("fault", "count"),
    [
        (older, 1),
        pytest.param(restart, 1, marks=pytest.mark.heavy),
        pytest.param(older, 2, marks=pytest.mark.heavy),
        pytest.param(restart, 2, marks=pytest.mark.heavy),
    ],
)
def test_a_server_with_other_weights_costs_episodes_and_nothing_else(
    fault: Callable[[ModelVLLM], None], count: int, servers: list[ModelVLLM], play: Any
) -> None:
    struck = []

    def strike(number: int) -> None:
        if number == AT:
            fault(servers[0])
            struck.append(number)

    servers[0].on_request = strike
    stream, rows = play(servers[:count], versions=1)
    assert struck
    assert true(rows)
    assert stream["counts"]["leased"] > 2 * 16


def test_a_killed_server_is_used_again_when_it_is_back(servers: list[ModelVLLM], make_warm: Any, play: Any) -> None:
    port = servers[0].server_address[1]
    back = []

    def kill(number: int) -> None:
        if number == AT:
            servers[0].kill()
            server = ModelVLLM(make_warm()[0], port)
            server.start()
            back.append(server)

    servers[0].on_request = kill
    stream, rows = play(servers[:1])
    assert true(rows)
    assert back[0].requests
    assert stream["counts"]["leased"] > 2 * 16
    back[0].kill()


@pytest.mark.heavy
def test_of_two_servers_one_may_die(servers: list[ModelVLLM], play: Any) -> None:
    servers[0].on_request = lambda number: servers[0].kill() if number == AT // 2 else None
    _, rows = play(servers, versions=1)
    assert true(rows)


@pytest.mark.heavy
def test_an_answer_that_comes_too_late_is_not_waited_for(servers: list[ModelVLLM], play: Any) -> None:
    def stall(number: int) -> None:
        if number == AT:
            servers[0].closing.wait(20)

    servers[0].on_request = stall
    manager = Manager(lease_seconds=1.0, episode_seconds=1.5)
    stream, rows = play(servers[:1], manager=manager)
    assert true(rows)
    assert stream["counts"]["overlong"] >= 1


def test_servers_that_stay_away_end_the_worker_and_are_named(
    servers: list[ModelVLLM], play: Any, caplog: pytest.LogCaptureFixture
) -> None:
    servers[0].on_request = lambda number: servers[0].kill() if number == AT else None
    with pytest.raises(NoWorkers):
        play(servers[:1], deadline=0.2, manager=Manager(deadline=2.0))
    assert servers[0].url in caplog.text


@pytest.mark.heavy
def test_versions_in_flight_have_servers_of_their_own(servers: list[ModelVLLM], play: Any) -> None:
    _, rows = play(servers, staleness=1, batches=3)
    assert rows[0]["importance/ratio_max"] == pytest.approx(1, abs=1e-4)
    assert all(row["importance/ratio_max"] < 1.5 for row in rows), "the weights are older, and corrected for"
    assert all(len([one for one in server.posted if one[0] == "/collective_rpc"]) >= 1 for server in servers)


@pytest.mark.heavy
def test_two_policies_have_servers_of_their_own(
    servers: list[ModelVLLM], make_trainer: Trainers, make_warm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "WAIT", 0.05)
    manager, config = Manager(), FlowConfig(staleness=0, turns=["first", "second"])
    trainers = {}
    for name, server in zip(config.turns, servers, strict=True):
        settings = {"max_steps": 4, "logging_steps": 1, "vllm_server_timeout": 5.0}
        trainer = trainers[name] = make_trainer(model=make_warm(), generator=server.url, **settings)
        trainer.acts_as = name
        trainer.source = LeasedGroups(own(trainer), manager, partial(actor, trainer), config, policy=name)
    servers[1].on_request = lambda number: restart(servers[1]) if number == AT else None
    with workers(manager, trainers, config.turns, 1), together([one.train for one in trainers.values()]):
        pass
    (stream,) = manager.status()["streams"].values()
    assert stream["states"]["used"] == 2 * 16
    assert stream["counts"]["leased"] > 2 * 16
    assert all(server.requests for server in servers)
    for one in trainers.values():
        assert true([row for row in one.state.log_history if "importance/ratio_max" in row])


def test_adapters_of_several_clients_share_a_server(make_warm: Any, tmp_path: Any) -> None:
    server = FakeVLLM()
    server.answers["/server_info"]["vllm_config"]["lora_config"] = {"max_loras": 2}
    server.start()
    model = with_lora(make_warm()[0], rank=2, alpha=4, seed=0)
    clients = [VLLMServers(model, [server.url], tmp_path / name, silence=5.0) for name in "ab"]

    async def both() -> None:
        for client in clients:
            client.update(model, 0)
        async with clients[0], clients[1]:
            for client in clients:
                await client.check()
            clients[1].update(model, 1)
            await clients[0].check()
            server.answers["/weight_info"] = {"weight_version": "default"}
            with pytest.raises(UpdateFailed, match="has other weights"):
                await clients[0].check()

    with pytest.raises(UpdateFailed):
        asyncio.run(both())
    names = [body["lora_name"] for path, body in server.posted if path == "/v1/load_lora_adapter"]
    assert len({*names}) == 3
    assert [body["lora_name"] for path, body in server.posted if path == "/v1/unload_lora_adapter"] == [names[1]]
    assert not [path for path, _ in server.posted if path == "/reset_prefix_cache"], "others are being answered"
    server.kill()


def test_servers_are_shared_out_where_weights_are_whole() -> None:
    def of(workers: Any, urls: str, *more: str) -> list[str]:
        configs = parse_configs(["--generator", urls, *more])
        return generators_of_workers(configs, FlowConfig(workers=workers))

    three = "http://a:1,http://b:1,http://c:1"
    assert of(2, three) == ["http://a:1,http://c:1", "http://b:1"]
    assert of(2, three, "--lora", "true", "--model", "some/model") == of(0, three) == of(4, "vllm") == []
    with pytest.raises(BadSetting, match=r"4 workers cannot share 3 servers.*or adapters"):
        of(4, three)


def test_a_worker_with_an_engine_needs_a_run_that_corrects(make_trainer: Trainers) -> None:
    told = {"policies": ["policy"], "turns": [], "actors": {"policy": actor(make_trainer())}}
    service = rollout.RolloutService(Manager(), name="w", generator="vllm")
    with pytest.raises(BadSetting, match="expects log-probabilities of Transformers: start the run with --generator"):
        service._makers("policy", stage_of(told).actors["policy"], True)


def test_each_policy_of_a_worker_has_servers_of_its_own(
    make_trainer: Trainers, make_warm: Any, servers: list[ModelVLLM], tmp_path: Any
) -> None:
    first, second = (server.url for server in servers)
    told = actor(make_trainer(model=make_warm(), generator=first))
    made = stage_of({"policies": ["a"], "turns": [], "actors": {"a": told}}).actors["a"]
    service = rollout.RolloutService(Manager(), name="w", generator={"b": second}, versions=1)
    service._folder = tmp_path
    for name, url in (("a", first), ("b", second)):
        [make] = service._makers(name, made, False)
        policy = make()
        assert [server.url for server in policy.generator._servers] == [url]
        assert policy.acts_as == name
    service = rollout.RolloutService(Manager(), name="w", generator=second)
    with pytest.raises(BadSetting, match="needs servers of its own: give --generator a=URL"):
        service._makers("a", made, False)


def test_a_server_that_reads_less_than_the_trainer_expects_is_refused(
    make_trainer: Trainers, make_warm: Any, servers: list[ModelVLLM], tmp_path: Any
) -> None:
    servers[0].answers["/v1/models"]["data"][0]["max_model_len"] = 48
    for settings, fits in (({}, False), ({"vllm_max_model_length": 48}, True)):
        trainer = make_trainer(model=make_warm(), generator=servers[0].url, **settings)
        told = {"policies": ["policy"], "turns": [], "actors": {"policy": actor(trainer)}}
        made = stage_of(told).actors["policy"]
        assert torch.is_tensor(made.model.lm_head.weight)
        if fits:
            policy = made.policy(servers[0].url, tmp_path)
            assert policy._context == made.policy()._context == 48
            continue
        with pytest.raises(BadSetting, match=r"reads 48 tokens, .*--vllm_max_model_length 48"):
            made.policy(servers[0].url, tmp_path)
