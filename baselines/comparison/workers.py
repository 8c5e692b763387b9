"""Run cells in this process, or several in parallel in worker processes that live as long as the comparison.

A run depends only on its settings, so parallel runs change nothing but the time.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from agentgym_flow._util.signals import signals_go_to
from agentgym_flow.errors import TrainingFailed
from baselines.comparison.execute import run
from baselines.comparison.outcome import Outcome
from baselines.comparison.plan import Cell, Plan

Job = tuple[Plan, Cell, Path, float]
"""The arguments of `execute.run`."""

_GRACE = 5.0  # seconds for a terminated process to record that its run was interrupted


class Runner(Protocol):
    """Runs jobs in any order and yields outcomes as they finish; exceptions of a run propagate."""

    def __call__(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run `jobs`."""
        ...


def _here(jobs: Sequence[Job]) -> Iterator[Outcome]:
    for job in jobs:
        yield run(*job)


@contextmanager
def runner(processes: int) -> Iterator[Runner]:
    """Yield a runner of `processes` parallel jobs, in this process if it is one. Workers end with the block."""
    if processes == 1:
        yield _here
        return
    workers = _Workers(processes)
    try:
        yield workers.map
    finally:
        workers.stop()


class _Workers:
    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")  # a forked copy of torch and its threads may hang
        self._processes: dict[Any, Any] = {}
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._processes[ours] = process

    def map(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Keep all workers busy with jobs; yield outcomes as they finish."""
        waiting, busy, idle = list(reversed(jobs)), dict[Any, Cell](), list(self._processes)
        while waiting or busy:
            while waiting and idle:
                connection, job = idle.pop(), waiting.pop()
                connection.send(job)
                busy[connection] = job[1]
            for connection in wait(list(busy)):
                cell = busy.pop(connection)
                idle.append(connection)
                yield self._received(connection, cell)

    def _received(self, connection: Any, cell: Cell) -> Outcome:
        try:
            answer = connection.recv()
        except EOFError:
            raise TrainingFailed(
                f"the process that ran {cell.folder} died, perhaps for lack of memory: lower --jobs"
            ) from None
        if isinstance(answer, Outcome):
            return answer
        raise answer

    def stop(self) -> None:
        """Stop the processes; running jobs are lost, and their folders say that they are not finished."""
        with signals_go_to(signal.SIG_IGN):  # a second signal must not leave one of them behind
            for process in self._processes.values():
                process.terminate()
            until = time.monotonic() + _GRACE
            for connection, process in self._processes.items():
                process.join(max(0.0, until - time.monotonic()))
                process.kill()
                process.join()
                connection.close()


def _work(connection: Connection[Any, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all processes; the main one handles it
    while True:
        try:
            job: Job = connection.recv()
        except EOFError:  # the parent has gone
            return
        try:
            connection.send(run(*job))
        except KeyboardInterrupt:  # SIGTERM
            return
        except Exception as error:  # raised again in the main process
            connection.send(error)
