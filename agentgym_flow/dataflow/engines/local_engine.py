"""Workers on the trainer's machine: processes that join over the loopback interface."""

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
"""So many lines of what a dead process has written are shown."""

_LAST_BYTES = 8192


class WatchedFlow(RemoteFlow):
    """A manager whose trainer hears at once when its engine has no workers any more.

    Args:
        flow: the manager.
        check: raises `NoWorkers` in that case.
    """

    def __init__(self, flow: Flow, check: Callable[[], None]) -> None:
        super().__init__("the manager")
        self._flow, self._check = flow, check

    def _attempt(self, name: str, arguments: dict[str, Any]) -> Any:
        if name == "arrivals":
            self._check()
        return getattr(self._flow, name)(**arguments)


class LocalEngine:
    """Starts workers beside the trainer, replaces those that die, and ends them with it.

    Args:
        manager: the manager, in this process.
        options: of `agentgym-flow worker`, for processes.
        program: what is run in place of `agentgym-flow worker`, with the same options.
        crew: see `agentgym_flow.dataflow.engines.crew.Crew`.

    Attributes:
        flow: the manager as the trainer calls it. Raises `NoWorkers` with the last words of a worker when all have died
            again and again.
        crew: the workers.
    """

    def __init__(
        self,
        manager: Flow,
        *,
        options: Sequence[str] = (),
        program: Sequence[str] = (sys.executable, "-m", "agentgym_flow", "worker"),
        **crew: Any,
    ) -> None:
        self._manager, self._command = manager, [*program, *options]
        self._stack = ExitStack()
        self._url, self._token = "", tokens.new_token()
        self.crew = Crew(self._process, **crew)
        self.flow: Flow = WatchedFlow(manager, self.crew.check)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, workers: int | None) -> None:
        """Start so many workers; they need some seconds to join.

        Raises `MissingExtra` without the extra `serve`.
        """
        assert workers is not None  # `engine_of` has said that only Ray knows
        if not self._url:
            from agentgym_flow.dataflow.network.http_server import serving

            # Nobody gets the first token: the trainer is in this process.
            self._url = self._stack.enter_context(serving(self._manager, tokens.new_token(), self._token))
        self.crew.start(workers)

    def close(self) -> None:
        """End the workers, which give their leases back."""
        self.crew.close()
        self._stack.close()
        self._url = ""

    def _process(self, number: int) -> CrewWorker:
        named = ["--join", self._url, "--parent", str(os.getpid()), "--name", f"process-{number}"]
        return _Process([*self._command, *named], {**os.environ, tokens.VARIABLE: self._token})


class _Process:
    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  closed by `end`
        # A session of its own: Ctrl-C at a terminal reaches the trainer alone, which ends its workers in time.
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
