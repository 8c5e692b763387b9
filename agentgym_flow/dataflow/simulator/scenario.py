"""Arguments and results of `simulate`: workers, regions, times, the composition of batches, and figures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from agentgym_flow.core import Stream, check_integer, check_positive
from agentgym_flow.dataflow.records import Slot
from agentgym_flow.errors import BadSetting, UnknownName, UnknownOption

SYNCHRONOUS, OVERLAP = "synchronous", "overlap"
MODES = (SYNCHRONOUS, OVERLAP, "fixed", "ready")
"""How rollout and training alternate.

`synchronous`: batch n is played after training on batch n - 1.
`overlap`: batch n + 1 is played while batch n is trained on, and begins when batch n is complete.
`fixed`, `ready`: the orders of `agentgym_flow.dataflow.bookkeeping.ledger`, with a staleness.
"""

CHANGES = ("join", "leave", "kill")
GIGABYTES = {"full": 28.0, "delta": 1.5, "lora": 0.05}
"""The size of an update of a model of 14 billion parameters, as measured by AstraFlow, and of an adapter."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Region:
    """Rollout workers in one place.

    Attributes:
        name: its name.
        workers: how many there are at the start.
        slots: how many episodes a worker plays at the same time.
        speed: durations of episodes are divided by this.
        gbit: gigabits per second of the link to the trainer, shared by all workers of the region; None: the trainer is
            in the same place, and weights arrive at once.
        delay: seconds of a round trip over the link.
        relay: weights cross the link once for all workers; otherwise each worker fetches its own copy.
    """

    name: str
    workers: int
    slots: int = 1
    speed: float = 1.0
    gbit: float | None = None
    delay: float = 0.0
    relay: bool = True

    def __post_init__(self) -> None:
        check_integer("workers", self.workers, 0)
        check_positive("slots", self.slots)
        if not (self.speed > 0 and self.delay >= 0 and (self.gbit is None or self.gbit > 0)):
            raise BadSetting(f"region {self.name!r}: speed and gbit must be above 0, and delay must not be negative")


