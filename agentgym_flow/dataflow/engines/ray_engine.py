"""Manager and workers on Ray, which places them on a cluster's machines and starts dead ones again.

The manager is a named actor that outlives the trainer: a trainer that was killed finds it again, and a manager that was
killed goes on from its journal, on the machine where its folder is. Workers belong to the trainer that started them.
Ray repeats no call by itself; `RayFlow` does, because every call of a manager can be repeated. All machines of a Ray
cluster trust each other: they exchange Python objects.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, Self

from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.engines.crew import Crew, Member
from agentgym_flow.dataflow.engines.hosting import open_manager, traced
from agentgym_flow.dataflow.engines.local_engine import WatchedFlow
from agentgym_flow.dataflow.network.remote import Again, RemoteFlow
from agentgym_flow.dataflow.network.serving import Switchboard
from agentgym_flow.dataflow.records import Flow
from agentgym_flow.errors import AgentGymFlowError, BadSetting, MissingExtra

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # before Ray is imported: nothing is sent anywhere
try:
    import ray
    from ray.exceptions import ActorUnavailableError, RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "ray":
        raise
    raise MissingExtra.of("ray", "dataflow") from None

MANAGER = "manager"
"""The name of the manager's actor, in the namespace of the run."""

ANSWER = 60.0
"""Seconds without an answer after which an attempt is given up, beside those that the call waits."""

CONNECT = 10.0
"""Seconds within which the head of a cluster takes a connection."""

CALLS = 10_000
"""Calls that the manager has under way at most; one that waits needs no thread, see `serving`."""

GROW = 5.0
"""Seconds between two looks for room for another worker, where there are as many as fit."""


class Service(Protocol):
    """A rollout worker, such as `agentgym_flow.dataflow.rollout.service.RolloutService`."""

    def run(self) -> None:
        """Play until `stop` is called."""

    def stop(self) -> None:
        """Let `run` end soon."""


Services = Callable[[Flow, str, Mapping[str, Any]], Service]
"""Makes a worker from the manager, a name and its options. Must be a function of an importable module."""


