"""Manager and workers of a run as actors of a Ray cluster, whose processes are killed from outside."""

from __future__ import annotations

import os
import random
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from _supervised import environment, last_status

from agentgym_flow.errors import FlowDown


class OnRay:
    """A cluster on this machine in which the trainer starts the manager and the workers.

    Args:
        folder: the folder of the trainer's output.
        settings: the file of the dataflow's settings.
        run: the folder of the run.
        workers: the maximal number of workers.
    """

    def __init__(self, folder: Path, settings: Path, *, run: Path, workers: int) -> None:
        self._folder, self._settings, self._run, self._room = folder, settings, run, workers
        self._flow: Any = None

    def start(self) -> None:
        os.environ["RAY_AUTH_MODE"] = "disabled"  # else Ray writes a token to the home directory
        os.environ |= environment()
        from agentgym_flow.dataflow import ray_engine  # noqa: F401  sets what Ray reads when it is imported

        import ray  # isort: skip

        self._ray = ray
        ray.init(
            address="local",
            num_cpus=self._room,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=100 << 20,
        )
        self._address = ray.get_runtime_context().gcs_address

    def trainer_options(self) -> list[str]:
        return ["--engine", f"ray:{self._address}"]

    def trainer_environment(self) -> dict[str, str]:
        return {}

    def look(self) -> dict[str, Any] | None:
        from agentgym_flow.dataflow.ray_engine import MANAGER, RayFlow

        if self._flow is None:
            found = [one for one in self._ray.util.list_named_actors(all_namespaces=True) if one["name"] == MANAGER]
            if not found:
                return None
            self._flow = RayFlow(self._ray.get_actor(**found[0]), deadline=0.5)
        try:
            status: dict[str, Any] = self._flow.status()
        except FlowDown:
            return None
        return status

    def kill_worker(self, chance: random.Random, status: dict[str, Any]) -> bool:
        return (pid := self._playing(chance, status)) is not None and _signal(pid, signal.SIGKILL)

    def stall_worker(self, chance: random.Random, status: dict[str, Any], seconds: float) -> bool:
        pid = self._playing(chance, status)
        if pid is None or not _signal(pid, signal.SIGSTOP):
            return False
        threading.Timer(seconds, _signal, (pid, signal.SIGCONT)).start()
        return True

    def kill_manager(self) -> bool:
        return any(_signal(pid, signal.SIGKILL) for pid in self._actors("ManagerActor"))

    def close(self) -> dict[str, Any]:
        for pid in self._actors("WorkerActor"):
            _signal(pid, signal.SIGCONT)
        self._ray.shutdown()
        return last_status(self._run / "dataflow", self._settings)

    def _playing(self, chance: random.Random, status: dict[str, Any]) -> int | None:
        """Return the process of a worker that has committed episodes, if some are leased."""
        if not any(stream["states"]["leased"] for stream in status["streams"].values()):
            return None
        heard = {name for name, one in status["workers"].items() if one.get("accepted") and one["silent"] < 3}
        there = [pid for pid in self._actors("WorkerActor") if any(f"-{pid}" in name for name in heard)]
        return chance.choice(there) if there else None

    def _actors(self, kind: str) -> list[int]:
        """Return the processes of this cluster that are actors of a class: grandchildren of this one."""
        found, parents = [], {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if (folder / "cmdline").read_bytes().startswith(f"ray::{kind}".encode()):
                    found.append(int(folder.name))
        return sorted(pid for pid in found if parents.get(parents[pid]) == os.getpid())


def _signal(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return whether the process existed."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False
