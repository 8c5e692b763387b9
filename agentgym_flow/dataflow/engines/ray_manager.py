"""The manager as a named actor on Ray, and its client.

The actor outlives the trainer: a resumed trainer finds it again, and a manager that was killed continues from its
journal, on the machine with its folder. Ray does not retry calls; `RayFlow` does, because every call of a manager can
be repeated.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.engines.hosting import open_manager, traced
from agentgym_flow.dataflow.engines.ray_cluster import NodeAffinitySchedulingStrategy, RayError, RayTaskError, ray
from agentgym_flow.dataflow.network.remote import NoAnswer, RemoteFlow
from agentgym_flow.dataflow.network.serving import Switchboard
from agentgym_flow.errors import AgentGymFlowError, BadSetting

MANAGER = "manager"
"""The name of the manager's actor, in the namespace of the run."""

ANSWER = 60.0
"""Seconds without an answer after which an attempt fails, in addition to those that the call waits."""

CALLS = 10_000
"""The most calls that the manager has under way; waiting ones need no thread, see `serving`."""

SETTINGS = ("lease_seconds", "episode_seconds", "deadline", "trace")
"""Settings of a dataflow that are fixed while the manager's actor lives."""


class ManagerActor:
    """The manager in its actor; `Switchboard` keeps waiting calls from blocking the others."""

    def __init__(self, folder: str, config: dict[str, Any]) -> None:
        self._switchboard: Switchboard | None = None
        settings = FlowConfig(**config)
        self._settings = _settings(folder, settings)
        self._manager = traced(open_manager(Path(folder), settings), Path(folder), settings)

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Return the answer of a call, or the error that the manager raised."""
        if name == "settings":
            return self._settings
        if self._switchboard is None:  # it needs the running event loop
            self._switchboard = Switchboard(self._manager)
        try:
            return await self._switchboard.call(name, arguments)
        except AgentGymFlowError as error:
            return error  # Ray would wrap a raised error

    async def pid(self) -> int:
        """Return the id of the process."""
        return os.getpid()


class RayFlow(RemoteFlow):
    """Implements `agentgym_flow.dataflow.records.Flow` by calls of the manager's actor. Thread-safe.

    Args:
        manager: the handle of the actor.
        deadline: seconds for which a call is retried.
    """

    def __init__(self, manager: Any, *, deadline: float = 600.0) -> None:
        super().__init__("the manager's actor on Ray", deadline=deadline)
        self._manager = manager

    def settings(self) -> dict[str, Any]:
        """Return the folder and the settings of the manager."""
        answer: dict[str, Any] = self._call("settings", {})
        return answer

    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        call = self._manager.call.remote(name, arguments)
        try:
            answer = ray.get(call, timeout=ANSWER + arguments.get("wait", 0.0))
        except RayTaskError as error:  # a defect of the manager
            raise NoAnswer(f"{type(error.cause).__name__}: {error.cause}") from None
        except RayError as error:  # it is dead, restarting, or does not answer
            raise NoAnswer(f"{type(error).__name__}: {str(error).strip().splitlines()[0]:.200}") from None
        if isinstance(answer, AgentGymFlowError):
            raise answer
        return answer


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
        max_concurrency=CALLS,
        num_cpus=0,
        scheduling_strategy=here,
    )
    manager = actor.remote(str(folder), asdict(config))
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
