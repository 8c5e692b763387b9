"""The liveness of trainers and workers, so that no call waits for ever for a dead one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from agentgym_flow.dataflow.bookkeeping.entries import SlotState
from agentgym_flow.dataflow.bookkeeping.ledger import Ledger
from agentgym_flow.dataflow.bookkeeping.progress import behind
from agentgym_flow.dataflow.bookkeeping.workers import WorkerRegistry
from agentgym_flow.errors import FlowDown, NoWorkers


class Liveness:
    """When trainers and workers have called last.

    Args:
        deadline: seconds without a call after which a trainer, or all workers together, count as dead.
        clock: a monotonic clock, in seconds.
        workers: the workers.
    """

    def __init__(self, deadline: float, clock: Callable[[], float], workers: WorkerRegistry) -> None:
        self._deadline, self._clock, self._workers = deadline, clock, workers
        self._trainers: dict[str, float] = {}
        self._asked: dict[str, float] = {}  # when a stream's trainers last gave workers something to do

    def begin(self, stream: str, policies: Iterable[str]) -> None:
        """Expect calls of the trainers of a stream from now on."""
        self.heard_of_trainer(stream)
        self._trainers.update(dict.fromkeys(policies, self._clock()))

    def finish(self, policy: str) -> None:
        """Expect no more calls of the trainer of a policy."""
        self._trainers.pop(policy, None)

    def heard_of_trainer(self, stream: str | None = None, policy: str | None = None) -> None:
        """Note that the trainer of a policy has called, or that one of a stream has given workers something to do."""
        if stream is not None:
            self._asked[stream] = self._clock()
        if policy is not None:
            self._trainers[policy] = self._clock()

    def of_trainer(self, policy: str) -> float:
        """Return the seconds since the last call of a policy's trainer; 0 if no calls are expected."""
        return self._clock() - self._trainers.get(policy, self._clock())

    def check_trainers(self) -> None:
        """Raise `FlowDown` if all trainers that need episodes are silent."""
        if not self._trainers:
            return  # none has begun yet, or all have finished
        silent = self._clock() - max(self._trainers.values())
        if silent > self._deadline:
            raise FlowDown(f"no trainer has called for {silent:.0f} seconds; restart it, then this worker")

    def check_progress(self, stream: str, ledger: Ledger) -> None:
        """Raise `NoWorkers` or `FlowDown` if there are slots to play, and what is needed for it is silent or lost.

        Raises `BadData` if there are none, although a trainer has waited for some for longer than the deadline.
        """
        states = ledger.slots.states()
        if not states[SlotState.QUEUED] + states[SlotState.LEASED]:
            if self._clock() - self._asked[stream] > self._deadline:
                raise behind(
                    f"a trainer of {stream} waits for episodes, and the manager knows none that is to be played"
                )
            return
        silent = self._clock() - max(self._asked[stream], self._workers.last_heard())
        if silent > self._deadline:
            aside = self._workers.last_words()
            raise NoWorkers(
                f"no rollout worker has called for {silent:.0f} seconds; start one: agentgym-flow worker --join URL"
                + (f" ({aside:.500})" if aside else "")
            )
        if states[SlotState.LEASED]:
            return
        if (lost := ledger.lost_weights()) is not None:
            raise FlowDown(
                f"{lost}: the episode was rejected after the trainer had gone back; give it the environment and "
                "data of the run, or begin the run again"
            )
        if (other := ledger.waits_for()) is not None:
            check_trainer(other, self.of_trainer(other), other in ledger.progress.finished, self._deadline)


def check_trainer(policy: str, silent: float, finished: bool, deadline: float) -> None:
    """Raise `FlowDown` because new weights of a policy are needed, if its trainer has finished or is dead."""
    if finished:
        raise FlowDown(
            f"the next episodes need new weights of {policy}, whose trainer has finished: give all trainers of the "
            "stream the same number of batches"
        )
    if silent > deadline:
        raise FlowDown(
            f"the next episodes need new weights of {policy}, whose trainer has not called for {silent:.0f} seconds; "
            "restart it, then this one"
        )


def figures_of(ledger: Ledger, liveness: Liveness) -> dict[str, Any]:
    """Return figures of a stream, as plain data.

    These are the numbers of slots in each of the `states` and of events (`counts`), and for each of the `policies`: how
    many trainers it has had (`epoch`), how many batches it has acknowledged (`done`), the batch of its last checkpoint
    (`kept`), the weights published last (`newest`; None before the first), a histogram of the age, in updates, of the
    weights that played its episodes (`ages`), whether it needs no more episodes (`finished`), and the seconds since its
    last call (`silent`).
    """
    progress, policies = ledger.progress, {}
    for policy in ledger.policies:
        newest = ledger.newest(policy)
        policies[policy] = {
            "epoch": progress.epoch(policy),
            "done": progress.done[policy],
            "kept": progress.kept[policy],
            "newest": None if newest is None else asdict(newest),
            "ages": {str(age): count for age, count in sorted(progress.ages[policy].items()) if count},
            "finished": policy in progress.finished,
            "silent": liveness.of_trainer(policy),
        }
    return {"states": ledger.slots.states(), "counts": dict(ledger.counts), "policies": policies}
