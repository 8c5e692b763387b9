"""The manager: what trainers and workers call. It knows every slot of every stream, and who was heard of when."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from agentgym_flow.dataflow.bookkeeping.book import Book
from agentgym_flow.dataflow.bookkeeping.journal import ManagerJournal
from agentgym_flow.dataflow.bookkeeping.ledger import Ledger
from agentgym_flow.dataflow.bookkeeping.silence import figures_of
from agentgym_flow.dataflow.bookkeeping.versions import PublishedWeights
from agentgym_flow.dataflow.bookkeeping.worker_calls import ACTOR, ACTORS, WeightStorage, WorkerCalls
from agentgym_flow.dataflow.records import Arrival, Attempt, Claim, Slot
from agentgym_flow.dataflow.weights.store import WeightStore
from agentgym_flow.errors import BadSetting, shown


class Manager(WorkerCalls):
    """Implements `agentgym_flow.dataflow.records.Flow`. Safe in threads.

    With a journal, nothing that was answered is lost when the process ends: make a manager with the same journal, and
    a store that finds its weights again, and it goes on. Leases are then valid for `lease_seconds` from that moment.

    Args:
        lease_seconds: how long a lease is valid, unless it is renewed.
        episode_seconds: for so long a lease can be renewed, so that an episode that hangs is played by another worker.
        deadline: seconds of silence after which a trainer, or all workers together, are taken for dead.
        journal: what survives this process; by default nothing.
        store: where published weights are; by default in memory.
        clock: the seconds of a clock that never goes back.

    Raises:
        BadSetting: a number is out of its range.
        BadData: the journal is damaged.
    """

    def __init__(
        self,
        *,
        lease_seconds: float = 60.0,
        episode_seconds: float = 3600.0,
        deadline: float = 600.0,
        journal: ManagerJournal | None = None,
        store: WeightStorage | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = {"lease_seconds": lease_seconds, "episode_seconds": episode_seconds, "deadline": deadline}
        for name, seconds in self.settings.items():
            if not seconds > 0:
                raise BadSetting(f"{name} must be above 0 seconds, got {shown(seconds)}")
        super().__init__(Book(journal), WeightStore() if store is None else store, clock=clock, **self.settings)
        self._publishing = threading.Lock()  # storing weights can take long: other calls go on
        for stream, ledger in self._book.ledgers.items():
            ledger.slots.renew_all(clock() + lease_seconds, clock() + episode_seconds)
            self._silence.begin(stream, {*ledger.policies} - ledger.progress.finished)
            self._pace.begin(stream, ledger.policies)
            for policy in ledger.policies:  # also what was stored last, and its version never answered
                self._store.prune(policy, ledger.needed(policy))

    # ---------------------------------------------------------------- trainers
    def open(self, stream: str, policy: str, batch: int, setup: dict[str, Any], trainer: str) -> Claim:
        """Begin, or go on from before `batch`; return what names this trainer in all its calls.

        `setup` has the stream's `policies`, `order`, `staleness` and `max_attempts`, and what else workers need to know
        of it; all trainers of a stream give the same. What only workers need to know of this policy is its `actor`.

        Raises `BadSetting` if the stream has another setup, or what the batch needs is not there any more, and
        `Superseded` if another trainer has done this after the same one.
        """
        setup = json.loads(json.dumps(setup))
        actor = setup.pop(ACTOR, {})
        with self._book.call(durable=True):
            self._book.check_setup(stream, policy, setup, besides=[ACTORS])
            if stream not in self._book.ledgers:
                settings = {name: setup[name] for name in ("order", "staleness", "max_attempts") if name in setup}
                self._book.begin(stream, {**setup, ACTORS: {}}, Ledger(setup["policies"], **settings, first=batch))
                self._silence.begin(stream, setup["policies"])
                self._pace.begin(stream, setup["policies"])
            ledger = self._book.ledger(stream)
            self._book.drop_payloads(stream, ledger.open(policy, batch, trainer))
            claim = Claim(stream, policy, ledger.progress.epoch(policy))
            self._note(claim, "open", policy, batch, trainer)
            actors = self._book.setups[stream][ACTORS]
            if actors.get(policy) != actor:
                self._book.replace_setup(stream, {**setup, ACTORS: {**actors, policy: actor}})
            return claim

    def publish(self, claim: Claim, update: int, step: int, message: bytes) -> int:
        """Publish the weights of an update; return their version. Raises as `Ledger.publish`, and as the store."""
        digest = self._store.digest(message)
        with self._publishing:
            with self._book.call():
                ledger = self._book.claimed(claim)
                newest = ledger.newest(claim.policy)
                if newest is not None and (newest.update, newest.step, newest.digest) != (update, step, digest):
                    newest = None
                version = ledger.weights.of[claim.policy].last + 1 if newest is None else newest.version
            self._store.put(claim.policy, version, message)
            if newest is not None:
                return version
            try:
                with self._book.call(durable=True):
                    published = PublishedWeights(version, update, step, digest, claim.epoch)
                    self._book.drop_payloads(claim.stream, self._book.claimed(claim).publish(claim.policy, published))
                    self._note(claim, "publish", claim.policy, *asdict(published).values())
            finally:
                with self._book.changed:
                    needed = ledger.needed(claim.policy)
                self._store.prune(claim.policy, needed)
            return version

    def admit(self, claim: Claim, slots: list[Slot]) -> None:
        """Plan slots. Raises `BadSetting` if one is there with another task or seed."""
        with self._book.call():
            self._book.claimed(claim).admit(slots)
            self._note(claim, "admit", slots)

    def arrivals(self, claim: Claim, after: int, wait: float = 0.0) -> list[Arrival]:
        """Return episodes that this policy has not trained on, committed after the one with the number `after`.

        Raises `NoWorkers` if no worker was heard of for longer than the deadline, and `FlowDown` if it waits for the
        weights of another policy whose trainer was not.
        """
        stream, policy, _ = claim
        began, end = self._clock(), time.monotonic() + wait
        with self._book.changed:
            while True:
                with self._book.call():
                    ledger = self._book.claimed(claim)
                    self._expire()
                    found = self._book.arrivals(stream, policy, after)
                    self._silence.heard_of_trainer(policy=policy)
                    if not found:
                        self._silence.check_progress(stream, ledger)
                if found or not self._book.waited(end):
                    self._pace.wait(policy, self._clock() - began)
                    return found

    def reject(self, claim: Claim, attempt: Attempt, reason: str) -> None:
        """Refuse a committed episode; it will be played again."""
        with self._book.call():
            ledger = self._book.claimed(claim)
            if ledger.reject(*attempt, reason):
                self._workers.refuse(ledger.entries[attempt.slot].worker, claim.stream, attempt.slot, reason)
                self._note(claim, "reject", *attempt, reason)

    def ack(self, claim: Claim, batch: int, trained: list[Attempt], dropped: list[Attempt]) -> list[Attempt]:
        """Note that the policy makes its batch of the episodes `trained`, and does not want those in `dropped`.

        Returns those that are void: then nothing is noted. Raises as `Ledger.ack`.
        """
        with self._book.call(durable=True):
            ledger = self._book.claimed(claim)
            void = ledger.ack(claim.policy, batch, trained, dropped)
            if not void:
                for worker in {ledger.entries[attempt.slot].worker for attempt in trained}:
                    self._workers.help(worker)
                self._note(claim, "ack", claim.policy, batch, trained, dropped)
                self._pace.use(claim.policy, len(trained) + len(dropped))
            return void

    def keep(self, claim: Claim, batch: int) -> None:
        """Forget what was acknowledged before `batch`. Raises `BadSetting` if something before it was not."""
        with self._book.call():
            self._book.drop_payloads(claim.stream, self._book.claimed(claim).keep(claim.policy, batch))
            self._note(claim, "keep", claim.policy, batch)

    def finish(self, claim: Claim) -> None:
        """Note that the trainer needs no more episodes, unless it opens the stream again."""
        with self._book.call(durable=True):
            self._book.claimed(claim).finish(claim.policy)
            self._note(claim, "finish", claim.policy)
            self._silence.finish(claim.policy)

    def beat(self, claim: Claim) -> None:
        """Note that the trainer is alive."""
        with self._book.call():
            self._book.claimed(claim)
            self._silence.heard_of_trainer(policy=claim.policy)

    # ---------------------------------------------------------------- anyone
    def status(self) -> dict[str, Any]:
        """Return figures of streams, policies and workers, as plain data.

        `settings` has those of the manager, `streams` the `figures_of` each stream, `workers` `WorkerRegistry.figures`,
        and `pace` has `Pace.of` each policy.
        """
        with self._book.call():
            return {
                "settings": dict(self.settings),
                "streams": {stream: figures_of(ledger, self._silence) for stream, ledger in self._book.ledgers.items()},
                "workers": self._workers.figures(),
                "pace": {name: self._pace.of(name) for one in self._book.ledgers.values() for name in one.policies},
            }

    def close(self) -> None:
        """Close the journal. Every later call raises `FlowDown`."""
        self._book.close()

    # ---------------------------------------------------------------- inside
    def _note(self, claim: Claim, name: str, *args: Any) -> None:
        """Note what a trainer did."""
        self._book.note(claim.stream, name, *args)
        self._silence.heard_of_trainer(claim.stream, claim.policy)
        self._book.changed.notify_all()
