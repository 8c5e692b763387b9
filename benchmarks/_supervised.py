"""Processes that a benchmark starts, kills and restarts: the parts of a dataflow, each in its own process."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from agentgym_flow.dataflow.bookkeeping.manager import hosted
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.network.client import VARIABLE, HttpFlow, read_token, workers_file
from agentgym_flow.errors import FlowDown

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = (sys.executable, "-m", "agentgym_flow")
PATIENCE = 120.0
"""Seconds for a manager to start answering."""


def environment(**more: str) -> dict[str, str]:
    """Return the environment variables of a child: this checkout, one thread each."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **more}


class Child:
    """A process that may be killed and restarted; its output is appended to a file.

    Args:
        name: the name of the file.
        command: the command of the first start.
        log: the folder of the file.
        more: environment variables.

    Attributes:
        again: the command of every restart; by default the same.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[object],
        log: Path,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log / f"{name}.log"
        self._command, self.again = command, command
        self._environment = environment(**(more or {}))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start or restart it."""
        command = [*map(str, self._command if self.process is None else self.again)]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )

    def ended(self) -> int | None:
        """Return its exit status; None while it is running."""
        assert self.process is not None
        return self.process.poll()

    def kill(self) -> None:
        """SIGKILL it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stall(self, seconds: float) -> None:
        """Stop it for some seconds, like a sleeping or swapping machine, then let it continue."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        threading.Timer(seconds, self.process.send_signal, [signal.SIGCONT]).start()

    def close(self) -> None:
        """Terminate it."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()

    def said(self) -> str:
        """Return the end of its output."""
        return self.log.read_text("utf-8", "replace")[-2000:]


class ChildFailed(RuntimeError):
    """A process ended with a status other than 0."""


def finish(*children: Child) -> None:
    """Run processes to their end. If one fails, the others are terminated and `ChildFailed` is raised."""
    for child in children:
        child.start()
    try:
        while any((status := child.ended()) is None for child in children):
            if any(child.ended() for child in children):
                break
            time.sleep(0.1)
        for child in children:
            if status := child.ended():
                raise ChildFailed(f"{child.log} ended with status {status}: {child.said()}")
    finally:
        for child in children:
            child.close()


class Parts(Protocol):
    """The manager and the workers of a run."""

    def start(self) -> None:
        """Start everything except the trainer."""

    def trainer_options(self) -> list[str]:
        """Return the options of the trainer for connecting."""

    def trainer_environment(self) -> dict[str, str]:
        """Return the environment variables of the trainer."""

    def look(self) -> dict[str, Any] | None:
        """Restart what has ended; return the manager's status, None while it does not answer."""

    def kill_worker(self, chance: random.Random, status: dict[str, Any]) -> bool:
        """SIGKILL a playing worker; return whether there was one."""

    def stall_worker(self, chance: random.Random, status: dict[str, Any], seconds: float) -> bool:
        """Stop a playing worker for some seconds; return whether there was one."""

    def kill_manager(self) -> bool:
        """SIGKILL the manager; return whether it was running."""

    def close(self) -> dict[str, Any]:
        """Stop everything; return the last status."""


class OverHttp:
    """A manager by `agentgym-flow dataflow serve`, and workers by `agentgym-flow worker`.

    Args:
        folder: the folder of manager, token and outputs.
        settings: the file of the dataflow's settings.
        workers: the number of workers.
        num_envs: environments of each worker.
    """

    def __init__(self, folder: Path, settings: Path, *, workers: int, num_envs: int) -> None:
        self._folder, self._settings = folder, settings
        self._token = folder / "token"
        self._count, self._envs = workers, num_envs
        self._flow: HttpFlow | None = None
        self._workers: list[Child] = []
        self._stalled: dict[Child, float] = {}  # until when

    def start(self) -> None:
        self._manager = Child("manager", self._serve(0), self._folder)
        self._manager.start()
        end = time.monotonic() + PATIENCE
        while not (found := re.search(r"http://[\d.]+:(\d+)", self._manager.said())):
            if self._manager.ended() is not None or time.monotonic() > end:
                raise SystemExit(f"the manager does not start: {self._manager.said()}")
            time.sleep(0.1)
        self.url = found[0]
        self._manager.again = self._serve(int(found[1]))
        self._flow = HttpFlow(self.url, read_token(self._token), deadline=0.5)
        for number in range(self._count):
            self._workers.append(self._worker(number))
            self._workers[-1].start()

    def _serve(self, port: int) -> list[object]:
        place = [self._folder / "manager", "--settings", self._settings, "--token-file", self._token]
        return [*PROGRAM, "dataflow", "serve", *place, "--port", port]

    def _worker(self, number: int) -> Child:
        join = ["--join", self.url, "--token-file", workers_file(self._token), "--num-envs", self._envs, "--stay"]
        return Child(f"worker-{number}", [*PROGRAM, "worker", *join, "--name", f"w{number}"], self._folder)

    def trainer_options(self) -> list[str]:
        return ["--engine", self.url]

    def trainer_environment(self) -> dict[str, str]:
        return {VARIABLE: read_token(self._token)}

    def look(self) -> dict[str, Any] | None:
        for child in (self._manager, *self._workers):
            if (status := child.ended()) is not None:
                if status != -signal.SIGKILL:
                    raise SystemExit(f"{child.log} ended with status {status}: {child.said()}")
                child.start()
        assert self._flow is not None
        try:
            return self._flow.status()
        except FlowDown:
            return None

    def _playing(self, chance: random.Random, status: dict[str, Any]) -> Child | None:
        """Return a worker that has committed episodes since its start, if some are leased."""
        if not any(stream["states"]["leased"] for stream in status["streams"].values()):
            return None
        there = []
        for child in self._workers:
            names = re.findall(r"worker (\S+) joins", child.said())
            known = status["workers"].get(names[-1] if names else "", {})
            if known.get("accepted") and known["silent"] < 3 and self._stalled.get(child, 0) < time.monotonic():
                there.append(child)
        return chance.choice(there) if there else None

    def kill_worker(self, chance: random.Random, status: dict[str, Any]) -> bool:
        child = self._playing(chance, status)
        if child is not None:
            child.kill()
        return child is not None

    def stall_worker(self, chance: random.Random, status: dict[str, Any], seconds: float) -> bool:
        child = self._playing(chance, status)
        if child is not None:
            self._stalled[child] = time.monotonic() + seconds + 2
            child.stall(seconds)
        return child is not None

    def kill_manager(self) -> bool:
        self._manager.kill()
        return True

    def close(self) -> dict[str, Any]:
        for child in (*self._workers, self._manager):
            child.close()
        if self._flow is not None:
            self._flow.close()
        return last_status(self._folder / "manager", self._settings)


def last_status(folder: Path, settings: Path) -> dict[str, Any]:
    """Return the status of a stopped manager from its journal."""
    with hosted(folder, FlowConfig.read(settings)) as manager:
        return manager.status()
