"""The manager that trainers and workers call: the slots of all streams, and the liveness of trainers and workers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from agentgym_flow.dataflow.bookkeeping.book import Book
from agentgym_flow.dataflow.bookkeeping.journal import ManagerJournal, needing_space
from agentgym_flow.dataflow.bookkeeping.ledger import Ledger
from agentgym_flow.dataflow.bookkeeping.liveness import figures_of
from agentgym_flow.dataflow.bookkeeping.versions import PublishedWeights
from agentgym_flow.dataflow.bookkeeping.worker_calls import ACTOR, ACTORS, WorkerCalls
from agentgym_flow.dataflow.records import Arrival, Attempt, Claim, Slot
from agentgym_flow.dataflow.weights.store import WeightStore
from agentgym_flow.errors import BadSetting, shown


class Manager(WorkerCalls):
    """Implements `agentgym_flow.dataflow.records.Flow`. Thread-safe.

    With a journal, no answered call is lost when the process ends: a manager with the same journal, and a store that
    still has the weights, continues. Leases are then valid for `lease_seconds` from its start.

    Args:
        lease_seconds: how long a lease is valid, unless it is renewed.
        episode_seconds: how long a lease can be renewed; another worker then plays an episode that hangs.
        deadline: seconds without a call after which a trainer, or all workers together, count as dead.
        journal: where calls are recorded; by default nothing survives this process.
        store: where published weights are kept; by default in memory.
        clock: a monotonic clock, in seconds.

    Raises:
        BadSetting: a number is out of range.
        BadData: the journal is damaged.
    """

    def __init__(
        self,
        *,
        lease_seconds: float = 60.0,
        episode_seconds: float = 3600.0,
        deadline: float = 600.0,
        journal: ManagerJournal | None = None,
        store: WeightStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        settings = {"lease_seconds": lease_seconds, "episode_seconds": episode_seconds, "deadline": deadline}
        for name, seconds in settings.items():
            if not seconds > 0:
                raise BadSetting(f"{name} must be above 0 seconds, got {shown(seconds)}")
        super().__init__(Book(journal), WeightStore() if store is None else store, settings, clock)
        self._publishing = threading.Lock()  # storing weights can take long and must not block other calls
        for stream, ledger in self._book.ledgers.items():
            ledger.slots.renew_all(clock() + lease_seconds, clock() + episode_seconds)
            self._liveness.begin(stream, {*ledger.policies} - ledger.progress.finished)
            self._pace.begin(stream, ledger.policies)
            for policy in ledger.policies:  # the last version may have been stored, but not published
                self._store.prune(policy, ledger.needed(policy))

    # ---------------------------------------------------------------- trainers
    def open(self, stream: str, policy: str, batch: int, setup: dict[str, Any], trainer: str) -> Claim:
        """Begin, or continue from before `batch`; return the claim for all further calls of this trainer.

        `setup` has the stream's `policies`, `order`, `staleness` and `max_attempts`, and what else workers need for it;
        all trainers of a stream give the same. Its `actor` is what workers need for this policy only.

        Raises `BadSetting` if the stream has another setup, or what the batch needs was deleted, `BadData` if batches
        before it are not acknowledged here, so that the journal is damaged, and `Superseded` if another trainer has
        opened the stream since this one did.
        """
        setup = json.loads(json.dumps(setup))
        actor = setup.pop(ACTOR, {})
        with self._book.call(durable=True):
            self._book.check_setup(stream, policy, setup, besides=[ACTORS])
            if stream not in self._book.ledgers:
                settings = {name: setup[name] for name in ("order", "staleness", "max_attempts") if name in setup}
                ledger = Ledger(setup["policies"], **settings)
                ledger.progress.check_done(policy, batch)
                self._book.begin(stream, {**setup, ACTORS: {}}, ledger)
                self._liveness.begin(stream, setup["policies"])
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
        """Publish the weights of an update; return their version. Raises as `Ledger.publish` and the store do."""
        digest = self._store.digest(message)
        with self._publishing:
            with self._book.call():
                ledger = self._book.claimed(claim)
                newest = ledger.newest(claim.policy)
                if newest is not None and (newest.update, newest.step, newest.digest) != (update, step, digest):
                    newest = None
                version = ledger.weights.of[claim.policy].last + 1 if newest is None else newest.version
            with needing_space():
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
        """Plan slots. Raises `BadSetting` if one is known with another task or seed."""
        with self._book.call(durable=True):  # a trainer that goes on does not repeat it
            self._book.claimed(claim).admit(slots)
            self._note(claim, "admit", slots)

    def arrivals(self, claim: Claim, after: int, wait: float = 0.0) -> list[Arrival]:
        """Return episodes that this policy has not used, committed after the one with the number `after`.

        Raises `NoWorkers` if no worker has called for longer than the deadline, `FlowDown` if the next episodes need
        weights of another policy whose trainer has not, and `BadData` if there is no commit with the number `after`.
        """
        stream, policy, _ = claim
        began, end = self._clock(), time.monotonic() + wait
        with self._book.changed:
            while True:
                with self._book.call():
                    ledger = self._book.claimed(claim)
                    self._expire()
                    found = self._book.arrivals(stream, policy, after)
                    self._liveness.heard_of_trainer(policy=policy)
                    if not found:
                        self._liveness.check_progress(stream, ledger)
                if found or not self._book.waited(end):
                    self._pace.wait(policy, self._clock() - began)
                    return found

    def reject(self, claim: Claim, attempt: Attempt, reason: str) -> None:
        """Reject a committed episode; it will be played again."""
        with self._book.call():
            ledger = self._book.claimed(claim)
            if ledger.reject(*attempt, reason):
                self._workers.refuse(ledger.entries[attempt.slot].worker, claim.stream, attempt.slot, reason)
                self._note(claim, "reject", *attempt, reason)

    def ack(self, claim: Claim, batch: int, trained: list[Attempt], dropped: list[Attempt]) -> list[Attempt]:
        """Note that the policy trains on the episodes `trained` for its batch, and drops those in `dropped`.

        Returns those that are void; if there are any, nothing is noted. Raises as `Ledger.ack`.
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
        """Delete what was acknowledged before `batch`. Raises `BadSetting` if an earlier batch is not acknowledged."""
        with self._book.call():
            self._book.drop_payloads(claim.stream, self._book.claimed(claim).keep(claim.policy, batch))
            self._note(claim, "keep", claim.policy, batch)

    def finish(self, claim: Claim) -> None:
        """Note that the trainer needs no more episodes, unless it opens the stream again."""
        with self._book.call(durable=True):
            self._book.claimed(claim).finish(claim.policy)
            self._note(claim, "finish", claim.policy)
            self._liveness.finish(claim.policy)

    def beat(self, claim: Claim) -> None:
        """Note that the trainer is alive."""
        with self._book.call():
            self._book.claimed(claim)
            self._liveness.heard_of_trainer(policy=claim.policy)

    # ---------------------------------------------------------------- anyone
    def status(self) -> dict[str, Any]:
        """Return figures of streams, policies and workers, as plain data.

        These are the manager's `settings`, `figures_of` each stream in `streams`, `WorkerRegistry.figures` in `workers`
        with the bytes of a worker's episodes that some policy has not used yet (`unused`), and `Pace.of` each policy in
        `pace`.
        """
        with self._book.call():
            workers = self._workers.figures()
            for ledger in self._book.ledgers.values():
                for name in workers.keys() & ledger.slots.unused:
                    workers[name]["unused"] = workers[name].get("unused", 0) + ledger.slots.unused[name]
            return {
                "settings": dict(self.settings),
                "streams": {
                    stream: figures_of(ledger, self._liveness) for stream, ledger in self._book.ledgers.items()
                },
                "workers": workers,
                "pace": {name: self._pace.of(name) for one in self._book.ledgers.values() for name in one.policies},
            }

    def close(self) -> None:
        """Close the journal. Every later call raises `FlowDown`."""
        self._book.close()

    # ---------------------------------------------------------------- inside
    def _note(self, claim: Claim, name: str, *args: Any) -> None:
        """Note a call of a trainer."""
        self._book.note(claim.stream, name, *args)
        self._liveness.heard_of_trainer(claim.stream, claim.policy)
        self._book.changed.notify_all()
