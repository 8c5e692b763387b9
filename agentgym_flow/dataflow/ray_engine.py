"""Manager and workers on Ray, which places them on a cluster's machines and restarts dead ones.

The manager is a named actor that outlives the trainer: a resumed trainer finds it again, and a manager that was killed
continues from its journal, on the machine with its folder. Workers end with the trainer that started them. Calls of the
manager go over HTTP, as without Ray: a call of an actor takes about four times the CPU time, and Ray would not repeat
it. The actor only says where its server is. All machines of a Ray cluster trust each other, because they exchange
Python objects.

Only this module imports Ray, after it has set the environment variables that Ray and its processes read.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, Self

from agentgym_flow.dataflow.bookkeeping.manager import open_manager, traced
from agentgym_flow.dataflow.config import NUM_ENVS, FlowConfig
from agentgym_flow.dataflow.local_engine import Crew, CrewWorker, WatchedFlow
from agentgym_flow.dataflow.network.client import HttpFlow, NoAnswer, RemoteFlow, new_token
from agentgym_flow.dataflow.records import Flow
from agentgym_flow.dataflow.scaling import follow
from agentgym_flow.errors import BadSetting, FlowDown, MissingExtra

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
PATIENCE = {
    "RAY_gcs_server_port_wait_time_s": 120,
    "RAY_raylet_start_wait_time_s": 120,
    "RAY_agent_register_timeout_ms": 120_000,
    "RAY_worker_register_timeout_seconds": 300,
}
"""Ray's limits on the start of its processes, raised for slow machines; the user's own settings win."""
for _name, _limit in PATIENCE.items():
    os.environ.setdefault(_name, str(_limit))
try:
    import ray
    from ray.autoscaler.sdk import request_resources
    from ray.exceptions import ActorUnavailableError, RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "ray":
        raise
    raise MissingExtra.of("ray", "dataflow") from None

CONNECT = 10.0
"""Seconds in which the head of a cluster must accept a connection."""

CPU, GPU = "CPU", "GPU"
"""Ray's names of the resources that it detects; machines may have others, given to `ray start`."""

MANAGER = "manager"
"""The name of the manager's actor, in the namespace of the run."""

ANSWER = 60.0
"""Seconds without an answer after which an attempt to find the manager fails."""

SETTINGS = ("lease_seconds", "episode_seconds", "deadline", "trace")
"""Settings of a dataflow that are fixed while the manager's actor lives."""

GROW = 5.0
"""Seconds between two checks for room for more workers."""


