"""Manager and workers on Ray, which places them on a cluster's machines and restarts dead ones.

The manager outlives the trainer, see `ray_manager`; workers end with the trainer that started them. All machines of a
Ray cluster trust each other, because they exchange Python objects.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

from agentgym_flow.dataflow.config import NUM_ENVS, FlowConfig
from agentgym_flow.dataflow.engines.crew import Crew, CrewWorker
from agentgym_flow.dataflow.engines.local_engine import WatchedFlow
from agentgym_flow.dataflow.engines.ray_cluster import (
    ActorUnavailableError,
    RayError,
    RayTaskError,
    join,
    options_of,
    ray,
    room_for,
)
from agentgym_flow.dataflow.engines.ray_manager import RayFlow, manager_of
from agentgym_flow.dataflow.records import Flow

GROW = 5.0
"""Seconds between two checks for room for more workers."""


class Service(Protocol):
    """A rollout worker, such as `agentgym_flow.dataflow.rollout.service.RolloutService`."""

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
    from agentgym_flow.dataflow.rollout.service import RolloutService

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
    ) -> None:
        self._started = join(address)
        self._config, self._service = config, service
        usual = {"num_envs": config.num_envs or NUM_ENVS, "versions": config.versions, "stay": True}
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

    def start(self, workers: int | None) -> None:
        """Start `workers` workers, which wait for room; None: as many as fit, also on machines that join later."""
        if workers is not None:
            self.crew.start(workers)
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
        self.crew.close()
        if end_manager:
            with contextlib.suppress(RayError):
                ray.kill(self.manager, no_restart=True)
        if self._started:
            ray.shutdown()

    def _hire(self, number: int) -> CrewWorker:
        actor = ray.remote(WorkerActor).options(
            max_restarts=-1, max_task_retries=0, max_concurrency=3, **options_of(self._config.resources)
        )
        name = f"ray-{number}"
        handle = actor.remote(self.manager, name, self._service, self._options, self._config.deadline)
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
