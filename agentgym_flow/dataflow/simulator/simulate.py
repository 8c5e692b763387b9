"""Simulate a dataflow in virtual time: the duration of N updates, wasted episodes, and the load of the manager.

The bookkeeping is that of a real run: the same `Ledger` plans, leases, accepts episodes and expires leases. Episodes
and training are only durations. Nothing is learnt, so the results show the speed of a dataflow, not the quality of its
policies.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym_flow.core import stable_hash
from agentgym_flow.dataflow.bookkeeping.entries import LedgerEntry, SlotState
from agentgym_flow.dataflow.bookkeeping.ledger import FIXED, READY, Ledger
from agentgym_flow.dataflow.bookkeeping.progress import PublishedWeights
from agentgym_flow.dataflow.records import CommitVerdict, Slot
from agentgym_flow.dataflow.simulator.scenario import OVERLAP, RunningLease, Scenario, SimulationResult, Times
from agentgym_flow.dataflow.simulator.virtual import Clock, Pool

Record = Callable[[dict[str, Any]], None]
"""Is called with each event of a run; `agentgym_flow.dataflow.trace` describes events."""

_TICK = 1.0  # seconds between two checks for expired leases
_SAMPLES = 400  # the states of the ledger are recorded whenever the time has grown by this fraction of itself


def simulate(scenario: Scenario, seed: int = 0, record: Record | None = None) -> SimulationResult:
    """Simulate a dataflow; equal arguments give equal results. An episode takes the same time in every mode.

    Args:
        scenario: what to simulate.
        seed: of the durations and the deaths.
        record: called with each event of the run.

    Raises `NoWorkers` if all workers have left, or died without a restart.
    """
    return Simulation(scenario, seed, record).run()


@dataclass(slots=True)
class _Trainer:
    """The trainer of a policy.

    It trains on `batch`, or waits for it since `waits`. `complete` groups are ready for it; it has dropped `stale`.
    """

    policy: str
    seconds: float
    batch: int = 0
    waits: float | None = None
    waited: float = 0.0
    busy: float = 0.0
    complete: int = 0
    stale: int = 0
    dropped: int = 0


class Simulation:
    """The manager and the trainers of one simulation."""

    def __init__(self, scenario: Scenario, seed: int, record: Record | None) -> None:
        self.scenario, self._seed, self._record = scenario, seed, record
        self._clock = Clock()
        self._ready = scenario.mode == READY
        self._ledger = Ledger(scenario.policies, order=READY if self._ready else FIXED, staleness=scenario.bound)
        self._pool = Pool(self._clock, self, scenario, seed)
        policies = zip(scenario.policies, scenario.train_seconds, strict=True)
        self._trainers = {policy: _Trainer(policy, seconds) for policy, seconds in policies}
        self._planned = 0  # groups
        self._times = Times(scenario, seed)
        self._committed: Counter[tuple[int, int]] = Counter()  # by batch and group
        self._batches: Counter[int] = Counter()
        self._expiries: set[float] = set()
        self._device_free = 0.0
        self._calls: Counter[int] = Counter()
        self._staleness: Counter[int] = Counter()
        self._trained_on, self._seconds_trained = 0, 0.0
        self._digests: dict[tuple[str, int], str] = {}  # of batches: which slots, played by which updates
        self._sampled = 0.0

    def run(self) -> SimulationResult:
        """Run until every policy has finished its updates."""
        for policy in self._trainers:
            self._take(policy)
        self._pool.start()
        self._clock.run(lambda: all(t.batch == self.scenario.updates for t in self._trainers.values()))
        return self._outcome()

    # ---------------------------------------------------------------- trainers
    def _take(self, policy: str) -> None:
        """Publish the weights, plan batches and wait for the next one, as `LeasedGroups.take` does."""
        trainer, batch = self._trainers[policy], self._trainers[policy].batch
        if batch == self.scenario.updates:
            return self.note("done", policy=policy)
        self._ledger.publish(policy, PublishedWeights(version=batch + 1, update=batch, step=batch))
        self._ledger.keep(policy, batch)
        self._calls[int(self._clock.now)] += 3  # publish, keep, arrivals
        size = round(self.scenario.transfer(batch or None, batch + 1))
        self.note("publish", policy=policy, update=batch, version=batch + 1, step=batch, bytes=size)
        trainer.waits = self._clock.now
        self._plan()
        self._train(trainer)
        self._pool.wake()

    def _plan(self) -> None:
        """Admit the groups that may be played now, counted from the batch of the slowest policy."""
        groups, trainers, bound = self.scenario.groups, self._trainers.values(), self.scenario.bound
        if self.scenario.mode == OVERLAP:  # the next batch, as soon as training on one begins
            target = min(t.batch + (t.waits is None) + 1 for t in trainers) * groups
        else:
            target = min(t.batch + bound + 1 for t in trainers) * groups + max(t.stale for t in trainers)
        slots: list[Slot] = []
        for number in range(self._planned, target):
            batch, group = divmod(number, groups)
            slots += (Slot(batch, group, sample, number, number) for sample in range(self.scenario.size))
        if slots:
            self._planned = target
            self._ledger.admit(slots)
            self._calls[int(self._clock.now)] += 1
            self.note("admit", stream="main", slots=len(slots))
            self._sample(now=True)

    def _train(self, trainer: _Trainer) -> None:
        """Begin to train if the batch is complete."""
        if trainer.waits is None:
            return
        if not (chosen := self._choose_ready(trainer) if self._ready else self._choose_fixed(trainer)):
            return
        self._account(trainer, chosen)
        trainer.waited += self._clock.now - trainer.waits
        trainer.waits = None
        seconds = trainer.seconds * self._times.training(trainer.policy, trainer.batch)
        trainer.busy += seconds
        queue = max(0.0, self._device_free - self._clock.now) if self.scenario.one_device else 0.0
        self._device_free = self._clock.now + queue + seconds
        if queue:
            self._clock.after(queue, self._begin, trainer)
        self._clock.after(queue + seconds, self._trained, trainer)
        if self.scenario.mode == OVERLAP:
            self._plan()
            self._pool.wake()

    def _begin(self, trainer: _Trainer) -> None:
        self.note("train", policy=trainer.policy, batch=trainer.batch)

    def _trained(self, trainer: _Trainer) -> None:
        trainer.batch += 1
        if not self.scenario.lockstep:
            self._take(trainer.policy)
        elif all(other.batch >= trainer.batch for other in self._trainers.values()):
            for policy in self._trainers:
                self._take(policy)

    def _choose_fixed(self, trainer: _Trainer) -> list[LedgerEntry]:
        if self._batches[trainer.batch] < self.scenario.groups * self.scenario.size:
            return []
        arrived = self._ledger.arrived(trainer.policy, 0)
        return [entry for entry in arrived if entry.slot.batch == trainer.batch]

    def _choose_ready(self, trainer: _Trainer) -> list[LedgerEntry]:
        """Return the groups that were complete first and are fresh enough; drop stale ones."""
        if trainer.complete < self.scenario.groups:
            return []
        by_group: dict[tuple[int, int], list[LedgerEntry]] = {}
        for entry in self._ledger.arrived(trainer.policy, 0):
            by_group.setdefault(entry.slot.id[:2], []).append(entry)
        whole = sorted((g for g in by_group.values() if len(g) == self.scenario.size), key=lambda g: g[-1].number)
        stale = [max(_age(trainer, entry) for entry in g) > self.scenario.staleness for g in whole]
        if any(stale):
            dropped = [entry.played for g, old in zip(whole, stale, strict=True) if old for entry in g]
            self._ledger.ack(trainer.policy, trainer.batch, [], dropped)
            trainer.dropped += len(dropped)
            trainer.stale += sum(stale)
            trainer.complete -= sum(stale)
            self._plan()
            self._pool.wake()
        fresh = [g for g, old in zip(whole, stale, strict=True) if not old][: self.scenario.groups]
        if len(fresh) < self.scenario.groups:
            return []
        trainer.complete -= len(fresh)
        return [entry for g in fresh for entry in g]

    def _account(self, trainer: _Trainer, chosen: list[LedgerEntry]) -> None:
        """Acknowledge a batch, and count its episodes."""
        lost, trained = [one.played for one in chosen if not one.digest], [one for one in chosen if one.digest]
        ids = sorted(entry.slot.id for entry in trained)
        ages = Counter(_age(trainer, entry) for entry in trained)
        trainer.dropped += len(lost)
        self._ledger.ack(trainer.policy, trainer.batch, [one.played for one in trained], lost)
        self._calls[int(self._clock.now)] += 1
        self._staleness += ages
        self._trained_on += len(trained)
        self._seconds_trained += sum(self.seconds(entry.slot) for entry in trained)
        weights = [sorted(self._ledger.entries[slot].weights.items()) for slot in ids]
        self._digests[trainer.policy, trainer.batch] = stable_hash([ids, weights])
        counted = {
            "trained": len(ids),
            "dropped": len(lost),
            "staleness": {str(age): ages[age] for age in sorted(ages)},
        }
        self.note("ack", policy=trainer.policy, stream="main", batch=trainer.batch, **counted)
        self._sample(now=True)

    # ---------------------------------------------------------------- workers
    def lease(self, worker: str, count: int) -> list[RunningLease]:
        """Return up to `count` leases."""
        now = self._clock.now
        self._calls[int(now)] += 1
        # Renewals are not simulated: a lease of a living worker never ends, see `lose`.
        entries = self._ledger.lease(worker, count, math.inf)
        plays = [RunningLease(entry.slot, entry.attempt, entry.weights, now) for entry in entries]
        if plays:
            self.note("lease", worker=worker, stream="main", slots=[[*play.slot.id, play.attempt] for play in plays])
            self._sample()
        return plays

    def commit(self, worker: str, play: RunningLease) -> None:
        """Commit an episode."""
        self._calls[int(self._clock.now)] += 1
        verdict = self._ledger.commit(play.slot.id, play.attempt, "played")
        slots = [[*play.slot.id, play.attempt]]
        self.note("commit", worker=worker, stream="main", slots=slots, verdicts=[verdict.value])
        if verdict is CommitVerdict.ACCEPTED:
            self._commits([play.slot])

    def lose(self, plays: Sequence[RunningLease]) -> None:
        """Let the leases of a worker that died expire, counted from their last renewal."""
        valid = self.scenario.lease_seconds
        for play in plays:
            renewed = play.since + (self._clock.now - play.since) // (valid / 3) * (valid / 3)
            self._ledger.renew(play.slot.id, play.attempt, renewed + valid)
            tick = (math.floor((renewed + valid) / _TICK) + 1) * _TICK
            if tick not in self._expiries:
                self._expiries.add(tick)
                self._clock.after(tick - self._clock.now, self._expire, tick)

    def _expire(self, tick: float) -> None:
        self._expiries.remove(tick)
        ended = [entry for entry, _ in self._ledger.expire(tick)]
        if ended:
            self.note("ended", stream="main", why="expired", slots=[[*one.slot.id, one.attempt] for one in ended])
            self._commits([entry.slot for entry in ended if entry.state is SlotState.COMMITTED])  # those that are lost
            self._pool.wake()

    def _commits(self, slots: Sequence[Slot]) -> None:
        """Count committed slots, and start trainers whose batch is complete."""
        for slot in slots:
            self._committed[slot.id[:2]] += 1
            self._batches[slot.batch] += 1
            if self._committed[slot.id[:2]] == self.scenario.size:
                for trainer in self._trainers.values():
                    trainer.complete += 1
        if slots:
            self._sample()
            for trainer in self._trainers.values():
                self._train(trainer)

    def seconds(self, slot: Slot) -> float:
        """Return how long an episode takes at speed 1."""
        return self._times.of(slot)

    # ---------------------------------------------------------------- results
    def note(self, what: str, **fields: Any) -> None:
        """Record an event."""
        if self._record is not None:
            self._record({"at": self._clock.now, "what": what, **fields})

    def _sample(self, *, now: bool = False) -> None:
        """Record the states of the ledger, but not at every call, because this takes time."""
        if self._record is not None and (now or self._clock.now >= self._sampled + max(1.0, self._sampled / _SAMPLES)):
            self._sampled = self._clock.now
            self.note("states", stream="main", states=self._ledger.slots.states())

    def _outcome(self) -> SimulationResult:
        self._pool.close()
        self._sample(now=True)
        total, pool, trainers = self._clock.now, self._pool, self._trainers.values()
        calls = self._calls.total() + int(pool.lived / (self.scenario.lease_seconds / 3))  # with renewals
        return SimulationResult(
            hours=total / 3600,
            played=self._ledger.counts["committed"],
            trained=self._trained_on // len(trainers),
            dropped=sum(trainer.dropped for trainer in trainers),
            repeated=self._ledger.counts["expired"],
            unused=self._ledger.slots.states()["committed"],
            staleness=dict(sorted(self._staleness.items())),
            worker_use=pool.busy / pool.available,
            trainer_use=sum(trainer.busy for trainer in trainers) / (total * len(trainers)),
            wait=sum(trainer.waited for trainer in trainers) / (total * len(trainers)),
            length=self._seconds_trained / self._trained_on / self._times.mean(self.scenario.updates),
            crossed=pool.crossed,
            kills=pool.kills,
            calls=calls,
            calls_per_second=calls / total,
            busiest_second=max(self._calls.values()),
            composition=stable_hash(sorted(self._digests.items())),
        )


def _age(trainer: _Trainer, entry: LedgerEntry) -> int:
    """Return by how many updates the weights that played an episode are older than the trainer's."""
    return trainer.batch - (entry.weights[trainer.policy] - 1)