def join(address: str | None) -> bool:
    """Connect to a cluster; return whether it was started for this process.

    Raises `BadSetting` if there is no cluster at the address, and `FlowDown` if a new one does not start.
    """
    if ray.is_initialized():
        return False
    if address is not None:
        check_reachable(address)
    own = address is None and "RAY_ADDRESS" not in os.environ
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address="local", include_dashboard=False, **quiet) if own else ray.init(address=address, **quiet)
    except Exception as error:  # Ray raises `Exception` itself if a process does not start in time
        if own:
            limits = ", ".join(f"{name}={os.environ[name]}" for name in PATIENCE)
            raise FlowDown(
                f"Ray did not start on this machine ({type(error).__name__}: {str(error).strip():.500}). On a slow or "
                "busy machine, try once more (Ray's files are in memory now), raise Ray's limits in the environment "
                f"({limits}; one more is fixed at 30 seconds), or start Ray before the run (ray start --head) and give "
                "--engine ray:auto. --engine local needs no Ray"
            ) from error
        raise BadSetting(f"Ray cannot be joined at {address or os.environ['RAY_ADDRESS']}: {error}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray's handler would end a trainer before its checkpoint
    return own


def check_reachable(address: str) -> None:
    """Raise `BadSetting` if nothing listens at an address with a port; Ray itself would retry for long."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        return  # a word such as `auto`
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT).close()
    except (OSError, OverflowError) as error:
        raise BadSetting(f"there is no Ray cluster at {address} ({error}); start one: ray start --head") from None


def options_of(resources: Mapping[str, float]) -> dict[str, Any]:
    """Return Ray's options of an actor that takes these amounts of resources."""
    others = {name: amount for name, amount in resources.items() if name not in (CPU, GPU)}
    return {"num_cpus": resources.get(CPU, 0), "num_gpus": resources.get(GPU, 0), "resources": others}


def room_for(resources: Mapping[str, float]) -> int:
    """Return how many actors that take these amounts fit into the free resources. Raises `RayError`."""
    free = ray.available_resources()  # type: ignore[no-untyped-call]
    return min((int(free.get(name, 0) // amount) for name, amount in resources.items() if amount), default=0)


class ManagerActor:
    """The manager in its actor, which serves it to all machines of the cluster."""

    def __init__(self, folder: str, config: dict[str, Any], token: str) -> None:
        from agentgym_flow.dataflow.network.server import serving

        settings = FlowConfig(**config)
        manager = traced(open_manager(Path(folder), settings), Path(folder), settings)
        host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        self._serving = serving(manager, token, host=host)
        self._about = self._serving.__enter__(), token, _settings(folder, settings)

    def about(self) -> tuple[str, str, dict[str, Any]]:
        """Return the address and the token of the manager, and its folder and settings."""
        return self._about

    def pid(self) -> int:
        """Return the id of the process."""
        return os.getpid()


class RayFlow(RemoteFlow):
    """Implements `agentgym_flow.dataflow.records.Flow` by calls at the address that the manager's actor gives.

    Thread-safe. A restarted actor has another address, so it is asked again after an attempt without an answer.

    Args:
        manager: the handle of the actor.
        deadline: seconds for which a call is retried.
    """

    def __init__(self, manager: Any, *, deadline: float = 600.0) -> None:
        super().__init__("the manager's actor on Ray", deadline=deadline)
        self._manager = manager
        self._http: HttpFlow | None = None

    def settings(self) -> dict[str, Any]:
        """Return the folder and the settings of the manager."""
        answer: dict[str, Any] = self._call("settings", {})
        return answer

    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        http = self._http
        if http is None or name == "settings":
            address, token, settings = self._about()
            http = self._http = HttpFlow(address, token)
            if name == "settings":
                return settings
        try:
            return http._attempt(name, arguments)
        except NoAnswer:
            self._http = None
            http.close()
            raise

    def _about(self) -> tuple[str, str, dict[str, Any]]:
        try:
            found: tuple[str, str, dict[str, Any]] = ray.get(self._manager.about.remote(), timeout=ANSWER)
        except RayTaskError as error:  # the manager did not start
            raise NoAnswer(f"{type(error.cause).__name__}: {error.cause}") from None
        except RayError as error:  # it is dead, restarting, or does not answer
            raise NoAnswer(f"{type(error).__name__}: {str(error).strip().splitlines()[0]:.200}") from None
        return found


def manager_of(folder: Path, config: FlowConfig, namespace: str) -> Any:
    """Return the actor of a run's manager: the existing one, or a new one on this machine.

    Args:
        folder: of the journal and the weights, absolute.
        config: the settings of the dataflow.
        namespace: of the run.

    Raises:
        BadSetting: the existing one has another folder or other settings.
        FlowDown: it does not start.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(ManagerActor).options(
        name=MANAGER,
        namespace=namespace,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        max_task_retries=0,
        num_cpus=0,
        scheduling_strategy=here,
    )
    manager = actor.remote(str(folder), asdict(config), new_token())
    wanted = _settings(str(folder), config)
    for name, there in RayFlow(manager, deadline=config.deadline).settings().items():
        if there != wanted[name]:
            raise BadSetting(
                f"the manager of this run was started with {name}={there!r}, and now {name} is {wanted[name]!r}: give "
                f"the same settings, or end it first: ray.kill(ray.get_actor({MANAGER!r}, {namespace!r}))"
            )
    return manager


def _settings(folder: str, config: FlowConfig) -> dict[str, Any]:
    return {"folder": folder, **{name: getattr(config, name) for name in SETTINGS}}


class Service(Protocol):
    """A rollout worker, such as `agentgym_flow.dataflow.rollout.RolloutService`."""

    def run(self) -> None:
        """Play until `stop` is called."""

    def stop(self) -> None:
        """Make `run` end soon."""


Services = Callable[[Flow, str, Mapping[str, Any]], Service]
"""Returns a worker for a manager, a name and options. Must be a function in an importable module."""


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
        """Make `run` end soon."""
        self._work.stop()

    def pid(self) -> int:
        """Return the id of the process."""
        return os.getpid()


def rollout_service(flow: Flow, name: str, options: Mapping[str, Any]) -> Service:
    """Return a `RolloutService`; `options` are its keyword arguments."""
    from agentgym_flow.dataflow.rollout import RolloutService

    return RolloutService(flow, name=name, **options)


class RayEngine:
    """The manager and workers of a run on a Ray cluster.

    Args:
        folder: where the manager keeps its journal and weights, on this machine.
        config: the settings of the dataflow.
        address: of the cluster, as for `ray.init`; None: the cluster of this process, or a new one here.
        namespace: of the run; a resumed run must give the same.
        service: returns a worker.
        options: arguments of `service`.
        generators: workers take them in turn, as `RolloutService.generator`; empty for those of the runs.

    Attributes:
        flow: the manager for the trainer.
        crew: the workers.

    Raises:
        BadSetting: there is no cluster at the address, or the run's manager has other settings.
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
        generators: Sequence[str] = (),
    ) -> None:
        self._started = join(address)
        self._config, self._service, self._generators = config, service, generators
        usual: dict[str, Any] = {"num_envs": config.num_envs or NUM_ENVS, "versions": config.versions, "stay": True}
        usual["deadline"] = config.deadline
        self._options = dict(usual if options is None else options)
        self._closing = threading.Event()
        self._growing: threading.Thread | None = None
        self.manager = manager_of(folder.resolve(), config, namespace)
        self.crew = Crew(self._hire)
        self.flow: Flow = WatchedFlow(RayFlow(self.manager, deadline=config.deadline), self.crew.check, 0.0)
        self.flow.status()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(end_manager=kind is None)

    def start(self, workers: int | Mapping[str, int] | None) -> None:
        """Start `workers` workers, which wait for room; None: as many as fit, also on machines that join later.

        With a `min` and a `max`, a cluster with an autoscaler is asked for room for as many as are needed.
        """
        if isinstance(workers, int):
            self.crew.start(workers)
            return
        if workers is not None:
            bounds = workers["min"], workers["max"]
            self._growing = follow(self.flow, self.crew, bounds, self._closing, self._request)
            return
        self._growing = threading.Thread(target=self._grow, name="flow-growing", daemon=True)
        self._growing.start()

    def close(self, *, end_manager: bool = True) -> None:
        """End the workers, the manager if `end_manager`, and the cluster if this engine started it.

        The manager's journal stays, so another manager can continue.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        if self._growing is not None:
            self._growing.join()
        if isinstance(self._config.workers, dict):
            self._request(0)
        self.crew.close()
        if end_manager:
            with contextlib.suppress(RayError):
                ray.kill(self.manager, no_restart=True)
        if self._started:
            ray.shutdown()

    def _request(self, workers: int) -> None:
        """Ask the cluster's autoscaler for room for so many workers; without one, nothing happens."""
        with contextlib.suppress(RayError):
            request_resources(bundles=[dict(self._config.resources)] * workers)

    def _hire(self, number: int) -> CrewWorker:
        actor = ray.remote(WorkerActor).options(
            max_restarts=-1, max_task_retries=0, max_concurrency=3, **options_of(self._config.resources)
        )
        options = dict(self._options)
        if self._generators:
            options["generator"] = self._generators[number % len(self._generators)]
        handle = actor.remote(self.manager, f"ray-{number}", self._service, options, self._config.deadline)
        return _Actor(handle)

    def _grow(self) -> None:
        while not self._closing.is_set() and not self.crew.given_up:  # if workers cannot start, do not add more
            with contextlib.suppress(RayError):
                self.crew.start(room_for(self._config.resources))
            self._closing.wait(GROW)


class _Actor:
    """A worker's actor. It survives the end of its process, because Ray restarts it."""

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
        except ActorUnavailableError:  # Ray restarts its process; until then `run` fails
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