class ManagerActor:
    """The manager in its actor; see `Switchboard` for how calls that wait go along with the others."""

    def __init__(self, folder: str, config: dict[str, Any]) -> None:
        self._switchboard: Switchboard | None = None
        settings = FlowConfig(**config)
        self._manager = traced(open_manager(Path(folder), settings), Path(folder), settings)

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Return the answer of a call, or the error that the manager has raised."""
        if self._switchboard is None:  # it belongs to the event loop, which runs by now
            self._switchboard = Switchboard(self._manager)
        try:
            return await self._switchboard.call(name, arguments)
        except AgentGymFlowError as error:
            return error  # as it is: Ray wraps what is raised

    async def pid(self) -> int:
        """Return the number of the process."""
        return os.getpid()


class WorkerActor:
    """A worker in its actor."""

    def __init__(self, manager: Any, name: str, service: Services, options: Mapping[str, Any], deadline: float) -> None:
        self._flow = RayFlow(manager, deadline=deadline)
        self._running = threading.Lock()
        self._work = service(self._flow, f"{name}-{os.getpid()}", options)

    def run(self) -> None:
        """Play until `leave` is called; a second call, after a failure of the network, waits for the first."""
        with self._running:
            self._work.run()

    def leave(self) -> None:
        """Let `run` end soon."""
        self._work.stop()

    def pid(self) -> int:
        """Return the number of the process."""
        return os.getpid()


class RayFlow(RemoteFlow):
    """Implements `agentgym_flow.dataflow.records.Flow` by calls of the manager's actor. Safe in threads.

    Args:
        manager: the handle of the actor.
        deadline: for so many seconds a call is tried again.
    """

    def __init__(self, manager: Any, *, deadline: float = 600.0) -> None:
        super().__init__("the manager's actor on Ray", deadline=deadline)
        self._manager = manager

    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        call = self._manager.call.remote(name, arguments)
        try:
            answer = ray.get(call, timeout=ANSWER + arguments.get("wait", 0.0))
        except RayTaskError as error:  # a defect of the manager
            raise Again(f"{type(error.cause).__name__}: {error.cause}") from None
        except RayError as error:  # dead, about to be started again, or silent
            raise Again(f"{type(error).__name__}: {str(error).strip().splitlines()[0]:.200}") from None
        if isinstance(answer, AgentGymFlowError):
            raise answer
        return answer


def rollout_service(flow: Flow, name: str, options: Mapping[str, Any]) -> Service:
    """Return a `RolloutService`; `options` are its keyword arguments."""
    from agentgym_flow.dataflow.rollout.service import RolloutService

    return RolloutService(flow, name=name, **options)


class RayEngine:
    """The manager and workers of a run on a Ray cluster.

    Args:
        folder: where the manager keeps its journal and weights, on this machine.
        config: the settings of the dataflow.
        address: of the cluster, as `ray.init` takes it; None: the one this process is in, or a new one here.
        namespace: of the run; a trainer that comes back must give the same.
        service: makes a worker.
        options: what `service` gets.
        resources: of each worker, such as `{"num_cpus": 1, "num_gpus": 1}`.

    Attributes:
        flow: the manager as the trainer calls it.
        crew: the workers.

    Raises:
        BadSetting: there is no cluster at the address.
        FlowDown: the manager does not start.
    """

    def __init__(
        self,
        folder: Path,
        config: FlowConfig,
        *,
        address: str | None = None,
        namespace: str = "agentgym_flow",
        service: Services = rollout_service,
        options: Mapping[str, Any] | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        self._started = _join(address)
        self._config, self._service = config, service
        usual = {"num_envs": config.num_envs, "versions": config.versions}
        self._options = dict(usual if options is None else options)
        self._resources = dict(resources or {"num_cpus": 1})
        self._closing = threading.Event()
        self._growing: threading.Thread | None = None
        self.manager = _manager(folder.resolve(), config, namespace)
        self.crew = Crew(self._hire)
        self.flow: Flow = WatchedFlow(RayFlow(self.manager, deadline=config.deadline), self.crew.check)
        self.flow.status()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(end_manager=kind is None)

    def start(self, workers: int | None) -> None:
        """Start so many workers, or as many as fit, now and whenever machines join. Those without room wait for it."""
        if workers is not None:
            self.crew.start(workers)
            return
        self._growing = threading.Thread(target=self._grow, name="flow-growing", daemon=True)
        self._growing.start()

    def close(self, *, end_manager: bool = True) -> None:
        """End the workers, and the manager too unless a trainer is to come back to it. A cluster of ours ends as well.

        Its journal stays: with it another manager can go on.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        if self._growing is not None:
            self._growing.join()
        self.crew.close()
        if end_manager:
            with contextlib.suppress(RayError):
                ray.kill(self.manager, no_restart=True)
        if self._started:
            ray.shutdown()

    def _hire(self, number: int) -> Member:
        actor = ray.remote(WorkerActor).options(
            max_restarts=-1, max_task_retries=0, max_concurrency=3, **self._resources
        )
        name = f"ray-{number}"
        handle = actor.remote(self.manager, name, self._service, self._options, self._config.deadline)
        return _Actor(handle)

    def _grow(self) -> None:
        while not self._closing.is_set() and not self.crew.given_up:  # more of what cannot start would help nobody
            with contextlib.suppress(RayError):
                there = ray.available_resources()  # type: ignore[no-untyped-call]
                room = [
                    int(there.get({"num_cpus": "CPU", "num_gpus": "GPU"}.get(name, name), 0) // amount)
                    for name, amount in self._resources.items()
                    if amount
                ]
                self.crew.start(min(room, default=0))
            self._closing.wait(GROW)


class _Actor:
    """A worker's actor. It has not ended when its process is killed: Ray starts it again."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self._run = handle.run.remote()

    def ended(self) -> str | None:
        done, _ = ray.wait([self._run], timeout=0)
        if not done:
            return None
        try:
            ray.get(self._run)
        except RayTaskError as error:
            return f"{type(error.cause).__name__}: {error.cause}"
        except ActorUnavailableError:  # its process died, and Ray starts it again; `run` fails until it is there
            self._run = self.handle.run.remote()
            return None
        except RayError as error:
            return f"{type(error).__name__}: {str(error).strip()[:500]}"
        return "it has left"

    def leave(self) -> None:
        self.handle.leave.remote()

    def end(self) -> None:
        with contextlib.suppress(RayError):
            ray.kill(self.handle, no_restart=True)


def _join(address: str | None) -> bool:
    """Connect to a cluster; return whether it was started for this process."""
    if ray.is_initialized():
        return False
    if address is not None:
        _check_reachable(address)
    own = address is None and "RAY_ADDRESS" not in os.environ
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address="local", include_dashboard=False, **quiet) if own else ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        if own:
            raise
        raise BadSetting(f"Ray cannot be joined at {address or os.environ['RAY_ADDRESS']}: {error}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray's own would end a trainer before its checkpoint
    return own


def _check_reachable(address: str) -> None:
    """Raise `BadSetting` if nobody listens at an address with a port; Ray itself would try for long."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        return  # a word such as `auto`
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT).close()
    except (OSError, OverflowError) as error:
        raise BadSetting(f"there is no Ray cluster at {address} ({error}); start one: ray start --head") from None


def _manager(folder: Path, config: FlowConfig, namespace: str) -> Any:
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(ManagerActor).options(
        name=MANAGER,
        namespace=namespace,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=CALLS,
        num_cpus=0,
        scheduling_strategy=here,
    )
    return actor.remote(str(folder), asdict(config))
