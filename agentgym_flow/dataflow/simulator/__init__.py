"""Simulate a dataflow in virtual time: the duration of N updates, wasted episodes, and the load of the manager.

The bookkeeping is that of a real run: the same `Ledger` plans, leases, accepts episodes and expires leases. Episodes
and training are only durations. Nothing is learnt, so the results show the speed of a dataflow, not the quality of its
policies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from agentgym_flow.core import stable_hash
from agentgym_flow.dataflow.bookkeeping.entries import LedgerEntry
from agentgym_flow.dataflow.bookkeeping.ledger import READY
from agentgym_flow.dataflow.bookkeeping.progress import PublishedWeights
from agentgym_flow.dataflow.records import Slot
from agentgym_flow.dataflow.simulator.scenario import OVERLAP, Scenario, SimulationResult
from agentgym_flow.dataflow.simulator.virtual import Pool, Record, World


def simulate(scenario: Scenario, seed: int = 0, record: Record | None = None) -> SimulationResult:
    """Simulate a dataflow; equal arguments give equal results. An episode takes the same time in every mode.

    Args:
        scenario: what to simulate.
        seed: of the durations and the deaths.
        record: called with each event of the run.

    Raises `NoWorkers` if all workers have left, or died without a restart.
    """
    return _Simulation(World(scenario, seed, record)).run()


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


class _Simulation:
    """The trainers of one simulation."""

    def __init__(self, world: World) -> None:
        scenario = world.scenario
        self._world, self._ledger, self._scenario = world, world.ledger, scenario
        self._pool = Pool(world, self._commits)
        policies = zip(scenario.policies, scenario.train_seconds, strict=True)
        self._trainers = {policy: _Trainer(policy, seconds) for policy, seconds in policies}
        self._planned = 0  # groups
        self._committed: Counter[tuple[int, int]] = Counter()  # by batch and group
        self._batches: Counter[int] = Counter()
        self._device_free = 0.0
        self._staleness: Counter[int] = Counter()
        self._trained_on, self._seconds_trained = 0, 0.0
        self._digests: dict[tuple[str, int], str] = {}  # of batches: which slots, played by which updates

    def run(self) -> SimulationResult:
        """Run until every policy has finished its updates."""
        for policy in self._trainers:
            self._take(policy)
        self._pool.start()
        self._world.run(lambda: all(t.batch == self._scenario.updates for t in self._trainers.values()))
        return self._outcome()

    # ---------------------------------------------------------------- trainers
    def _take(self, policy: str) -> None:
        """Publish the weights, plan batches and wait for the next one, as `LeasedGroups.take` does."""
        trainer, batch = self._trainers[policy], self._trainers[policy].batch
        if batch == self._scenario.updates:
            return self._world.note("done", policy=policy)
        self._ledger.publish(policy, PublishedWeights(version=batch + 1, update=batch, step=batch))
        self._ledger.keep(policy, batch)
        self._world.call(3)  # publish, keep, arrivals
        size = round(self._scenario.transfer(batch or None, batch + 1))
        self._world.note("publish", policy=policy, update=batch, version=batch + 1, step=batch, bytes=size)
        trainer.waits = self._world.now
        self._plan()
        self._train(trainer)
        self._pool.wake()

    def _plan(self) -> None:
        """Admit the groups that may be played now, counted from the batch of the slowest policy."""
        groups, trainers, bound = self._scenario.groups, self._trainers.values(), self._scenario.bound
        if self._scenario.mode == OVERLAP:  # the next batch, as soon as training on one begins
            target = min(t.batch + (t.waits is None) + 1 for t in trainers) * groups
        else:
            ahead = min(t.batch for t in trainers) + bound + 1
            ahead = min(ahead, self._scenario.updates) if self._scenario.ends else ahead
            target = ahead * groups + max(t.stale for t in trainers)
        slots: list[Slot] = []
        for number in range(self._planned, target):
            batch, group = divmod(number, groups)
            slots += (Slot(batch, group, sample, number, number) for sample in range(self._scenario.size))
        if slots:
            self._planned = target
            self._ledger.admit(slots)
            self._world.call()
            self._world.note("admit", stream="main", slots=len(slots))
            self._world.sample(now=True)

    def _train(self, trainer: _Trainer) -> None:
        """Begin to train if the batch is complete."""
        if trainer.waits is None:
            return
        if not (chosen := self._choose_ready(trainer) if self._scenario.mode == READY else self._choose_fixed(trainer)):
            return
        self._account(trainer, chosen)
        trainer.waited += self._world.now - trainer.waits
        trainer.waits = None
        seconds = trainer.seconds * self._world.times.training(trainer.policy, trainer.batch)
        trainer.busy += seconds
        queue = max(0.0, self._device_free - self._world.now) if self._scenario.one_device else 0.0
        self._device_free = self._world.now + queue + seconds
        if queue:
            self._world.after(queue, self._begin, trainer)
        self._world.after(queue + seconds, self._trained, trainer)
        if self._scenario.mode == OVERLAP:
            self._plan()
            self._pool.wake()

    def _begin(self, trainer: _Trainer) -> None:
        self._world.note("train", policy=trainer.policy, batch=trainer.batch)

    def _trained(self, trainer: _Trainer) -> None:
        trainer.batch += 1
        if not self._scenario.lockstep:
            self._take(trainer.policy)
        elif all(other.batch >= trainer.batch for other in self._trainers.values()):
            for policy in self._trainers:
                self._take(policy)

    def _choose_fixed(self, trainer: _Trainer) -> list[LedgerEntry]:
        if self._batches[trainer.batch] < self._scenario.groups * self._scenario.size:
            return []
        arrived = self._ledger.arrived(trainer.policy, 0)
        return [entry for entry in arrived if entry.slot.batch == trainer.batch]

    def _choose_ready(self, trainer: _Trainer) -> list[LedgerEntry]:
        """Return the groups that were complete first and are fresh enough; drop stale ones."""
        if trainer.complete < self._scenario.groups:
            return []
        by_group: dict[tuple[int, int], list[LedgerEntry]] = {}
        for entry in self._ledger.arrived(trainer.policy, 0):
            by_group.setdefault(entry.slot.id[:2], []).append(entry)
        complete = sorted((g for g in by_group.values() if len(g) == self._scenario.size), key=lambda g: g[-1].number)
        stale = [max(_age(trainer, entry) for entry in g) > self._scenario.staleness for g in complete]
        if any(stale):
            dropped = [entry.played for g, old in zip(complete, stale, strict=True) if old for entry in g]
            self._ledger.ack(trainer.policy, trainer.batch, [], dropped)
            trainer.dropped += len(dropped)
            trainer.stale += sum(stale)
            trainer.complete -= sum(stale)
            self._plan()
            self._pool.wake()
        fresh = [g for g, old in zip(complete, stale, strict=True) if not old][: self._scenario.groups]
        if len(fresh) < self._scenario.groups:
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
        self._world.call()
        self._staleness += ages
        self._trained_on += len(trained)
        self._seconds_trained += sum(self._world.times.of(entry.slot) for entry in trained)
        weights = [sorted(self._ledger.entries[slot].weights.items()) for slot in ids]
        self._digests[trainer.policy, trainer.batch] = stable_hash([ids, weights])
        counted = {
            "trained": len(ids),
            "dropped": len(lost),
            "staleness": {str(age): ages[age] for age in sorted(ages)},
            "complete": self._world.now,
        }
        self._world.note("ack", policy=trainer.policy, stream="main", batch=trainer.batch, **counted)
        self._world.sample(now=True)

    def _commits(self, slots: Sequence[Slot]) -> None:
        """Count committed slots, and start trainers whose batch is complete."""
        for slot in slots:
            self._committed[slot.id[:2]] += 1
            self._batches[slot.batch] += 1
            if self._committed[slot.id[:2]] == self._scenario.size:
                for trainer in self._trainers.values():
                    trainer.complete += 1
        if slots:
            self._world.sample()
            for trainer in self._trainers.values():
                self._train(trainer)

    # ---------------------------------------------------------------- results
    def _outcome(self) -> SimulationResult:
        self._pool.close()
        self._world.sample(now=True)
        total, pool, trainers = self._world.now, self._pool, self._trainers.values()
        calls = self._world.calls.total() + int(pool.lived / (self._scenario.lease_seconds / 3))  # with renewals
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
            length=self._seconds_trained / self._trained_on / self._world.times.mean(self._scenario.updates),
            crossed=pool.crossed,
            kills=pool.kills,
            calls=calls,
            calls_per_second=calls / total,
            busiest_second=max(self._world.calls.values()),
            composition=stable_hash(sorted(self._digests.items())),
        )


def _age(trainer: _Trainer, entry: LedgerEntry) -> int:
    """Return by how many updates the weights that played an episode are older than the trainer's."""
    return trainer.batch - (entry.weights[trainer.policy] - 1)
