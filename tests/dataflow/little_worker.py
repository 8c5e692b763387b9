"""A rollout worker that plays nothing: it commits a sentence for every lease."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Sequence

from agentgym_flow.cli.dataflow import follow_trainer
from agentgym_flow.dataflow.network.client import HttpFlow, read_token
from agentgym_flow.dataflow.records import Commit, Flow, Lease, LeaseKey


def held(lease: Lease) -> LeaseKey:
    return LeaseKey(lease.stream, lease.slot.id, lease.attempt)


def played(lease: Lease) -> Commit:
    return Commit(held(lease), f"{lease.slot} with {lease.weights} \N{SNOWMAN}".encode(), lease.digests)


class LittleWorker:
    """Has `run` and `stop` as `RolloutService`; each episode takes `seconds`."""

    def __init__(self, flow: Flow, name: str, seconds: float = 0.0) -> None:
        self.flow, self.name, self.seconds = flow, name, seconds
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.is_set():
            for lease in self.flow.lease(self.name, 1, 0.2):
                if self._stopped.wait(self.seconds):
                    self.flow.fail(self.name, held(lease), "the worker is leaving")
                else:
                    self.flow.commit(self.name, [played(lease)])

    def stop(self) -> None:
        self._stopped.set()


def play(options: Sequence[str]) -> None:
    """Run a little worker with options of `agentgym-flow worker`, and `--seconds`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--join")
    parser.add_argument("--name")
    parser.add_argument("--seconds", type=float, default=0.0)
    given = parser.parse_args(options)
    flow = HttpFlow(given.join, read_token())
    worker = LittleWorker(flow, given.name, given.seconds)

    def leave(*_: object) -> None:
        flow.deadline = 1.0  # as the real one: a manager that is gone is not waited for
        worker.stop()

    signal.signal(signal.SIGTERM, leave)
    threading.Thread(target=follow_trainer, daemon=True).start()
    worker.run()
