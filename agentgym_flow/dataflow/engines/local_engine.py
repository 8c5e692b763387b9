"""Workers on the trainer's machine: processes that connect over the loopback interface.

They are forked from a process that has imported what they need, because importing PyTorch and Transformers takes much
of a worker's memory, and several CPU-seconds. It is `multiprocessing`'s fork server.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.context import ForkServerContext
from typing import Any, Self

from agentgym_flow.dataflow.engines.crew import Crew, CrewWorker
from agentgym_flow.dataflow.network import tokens
from agentgym_flow.dataflow.network.remote import RemoteFlow
from agentgym_flow.dataflow.records import Flow

LAST_LINES = 15
"""Lines of a dead process's output that are shown."""

PRELOADED = ("agentgym_flow.cli.app", "agentgym_flow.dataflow.rollout.service")
"""Modules that every worker needs. The fork server also imports the models that this process has imported."""

Program = Callable[[Sequence[str]], object]
"""Runs a worker with these options of `agentgym-flow worker`; a function that can be imported."""

_LAST_BYTES = 8192


def worker_command(options: Sequence[str]) -> None:
    """Run `agentgym-flow worker` with these options in this process, and exit with its status."""
    sys.argv = ["agentgym-flow", "worker", *options]
    runpy.run_module("agentgym_flow", run_name="__main__")


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

    A script that uses this engine needs `if __name__ == "__main__":`, as everything that `multiprocessing` starts.

    Args:
        manager: the manager, in this process.
        options: of `agentgym-flow worker`.
        program: what a worker runs.
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
        program: Program = worker_command,
        deadline: float = 600.0,
        **crew: Any,
    ) -> None:
        self._manager, self._program, self._options = manager, program, options
        self._context = multiprocessing.get_context("forkserver")
        if program is worker_command:
            models = [name for name in sys.modules if name.startswith("transformers.models.")]
            self._context.set_forkserver_preload([*PRELOADED, *models])
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
        options = [*self._options, "--join", self._url, "--name", f"process-{number}"]
        return _Process(self._context, self._program, options, {**os.environ, tokens.VARIABLE: self._token})


class _Process:
    def __init__(
        self, context: ForkServerContext, program: Program, options: Sequence[str], environment: dict[str, str]
    ) -> None:
        self._said = tempfile.NamedTemporaryFile()  # noqa: SIM115  closed by `end`
        self._process = context.Process(target=_run, args=(program, options, environment, self._said.name))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def ended(self) -> str | None:
        status = self._process.exitcode
        return None if status is None else f"status {status}; {self._last_lines()}"

    def leave(self) -> None:
        self._process.terminate()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # by its number, as it lives on if the fork server was killed
            os.kill(self.pid, signal.SIGKILL)
        self._process.join()
        self._said.close()

    def _last_lines(self) -> str:
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - _LAST_BYTES))
        lines = self._said.read().decode("utf-8", "replace").strip().splitlines()[-LAST_LINES:]
        return "\n".join(lines) if lines else "it wrote nothing"


def _run(program: Program, options: Sequence[str], environment: dict[str, str], errors: str) -> None:
    # In a session of its own, so that Ctrl-C in a terminal reaches only the trainer, which then ends its workers.
    os.setsid()
    for stream, path, flags in ((1, os.devnull, os.O_WRONLY), (2, errors, os.O_WRONLY | os.O_APPEND)):
        os.dup2(os.open(path, flags), stream)
    os.environ.clear()  # it was the fork server's
    os.environ.update(environment)
    program(options)
