"""Who was heard of when: nobody waits for ever for those who are dead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from agentgym_flow.dataflow.bookkeeping.entries import SlotState
from agentgym_flow.dataflow.bookkeeping.ledger import Ledger
from agentgym_flow.dataflow.bookkeeping.workers import WorkerRegistry
from agentgym_flow.errors import FlowDown, NoWorkers


class Silence:
    """How long trainers and workers have been silent.

    Args:
        deadline: seconds of silence after which a trainer, or all workers together, are taken for dead.
        clock: the seconds of a clock that never goes back.
        workers: the workers.
    """

    def __init__(self, deadline: float, clock: Callable[[], float], workers: WorkerRegistry) -> None:
        self._deadline, self._clock, self._workers = deadline, clock, workers
        self._trainers: dict[str, float] = {}
        self._asked: dict[str, float] = {}  # when a stream's trainers last gave workers something to do

    def begin(self, stream: str, policies: Iterable[str]) -> None:
        """Expect the trainers of a stream from now on."""
        self.heard_of_trainer(stream)
        self._trainers.update(dict.fromkeys(policies, self._clock()))

    def finish(self, policy: str) -> None:
        """Expect nothing more of the trainer of a policy."""
        self._trainers.pop(policy, None)

    def heard_of_trainer(self, stream: str | None = None, policy: str | None = None) -> None:
        """Note that the trainer of a policy has called, or one of a stream has given workers something to do."""
        if stream is not None:
            self._asked[stream] = self._clock()
        if policy is not None:
            self._trainers[policy] = self._clock()

    def of_trainer(self, policy: str) -> float:
        """Return for how many seconds the trainer of a policy has been silent; 0 if nothing is expected of it."""
        return self._clock() - self._trainers.get(policy, self._clock())

    def check_trainers(self) -> None:
        """Raise `FlowDown` if all trainers are silent that need episodes."""
        if not self._trainers:
            return  # one may still be cloning, or all are done
        silent = self._clock() - max(self._trainers.values())
        if silent > self._deadline:
            raise FlowDown(f"no trainer was heard of for {silent:.0f} seconds; start it again, then this worker")

    def check_progress(self, stream: str, ledger: Ledger) -> None:
        """Raise `NoWorkers` or `FlowDown` if there are slots to play, and those who are silent are needed for it."""
        states = ledger.slots.states()
        if not states[SlotState.QUEUED] + states[SlotState.LEASED]:
            return
        silent = self._clock() - max(self._asked[stream], self._workers.last_heard())
        if silent > self._deadline:
            aside = self._workers.last_words()
            raise NoWorkers(
                f"no rollout worker was heard of for {silent:.0f} seconds; start one: agentgym-flow worker --join URL"
                + (f" ({aside:.500})" if aside else "")
            )
        gone = None if states[SlotState.LEASED] else ledger.needs_what_is_gone()
        if gone is not None:
            raise FlowDown(
                f"{gone}: the episode was refused after the trainer had gone back; give it the environment and "
                "data of the run, or begin the run again"
            )
        other = None if states[SlotState.LEASED] else ledger.waits_for()
        if other is not None:
            check_trainer(other, self.of_trainer(other), other in ledger.progress.finished, self._deadline)


def check_trainer(policy: str, silent: float, finished: bool, deadline: float) -> None:
    """Raise `FlowDown` if new weights of a policy are needed, and its trainer has finished or is dead."""
    if finished:
        raise FlowDown(
            f"the next episodes need new weights of {policy}, whose trainer has finished: give all trainers of the "
            "stream as many batches"
        )
    if silent > deadline:
        raise FlowDown(
            f"the next episodes need new weights of {policy}, whose trainer was not heard of for {silent:.0f} seconds; "
            "start it again, then this one"
        )


def figures_of(ledger: Ledger, silence: Silence) -> dict[str, Any]:
    """Return figures of a stream, as plain data.

    These are the slots in each of the `states`, how often what happened (`counts`), and for each of the `policies`:
    which trainer speaks for it (`epoch`), how many batches it has acknowledged (`done`), the batch of its last
    checkpoint (`kept`), what it published last (`newest`; None before), how many of its episodes were played with
    weights how many updates old (`ages`), whether it needs no more episodes (`finished`), and for how many seconds it
    has been `silent`.
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
            "silent": silence.of_trainer(policy),
        }
    return {"states": ledger.slots.states(), "counts": dict(ledger.counts), "policies": policies}
