"""Who was heard of when: nobody waits for ever for those who are dead."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agentgym_flow.dataflow.bookkeeping.entries import State
from agentgym_flow.dataflow.bookkeeping.ledger import Ledger
from agentgym_flow.errors import FlowDown, NoWorkers


class Silence:
    """How long trainers and workers have been silent.

    Args:
        deadline: seconds of silence after which a trainer, or all workers together, are taken for dead.
        clock: the seconds of a clock that never goes back.
    """

    def __init__(self, deadline: float, clock: Callable[[], float]) -> None:
        self._deadline, self._clock = deadline, clock
        self._trainers: dict[str, float] = {}
        self._workers: dict[str, float] = {}
        self._asked: dict[str, float] = {}  # when a stream's trainers last gave workers something to do

    def begin(self, stream: str, policies: Iterable[str]) -> None:
        """Expect the trainers of a stream from now on."""
        self.heard_of_trainer(stream)
        self._trainers.update(dict.fromkeys(policies, self._clock()))

    def heard_of_worker(self, worker: str) -> None:
        """Note that a worker has called."""
        self._workers[worker] = self._clock()

    def heard_of_trainer(self, stream: str | None = None, policy: str | None = None) -> None:
        """Note that the trainer of a policy has called, or one of a stream has given workers something to do."""
        if stream is not None:
            self._asked[stream] = self._clock()
        if policy is not None:
            self._trainers[policy] = self._clock()

    def of_trainer(self, policy: str) -> float:
        """Return for how many seconds the trainer of a policy has been silent."""
        return self._clock() - self._trainers[policy]

    def of_workers(self) -> dict[str, float]:
        """Return for how many seconds each worker has been silent."""
        return {worker: self._clock() - heard for worker, heard in self._workers.items()}

    def check_trainers(self) -> None:
        """Raise `FlowDown` if all trainers are silent."""
        if not self._trainers:
            return  # one may still be cloning
        silent = self._clock() - max(self._trainers.values())
        if silent > self._deadline:
            raise FlowDown(f"no trainer was heard of for {silent:.0f} seconds; start it again, then this worker")

    def check_progress(self, stream: str, ledger: Ledger) -> None:
        """Raise `NoWorkers` or `FlowDown` if there are slots to play, and those who are silent are needed for it."""
        states = ledger.slots.states()
        if not states[State.QUEUED] + states[State.LEASED]:
            return
        silent = self._clock() - max([self._asked[stream], *self._workers.values()])
        if silent > self._deadline:
            raise NoWorkers(
                f"no rollout worker was heard of for {silent:.0f} seconds; start one: agentgym-flow worker --join URL"
            )
        gone = None if states[State.LEASED] else ledger.needs_what_is_gone()
        if gone is not None:
            raise FlowDown(
                f"{gone}: the episode was refused after the trainer had gone back; give it the environment and "
                "data of the run, or begin the run again"
            )
        other = None if states[State.LEASED] else ledger.waits_for()
        if other is not None and self.of_trainer(other) > self._deadline:
            raise FlowDown(
                f"the next episodes need new weights of {other}, whose trainer was not heard of for "
                f"{self.of_trainer(other):.0f} seconds; start it again, then this one"
            )
