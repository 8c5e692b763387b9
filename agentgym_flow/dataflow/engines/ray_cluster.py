"""Join or start a Ray cluster, and find its free resources.

Only this module imports Ray, after it has set the environment variables that Ray and its processes read.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Mapping
from typing import Any

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
    from ray.exceptions import ActorUnavailableError, RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "ray":
        raise
    raise MissingExtra.of("ray", "dataflow") from None

__all__ = [
    "ActorUnavailableError",
    "NodeAffinitySchedulingStrategy",
    "RayError",
    "RayTaskError",
    "check_reachable",
    "join",
    "options_of",
    "ray",
    "room_for",
]

CONNECT = 10.0
"""Seconds in which the head of a cluster must accept a connection."""

CPU, GPU = "CPU", "GPU"
"""Ray's names of the resources that it detects; machines may have others, given to `ray start`."""


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
