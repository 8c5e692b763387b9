"""Engines run the manager and the workers: beside the trainer, on Ray, or behind an address.

`local`           the manager in the trainer's process, workers as processes on this machine; the default
`ray`, `ray:...`  both as actors of a Ray cluster: a new one on this machine, or the one at an address
`http://...`      a running manager (`agentgym-flow dataflow serve`); workers join by themselves
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentgym_flow.dataflow.config import NUM_ENVS, FlowConfig
from agentgym_flow.dataflow.engines.hosting import hosted
from agentgym_flow.dataflow.engines.local_engine import LocalEngine
from agentgym_flow.dataflow.network.http_client import HttpFlow
from agentgym_flow.dataflow.network.tokens import read_token
from agentgym_flow.dataflow.records import Flow
from agentgym_flow.errors import BadSetting, UnknownOption

if TYPE_CHECKING:
    from agentgym_flow.dataflow.engines.ray_engine import RayEngine

LOCAL, RAY, ADDRESSES = "local", "ray", ("http://", "https://")


class Engine(Protocol):
    """A manager, and workers if it starts any."""

    @property
    def flow(self) -> Flow:
        """The manager."""

    def start(self, workers: int | None) -> None:
        """Start `workers` workers; None: as many as there is room for."""

    def close(self) -> None:
        """End the workers, and everything else that was started."""


@contextmanager
def engine_of(name: str, config: FlowConfig, folder: Path) -> Iterator[Engine]:
    """Yield the engine of this name; the caller starts its workers.

    Args:
        name: see above.
        config: the settings of the dataflow.
        folder: where a manager that belongs to the run keeps its journal and weights.

    Raises:
        UnknownOption: there is no such engine.
        BadSetting: another manager has the folder open, or there is no token for an address.
        FlowDown: no manager answers at the address.
        MissingExtra: Ray is not installed.
    """
    if name == LOCAL:
        if config.workers is None:
            raise BadSetting("only a Ray cluster can choose the number of workers: set workers to a number")
        options: list[Any] = ["--num-envs", config.num_envs or NUM_ENVS, "--versions", config.versions]
        options += ["--deadline", config.deadline, "--stay"]  # the engine ends them
        with (
            hosted(folder, config) as manager,
            LocalEngine(manager, options=[*map(str, options)], deadline=config.deadline) as local,
        ):
            yield local
    elif name.startswith(ADDRESSES):
        with closing(RemoteEngine(name, config)) as remote:
            yield remote
    elif name == RAY or name.startswith(f"{RAY}:"):
        with _on_ray(name, config, folder) as cluster:
            yield cluster
    else:
        raise UnknownOption.among(name, (LOCAL, RAY, "http://HOST:PORT"), "engine says where the manager is.")


def _on_ray(name: str, config: FlowConfig, folder: Path) -> RayEngine:
    from agentgym_flow.dataflow.engines.ray_engine import RayEngine

    address = name.removeprefix(RAY).removeprefix(":") or None
    if address is not None and address.startswith("//"):
        address = f"{RAY}:{address}"
    run = hashlib.sha256(str(folder.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    # A resumed run finds its manager by the namespace.
    return RayEngine(folder, config, address=address, namespace=f"agentgym_flow-{run}")


class RemoteEngine:
    """A manager behind an address; its token is in the environment.

    Args:
        url: the address.
        config: the settings of the dataflow.

    Raises:
        BadSetting: the settings ask for workers, which this engine cannot start, or there is no token.
        FlowDown: the manager does not answer.
    """

    def __init__(self, url: str, config: FlowConfig) -> None:
        if config.workers:
            raise BadSetting(
                f"workers of the manager at {url} join by themselves: set workers to 0, and start them with "
                f"agentgym-flow worker --join {url}"
            )
        self.flow = HttpFlow(url, read_token(), deadline=CONNECT)
        self.flow.status()
        self.flow.deadline = config.deadline

    def start(self, workers: int | None) -> None:
        """Do nothing: workers join by themselves."""

    def close(self) -> None:
        """Close the connections."""
        self.flow.close()


CONNECT = 10.0
"""Seconds for the first answer of a manager."""