class WorkerChange(NamedTuple):
    """After `at` seconds, workers of a region `join`, `leave` when they have finished, or die (`kill`)."""

    at: float
    kind: str
    workers: int
    region: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """One dataflow to simulate.

    Attributes:
        mode: one of `MODES`.
        staleness: by how many updates the weights that play a batch may be older than those that it trains; only for
            `fixed` and `ready`.
        updates: batches that each policy trains on.
        groups: tasks of a batch.
        size: episodes of a task.
        median: seconds of an episode at speed 1.
        sigma: of the lognormal distribution of these seconds; 0: all take the same time.
        train_seconds: the median seconds of training on a batch, for each policy.
        train_sigma: of the lognormal distribution of training times.
        one_device: the policies train one after the other, on one device.
        lockstep: no policy trains on batch n + 1 before all have trained on batch n.
        regions: the regions with the workers.
        versions: how many versions of each policy's weights a worker can hold at once. With one, it finishes all its
            episodes before it fetches newer weights.
        turns: equal turns of an episode, between which it goes on with newer weights (`partial_rollouts`, only for
            `ready`); 1: it keeps the weights that it began with.
        weights: what is sent at an update: `full`, `delta` or `lora`.
        gigabytes: of an update; None: see `GIGABYTES`.
        full_gigabytes: of all weights, which a worker or relay without any fetches first, except for `lora`.
        lease_seconds: how long a lease is valid. Workers renew it three times in this time.
        changes: workers that join, leave or die.
        hours_to_death: mean hours until a worker dies by itself; infinite: never.
        restart: seconds until such a worker is back.

    Raises:
        UnknownOption, UnknownName: there is no such mode, kind of weights, change or region.
        BadSetting: a number is out of range.
    """

    mode: str = "fixed"
    staleness: int = 4
    updates: int = 100
    groups: int = 16
    size: int = 8
    median: float = 30.0
    sigma: float = 0.8
    train_seconds: tuple[float, ...] = (60.0,)
    train_sigma: float = 0.0
    one_device: bool = False
    lockstep: bool = False
    regions: tuple[Region, ...] = (Region("local", 64),)
    versions: int = 2
    turns: int = 1
    weights: str = "delta"
    gigabytes: float | None = None
    full_gigabytes: float = 28.0
    lease_seconds: float = 60.0
    changes: tuple[WorkerChange, ...] = ()
    hours_to_death: float = math.inf
    restart: float = 30.0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UnknownOption.among(self.mode, MODES)
        if self.weights not in GIGABYTES:
            raise UnknownOption.among(self.weights, GIGABYTES)
        check_integer("staleness", self.staleness, 0)
        for name in ("updates", "groups", "size", "versions", "turns"):
            check_positive(name, getattr(self, name))
        if self.turns > 1 and self.mode != "ready":
            raise BadSetting(f"turns: only in ready order episodes go on with newer weights, and not in {self.mode}")
        check_positive("the number of policies", len(self.train_seconds))
        check_positive("the number of regions", len(self.regions))
        for name, values in (("median", (self.median,)), ("train_seconds", self.train_seconds)):
            if not all(0 < value < math.inf for value in values):
                raise BadSetting(f"{name} must be seconds above 0, got {values}")
        for name in ("sigma", "train_sigma", "restart", "full_gigabytes", "gigabytes"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise BadSetting(f"{name} must not be negative, got {value}")
        if not (self.lease_seconds > 0 and self.hours_to_death > 0):
            raise BadSetting("lease_seconds and hours_to_death must be above 0")
        self._check_regions()

    def _check_regions(self) -> None:
        names = [region.name for region in self.regions]
        if len(set(names)) < len(names):
            raise BadSetting(f"two regions have the same name: {', '.join(names)}")
        for change in self.changes:
            if change.region not in names:
                raise UnknownName.among(change.region, names)
            if change.kind not in CHANGES:
                raise UnknownOption.among(change.kind, CHANGES)
            if change.at < 0 or change.workers < 1:
                raise BadSetting(f"a change needs a time and a number of workers, got {change.at} and {change.workers}")

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of the policies."""
        return tuple(f"policy {number}" for number in range(len(self.train_seconds)))

    @property
    def bound(self) -> int:
        """The staleness that the mode allows."""
        return {SYNCHRONOUS: 0, OVERLAP: 1}.get(self.mode, self.staleness)

    @property
    def name(self) -> str:
        """The mode as shown in tables, such as `fixed S=4`."""
        return self.mode if self.mode in (SYNCHRONOUS, OVERLAP) else f"{self.mode} S={self.staleness}"

    def transfer(self, have: int | None, version: int) -> float:
        """Return the bytes that bring `version` of the weights to a receiver that has version `have`, or none."""
        full = 1e9 * self.full_gigabytes
        update = 1e9 * (GIGABYTES[self.weights] if self.gigabytes is None else self.gigabytes)
        if self.weights == "lora":
            return update  # a whole adapter
        if self.weights == "full" or have is None:
            return full
        return min(full, update * max(1, abs(version - have)))


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of a simulation.

    Attributes:
        hours: virtual hours until every policy has finished its updates.
        played: episodes that were committed.
        trained: episodes in the batches, for each policy.
        dropped: episodes that were too stale for a policy, summed over policies.
        repeated: leases that expired because their worker died; the episodes were played again.
        unused: episodes that were committed, but not used, at the end.
        staleness: a histogram of how many updates older the weights were that played the trained episodes.
        worker_use: the share of the workers' capacity that was used.
        trainer_use: the share of the time in which a trainer worked, mean over policies.
        wait: the share of the time in which a trainer waited for episodes, mean over policies.
        length: the mean seconds of the trained episodes divided by those of all episodes planned for these updates.
            Below 1, long episodes are underrepresented.
        crossed: for each region, bytes of weights that crossed its link.
        kills: how often a worker died.
        calls: calls of workers and trainers to the manager.
        calls_per_second: their mean over the run.
        busiest_second: the most calls in one second, without renewals of leases.
        composition: SHA-256 of the slots of each batch and the updates that played them.
    """

    hours: float
    played: int
    trained: int
    dropped: int
    repeated: int
    unused: int
    staleness: dict[int, int]
    worker_use: float
    trainer_use: float
    wait: float
    length: float
    crossed: dict[str, float]
    kills: int
    calls: int
    calls_per_second: float
    busiest_second: int
    composition: str


class Times:
    """The durations of episodes and training, which depend only on the seed, so they are equal in all modes."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario, self._seed = scenario, seed
        self._episodes: dict[int, list[float]] = {}

    def of(self, slot: Slot) -> float:
        """Return the seconds of an episode at speed 1, the same for every attempt."""
        return self._batch(slot.batch)[slot.group * self._scenario.size + slot.sample]

    def mean(self, batches: int) -> float:
        """Return the mean seconds of the episodes that are planned for the first `batches` batches."""
        return sum(sum(self._batch(batch)) for batch in range(batches)) / batches / len(self._batch(0))

    def training(self, policy: str, batch: int) -> float:
        """Return the seconds of training on a batch, divided by their median."""
        sigma = self._scenario.train_sigma
        return math.exp(sigma * _normal(Stream("simulate", self._seed, "train", policy, batch)))

    def _batch(self, batch: int) -> list[float]:
        if batch not in self._episodes:
            scenario, stream = self._scenario, Stream("simulate", self._seed, "episodes", batch)
            count = scenario.groups * scenario.size
            drawn = [scenario.median * math.exp(scenario.sigma * _normal(stream)) for _ in range(count)]
            self._episodes[batch] = drawn
        return self._episodes[batch]


def _normal(stream: Stream) -> float:
    return _NORMAL.inv_cdf(stream.uniform() + 2**-54)  # never 0
