"""Workers on the trainer's machine: processes that connect over the loopback interface."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Self

from agentgym_flow.dataflow.engines.crew import Crew, CrewWorker
from agentgym_flow.dataflow.network import tokens
from agentgym_flow.dataflow.network.remote import RemoteFlow
from agentgym_flow.dataflow.records import Flow

LAST_LINES = 15
"""Lines of a dead process's output that are shown."""

_LAST_BYTES = 8192


class WatchedFlow(RemoteFlow):
    """A manager that raises an error in the trainer as soon as its engine has no workers any more.

    Args:
        flow: the manager.
        check: raises `NoWorkers` in this case.
        deadline: seconds for which calls are repeated while the manager's disk is full.
    """

    def __init__(self, flow: Flow, check: Callable[[], None], deadline: float) -> None:
        super().__init__("the manager", deadline=deadline)
        self._flow, self._check = flow, check

    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        if name == "arrivals":
            self._check()
        return getattr(self._flow, name)(**arguments)


class LocalEngine:
    """Starts workers beside the trainer, replaces those that die, and ends them with it.

    Args:
        manager: the manager, in this process.
        options: of `agentgym-flow worker`.
        program: a command to run in place of `agentgym-flow worker`, with the same options.
        deadline: see `WatchedFlow`.
        crew: see `agentgym_flow.dataflow.engines.crew.Crew`.

    Attributes:
        flow: the manager for the trainer. It raises `NoWorkers`, with a worker's last output, if all workers were given
            up.
        crew: the workers.
    """

    def __init__(
        self,
        manager: Flow,
        *,
        options: Sequence[str] = (),
        program: Sequence[str] = (sys.executable, "-m", "agentgym_flow", "worker"),
        deadline: float = 600.0,
        **crew: Any,
    ) -> None:
        self._manager, self._command = manager, [*program, *options]
        self._stack = ExitStack()
        self._url, self._token = "", tokens.new_token()
        self.crew = Crew(self._process, **crew)
        self.flow: Flow = WatchedFlow(manager, self.crew.check, deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, workers: int | None) -> None:
        """Start `workers` workers; they need some seconds to connect.

        Raises `MissingExtra` without the extra `serve`.
        """
        assert workers is not None  # `engine_of` has checked it
        if not self._url:
            from agentgym_flow.dataflow.network.http_server import serving

            # No one gets the first token: the trainer is in this process.
            self._url = self._stack.enter_context(serving(self._manager, tokens.new_token(), self._token))
        self.crew.start(workers)

    def close(self) -> None:
        """End the workers, after they have given their leases back."""
        self.crew.close()
        self._stack.close()
        self._url = ""

    def _process(self, number: int) -> CrewWorker:
        named = ["--join", self._url, "--parent", str(os.getpid()), "--name", f"process-{number}"]
        return _Process([*self._command, *named], {**os.environ, tokens.VARIABLE: self._token})


class _Process:
    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  closed by `end`
        # In a session of its own, so that Ctrl-C in a terminal reaches only the trainer, which then ends its workers.
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def ended(self) -> str | None:
        status = self._process.poll()
        return None if status is None else f"status {status}; {self._last_lines()}"

    def leave(self) -> None:
        self._process.terminate()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._said.close()

    def _last_lines(self) -> str:
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - _LAST_BYTES))
        lines = self._said.read().decode("utf-8", "replace").strip().splitlines()[-LAST_LINES:]
        return "\n".join(lines) if lines else "it wrote nothing"
