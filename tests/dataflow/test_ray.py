"""Manager and workers on Ray: the same answers, and kills of both. One cluster for all tests."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from flow_trace import WEIGHTS, manager, slots, trace
from little_worker import LittleWorker

from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.records import Arrival, Flow
from agentgym_flow.errors import BadSetting, FlowDown, NoWorkers

ray = pytest.importorskip("ray")
CONFIG = FlowConfig(staleness=0, lease_seconds=3.0, deadline=120.0)


def little(flow: Flow, name: str, options: Any) -> LittleWorker:
    return LittleWorker(flow, name, **options)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # else Ray writes a token into the home directory
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
        from agentgym_flow.dataflow import ray_engine  # noqa: F401  sets what Ray reads when it is imported

        handler = signal.getsignal(signal.SIGTERM)
        ray.init(
            address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20
        )
        signal.signal(signal.SIGTERM, handler)  # other tests need it
        yield
        ray.shutdown()


def engine(folder: Path, name: str, config: FlowConfig = CONFIG, **settings: Any) -> Any:
    from agentgym_flow.dataflow.ray_engine import RayEngine

    return RayEngine(folder, config, namespace=name, service=little, **settings)


def weights() -> bytes:
    import torch

    from agentgym_flow.dataflow.weights import full

    return full({"layer": torch.arange(5.0)})


def test_answers_are_those_of_the_manager_itself(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flow_trace.WEIGHTS", weights())  # the actor's store reads them
    with engine(tmp_path, "trace") as there:
        assert trace(there.flow) == trace(manager(lease_seconds=3.0))
        with pytest.raises(BadSetting, match=r"started with lease_seconds=3.0, and now lease_seconds is 9"):
            engine(tmp_path, "trace", replace(CONFIG, lease_seconds=9))
        with pytest.raises(BadSetting, match=r"started with folder='.*', and now folder is '.*/other'"):
            engine(tmp_path / "other", "trace")
    assert len(WEIGHTS) > 1e6


@pytest.mark.parametrize("kind", [Exception, RuntimeError, TimeoutError])
def test_a_cluster_that_does_not_start_is_an_error_with_advice(kind: type[Exception]) -> None:
    from agentgym_flow.dataflow import ray_engine

    def init(*_: Any, **__: Any) -> None:
        assert all(int(os.environ[name]) >= limit for name, limit in ray_engine.PATIENCE.items())
        raise kind("The current node timed out during startup.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_engine.ray, "is_initialized", lambda: False)
        patch.setattr(ray_engine.ray, "init", init)
        patch.delenv("RAY_ADDRESS", raising=False)
        with pytest.raises(FlowDown, match=r"timed out during startup.*RAY_gcs_server_port_wait_time_s=120.*ray:auto"):
            ray_engine.join(None)
        with pytest.raises(BadSetting, match="Ray cannot be joined at auto: The current node timed out"):
            ray_engine.join("auto")


def test_free_resources_decide_how_many_workers_have_room() -> None:
    from agentgym_flow.dataflow import ray_engine

    given = {"CPU": 2, "GPU": 0.5, "far": 1}
    assert ray_engine.options_of(given) == {"num_cpus": 2, "num_gpus": 0.5, "resources": {"far": 1}}
    free = {"CPU": 9.0, "GPU": 1.0, "far": 7.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_engine.ray, "available_resources", lambda: free)
        assert ray_engine.room_for(given) == 2
        assert ray_engine.room_for({"near": 1}) == 0


def test_the_actor_is_only_asked_for_an_address_and_again_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentgym_flow.dataflow import ray_engine
    from agentgym_flow.dataflow.network.server import serving

    there, asked = manager(), []
    monkeypatch.setattr(ray_engine.ray, "get", lambda address, timeout: asked.append(address) or (address, "t", {}))
    monkeypatch.setattr("agentgym_flow.dataflow.network.client.FIRST_PAUSE", 0.01)
    handle = Mock()
    flow = ray_engine.RayFlow(handle, deadline=20.0)
    for number in (1, 2):
        with serving(there, "t") as handle.about.remote.return_value:
            assert [flow.status()["streams"] for _ in range(3)] == [{}] * 3
        assert len(asked) == number


@pytest.mark.heavy
def test_kills_of_worker_and_manager_lose_nothing(cluster: None, tmp_path: Path) -> None:
    """And a trainer that comes later finds the manager by its name."""
    planned = slots(0, groups=10)
    first = engine(tmp_path, "kills", options={"seconds": 0.2})
    claim = first.flow.open("s", "a", 0, {"policies": ["a"]}, "trainer")
    first.flow.publish(claim, 0, 0, weights())
    first.flow.admit(claim, planned)
    first.start(2)
    found: list[Arrival] = []
    killed: list[int] = []
    while len(found) < len(planned):
        found += first.flow.arrivals(claim, found[-1].number if found else 0, 1.0)
        if len(killed) < 1 <= len(found) // 4:
            (actor, *_) = (seat.member.handle for seat in first.crew._seats)
            killed.append(ray.get(actor.pid.remote()))
            os.kill(killed[-1], signal.SIGKILL)
        if len(killed) == 1 and len(found) >= 8:
            killed.append(ray.get(first.manager.pid.remote()))
            os.kill(killed[-1], signal.SIGKILL)
    assert len(killed) == 2
    assert sorted(one.slot for one in found) == planned
    assert ray.get(first.manager.pid.remote()) != killed[1]
    first.close(end_manager=False)
    with engine(tmp_path, "kills") as second:
        later = second.flow.arrivals(claim, 0)
        assert sorted(one.slot for one in later) == planned
        assert second.flow.ack(claim, 0, [one.played for one in later], []) == []


def collect_all(flow: Flow, claim: Any) -> None:
    after = 0
    while True:
        after = max([one.number for one in flow.arrivals(claim, after, 1.0)], default=after)


@pytest.mark.heavy
def test_workers_that_are_all_gone_end_in_an_error_within_the_deadline(cluster: None, tmp_path: Path) -> None:
    config = replace(CONFIG, lease_seconds=1.0, deadline=5.0)
    with engine(tmp_path, "gone", config, options={"seconds": 0.1}) as there:
        claim = there.flow.open("s", "a", 0, {"policies": ["a"]}, "t")
        there.flow.publish(claim, 0, 0, weights())
        there.flow.admit(claim, slots(0, groups=500))
        there.start(2)
        while len(there.flow.status()["workers"]) < 2:
            assert not there.crew.given_up
        there.crew.close(patience=0.0)
        with pytest.raises(NoWorkers, match="no rollout worker has called for"):
            collect_all(there.flow, claim)


@pytest.mark.heavy
def test_as_many_workers_start_as_fit(cluster: None, tmp_path: Path) -> None:
    with engine(tmp_path, "fit", options={}) as there:
        there.start(None)
        while len(there.flow.status()["workers"]) < 2:
            assert not there.crew.given_up, there.crew._last_words
            time.sleep(0.1)
        assert len(there.crew) == 2


@pytest.mark.heavy
def test_the_number_of_workers_follows_and_the_autoscaler_is_asked(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentgym_flow.dataflow import ray_engine, scaling

    asked, request = [], ray_engine.request_resources
    monkeypatch.setattr(
        ray_engine, "request_resources", lambda bundles: asked.append(bundles) or request(bundles=bundles)
    )
    monkeypatch.setattr(scaling.Scaler, "decide", lambda *_: 2)
    config = replace(CONFIG, workers={"min": 1, "max": 2})
    with engine(tmp_path, "follow", config, options={}) as there:
        there.start(config.workers)
        while len(there.flow.status()["workers"]) < 2:
            assert not there.crew.given_up, there.crew._last_words
            time.sleep(0.1)
    assert asked == [[{"CPU": 1}], [{"CPU": 1}] * 2, []]


@pytest.mark.heavy
def test_a_cluster_that_is_not_there_is_named_at_once() -> None:
    from agentgym_flow.dataflow.ray_engine import check_reachable

    with pytest.raises(BadSetting, match=r"no Ray cluster at 127\.0\.0\.1:1 .*ray start --head"):
        check_reachable("127.0.0.1:1")
    check_reachable("auto")
