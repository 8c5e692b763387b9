"""Who waits, for whom and why: the time of every program of a dataflow by its cause, so that the shares add up to 1.

A trainer works or waits for episodes. A place of a worker, which has one episode at a time, works or is empty. If both
wait at once, both have the same cause: places that may not play ahead wait for what the trainer waits for.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from agentgym_flow.dataflow.bookkeeping.entries import change_counts
from agentgym_flow.dataflow.bookkeeping.ledger import FIXED, Ledger
from agentgym_flow.dataflow.records import Lease

WORKS = "works"
SLOWEST = "slowest episodes"
"""All episodes that a trainer needs are being played."""
FEW = "too few places"
"""Some that it needs are not leased yet, and all places are taken by episodes of its stream, or of other runs:"""
ELSEWHERE = "other runs"
WEIGHTS = "loading weights"
"""Workers have leases, and not their weights: these are on their way, or being loaded into a model."""
POLICY = "another policy"
"""The next episodes need new weights of a policy whose trainer is behind."""
NOBODY = "no worker"
"""No worker is at work: none has started up yet, or all have left."""
BETWEEN = "between calls"
"""A lease, or an episode, is on its way between two programs."""
UPDATE = "trainer's update"
"""All that may be played with the present weights is leased or played, and the trainer works."""
NO_RUN = "no run"
"""No trainer has begun, or all have finished."""
FAILED = "failed here"
"""The worker has just failed the slots that are left."""
SILENT = "trainer silent"
NOTHING = "nothing to do"

TRAINER, PLACES, LOADING, MANAGER = "trainer", "places", "weights", "manager"
_WAITS = (SLOWEST, FEW, ELSEWHERE, WEIGHTS, POLICY, NOBODY, BETWEEN, SILENT)
CAUSES: Mapping[str, tuple[str, ...]] = {
    TRAINER: (WORKS, *_WAITS),
    PLACES: (WORKS, *_WAITS, UPDATE, NO_RUN, FAILED),
    LOADING: (WORKS, NOTHING),
    MANAGER: (WORKS, NOTHING),
}
"""What the time of each program consists of. `weights` work while at least one worker loads some."""

PATIENCE = 15.0
"""Seconds without a call, and without a heartbeat, after which a trainer counts as silent."""

ASKING = 5.0
"""Seconds without a call after which empty places of a worker are not counted: it would have asked."""

MOST_VERSIONS = 64
"""The most versions of weights that are known to be loaded, for each worker."""

Weights = tuple[str, int]
"""A policy and a version of its weights."""


@dataclass
class _Places:
    """The places of a worker since its last call; `loading` has those of its leases whose weights are not loaded."""

    since: float
    heard: float
    held: int = 0
    between: int = 0
    spare: int = 0
    failed: bool = False
    loading: Counter[Weights] = field(default_factory=Counter)
    loaded: dict[Weights, None] = field(default_factory=dict)
    empty: dict[str, float] = field(default_factory=dict)  # as `IdleTimes` had it at that time
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


@dataclass
class _TrainerTime:
    """What a trainer does, since when it trains or waits for a batch, and when it has called last."""

    stream: str
    does: str
    since: float
    heard: float
    settled: float
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


class IdleTimes:
    """The seconds of all programs by cause, since the manager's process began.

    Args:
        clock: a monotonic clock, in seconds.
        lease_seconds: a worker that does not call for this long is gone.
        ledgers: the streams.
    """

    def __init__(self, clock: Callable[[], float], lease_seconds: float, ledgers: Mapping[str, Ledger]) -> None:
        self._clock, self._lease_seconds, self._ledgers = clock, lease_seconds, ledgers
        self._workers: dict[str, _Places] = {}
        self._trainers: dict[str, _TrainerTime] = {}
        self._why = NO_RUN  # the cause of all places that are empty now
        self._empty = dict.fromkeys(CAUSES[PLACES], 0.0)  # seconds for which that was the cause
        self._settled = self._looked = clock()
        self._places: defaultdict[str, float] = defaultdict(float)
        self._loads: defaultdict[str, float] = defaultdict(float)
        # These sums save a search through all workers at each call.
        self._spare = 0  # places that have asked, and got nothing
        self._loading: Counter[Weights] = Counter()
        self._heard = -inf
        self._began, self._answering, self._nothing = time.perf_counter(), 0.0, 0.0

    # ---------------------------------------------------------------- events
    def answered(self, seconds: float) -> None:
        """Note that the manager has worked on a call."""
        self._answering += seconds

    def asked(self, worker: str, leases: Collection[Lease], spare: int) -> None:
        """Note that a worker has got leases, and that `spare` of its places stay empty."""
        places = self._heard_of(worker)
        self._spare += spare - places.spare
        places.between, places.spare, places.failed = 0, spare, False
        weights, missing = None, None
        for lease in leases:
            if lease.weights is not weights:  # many leases share the object
                weights = lease.weights
                missing = next((one for one in weights.items() if one not in places.loaded), None)
            if missing is not None:
                places.loading[missing] += 1
                change_counts(self._loading, (missing,), 1)
        places.held = self._leases(worker)
        if spare:
            self._why = self._why_empty()
            places.failed = self._why == BETWEEN  # there is something to play, but not for this worker
        if leases:
            self._reconsider()

    def called(self, worker: str) -> None:
        """Note a call after which a worker may have fewer leases."""
        places = self._heard_of(worker)
        held = self._leases(worker)
        places.between += max(0, places.held - held)
        places.held = held
        if not held:
            self._forget_loading(places)

    def loaded(self, worker: str, policy: str, version: int) -> None:
        """Note that a worker has loaded weights."""
        places = self._heard_of(worker)
        if not any(policy in ledger.policies for ledger in self._ledgers.values()):
            return  # a text of any length must not be kept
        change_counts(self._loading, ((policy, version),), -places.loading.pop((policy, version), 0))
        places.loaded[policy, version] = None
        if len(places.loaded) > MOST_VERSIONS:
            del places.loaded[next(iter(places.loaded))]
        self._reconsider()

    def trainer(self, stream: str, policy: str, *, waits: bool | None = None) -> None:
        """Note that the trainer of a policy has called: it waits for episodes from now on, or works.

        It works if `waits` is False, because it got episodes, or None, after another call than for episodes.
        """
        now = self._clock()
        one = self._trainers.setdefault(policy, _TrainerTime(stream, WORKS, now, now, now))
        self._settle_trainer(one, now)
        one.heard = now
        if now - self._looked > ASKING:
            self._forget_silent(now)
        does = self._why_waits(self._ledgers[stream], policy) if waits else WORKS
        if waits is None:
            one.since = now
        one.does = does
        self._settle(now)
        self._why = self._why_empty()

    def beat(self, policy: str) -> None:
        """Note that a trainer is alive, and does what it did."""
        if policy in self._trainers:
            one = self._trainers[policy]
            self._settle_trainer(one, self._clock())
            one.heard = one.settled

    def finish(self, policy: str) -> None:
        """Count no more time of a trainer."""
        self.beat(policy)
        if policy in self._trainers:
            self._trainers[policy].does = NOTHING

    # ---------------------------------------------------------------- causes
    def _reconsider(self) -> None:
        """Find out again why trainers wait, because workers have begun something."""
        for policy, one in self._trainers.items():
            if one.does in _WAITS:
                self._settle_trainer(one, self._clock())
                one.does = self._why_waits(self._ledgers[one.stream], policy)

    def _why_waits(self, ledger: Ledger, policy: str) -> str:
        """Return why a trainer waits: what happens to the episodes that it needs next."""
        if self._clock() - self._heard > self._lease_seconds:
            return NOBODY
        batch, entry, leased = ledger.of(policy).done, ledger.slots.first_queued(), ledger.slots.leased_with
        if entry is not None and (ledger.order != FIXED or entry.slot.batch <= batch):
            if ledger.waits_for() is not None:
                return POLICY
            if self._spare:
                return BETWEEN
            return FEW if leased else ELSEWHERE
        weights = ledger.weights_of(batch) if ledger.order == FIXED else None
        needed = [one for one in weights.items() if leased[one]] if weights else [*leased]
        if not needed:
            return BETWEEN
        return WEIGHTS if all(self._loading[one] >= leased[one] for one in needed) else SLOWEST

    def _why_empty(self) -> str:
        """Return why places are empty: what those trainers do that must plan, or publish weights, before they play."""
        running = [ledger for ledger in self._ledgers.values() if not ledger.is_finished]
        if not running:
            return NO_RUN
        blocking = [self._blocking(ledger) for ledger in running]
        if None in blocking:
            return BETWEEN
        does = [self._does(policy) for policy in blocking if policy is not None]
        return UPDATE if WORKS in does else does[0]

    def _does(self, policy: str) -> str:
        """Return what a trainer does, if it is alive."""
        one = self._trainers.get(policy)
        if one is None or one.does == NOTHING or self._clock() - one.heard > PATIENCE:
            return SILENT
        return one.does

    def _blocking(self, ledger: Ledger) -> str | None:
        """Return the policy whose trainer must work before a slot can be leased; None if one can be leased."""
        if ledger.slots.first_queued() is not None:
            return ledger.waits_for()
        unfinished = [policy for policy in ledger.policies if not ledger.of(policy).finished]
        return min(unfinished, key=lambda policy: ledger.of(policy).done)

    # ---------------------------------------------------------------- time
    def _leases(self, worker: str) -> int:
        return sum(len(ledger.slots.held.get(worker, ())) for ledger in self._ledgers.values())

    def _forget_loading(self, places: _Places) -> None:
        for one, count in places.loading.items():
            change_counts(self._loading, (one,), -count)
        places.loading.clear()

    def _forget_silent(self, now: float) -> None:
        """Leave what belongs to workers that are gone out of the sums."""
        self._looked = now
        for worker, places in self._workers.items():
            if places.spare + places.between and now - places.heard > ASKING:
                self._settle_worker(places, now)
                self._spare -= places.spare
                places.spare = places.between = 0
            if places.held and now - places.heard > self._lease_seconds:
                self._settle_worker(places, now)
                self._forget_loading(places)
                places.held = self._leases(worker)

    def _heard_of(self, worker: str) -> _Places:
        now = self._clock()
        places = self._workers.get(worker)
        if places is None:
            self._settle(now)
            places = self._workers[worker] = _Places(now, now, empty=dict(self._empty))
        self._settle_worker(places, now)
        self._heard = places.heard = now
        return places

    def _settle(self, now: float) -> None:
        seconds = now - self._settled
        self._empty[self._why] += seconds
        self._loads[WORKS if self._loading else NOTHING] += seconds
        self._settled = now

    def _settle_worker(self, places: _Places, now: float) -> None:
        """Count the time of a worker's places until now, or until it is gone."""
        self._settle(now)
        passed = now - places.since
        if passed <= 0:
            return
        seconds = max(0.0, min(now, places.heard + self._lease_seconds) - places.since)
        loading = min(places.held, places.loading.total())
        times = {WORKS: (places.held - loading) * seconds, WEIGHTS: loading * seconds}
        asking = max(0.0, min(now, places.heard + ASKING) - places.since)
        times[BETWEEN] = places.between * asking
        if places.failed:
            times[FAILED] = places.spare * asking
        elif places.spare:
            for cause, total in self._empty.items():
                share = (total - places.empty[cause]) / passed
                times[cause] = times.get(cause, 0.0) + places.spare * asking * share
        for cause, value in times.items():
            places.seconds[cause] += value
            self._places[cause] += value
        places.since, places.empty = now, dict(self._empty)

    def _settle_trainer(self, one: _TrainerTime, now: float) -> None:
        if one.does != NOTHING:
            alive = max(0.0, min(now, one.heard + PATIENCE) - one.settled)
            one.seconds[one.does] += alive
            one.seconds[SILENT] += now - one.settled - alive
        one.settled = now

    # ---------------------------------------------------------------- figures
    def totals(self, policy: str) -> dict[str, float]:
        """Return the seconds of a policy's trainer, and of all other programs, as `PROGRAM/CAUSE`; zeros too."""
        now = self._clock()
        for places in self._workers.values():
            self._settle_worker(places, now)
        self._settle(now)
        trainer = self._trainers.get(policy)
        if trainer is not None:
            self._settle_trainer(trainer, now)
        seconds: Mapping[str, float] = {} if trainer is None else trainer.seconds
        self._nothing = max(self._nothing, time.perf_counter() - self._began - self._answering)  # it never falls
        manager = {WORKS: self._answering, NOTHING: self._nothing}
        found: dict[str, Mapping[str, float]] = {
            TRAINER: seconds,
            PLACES: self._places,
            LOADING: self._loads,
            MANAGER: manager,
        }
        return {f"{name}/{cause}": found[name].get(cause, 0.0) for name in found for cause in CAUSES[name]}

    def of_worker(self, worker: str) -> dict[str, dict[str, float]]:
        """Return as `idle` the shares of the time of a worker's places by cause; nothing at the beginning."""
        found = shares(self._workers[worker].seconds) if worker in self._workers else {}
        return {"idle": found} if found else {}

    def now(self, episode_seconds: float) -> list[str]:
        """Return sentences about what trainers wait for and why places are empty. Leases last `episode_seconds`."""
        now, found = self._clock(), []
        for policy, one in self._trainers.items():
            if one.does == NOTHING:
                continue
            batch = self._ledgers[one.stream].of(policy).done
            if now - one.heard > PATIENCE:
                found.append(f"the trainer of {policy} has not called for {now - one.heard:.0f} s")
            elif one.does == WORKS:
                found.append(f"the trainer of {policy} has worked for {now - one.since:.0f} s, after batch {batch - 1}")
            else:
                why = self._detail(one, policy, episode_seconds)
                found.append(f"the trainer of {policy} has waited {now - one.since:.0f} s for batch {batch}: {why}")
        places = self._spare + sum(one.held + one.between for one in self._workers.values())
        if self._spare:
            found.append(f"{self._spare:,} of {places:,} places are empty: {self._why}")
        return found

    def _detail(self, one: _TrainerTime, policy: str, episode_seconds: float) -> str:
        ledger = self._ledgers[one.stream]
        last = ledger.of(policy).done if ledger.order == FIXED else inf
        left = [entry for entry in ledger.slots.leases() if entry.slot.batch <= last]
        if one.does not in (SLOWEST, WEIGHTS) or not left:
            return one.does
        first = min(left, key=lambda entry: entry.limit)
        return (
            f"{one.does}; {len(left):,} are left, and {first.worker} has had {first.slot.id} for "
            f"{self._clock() + episode_seconds - first.limit:.0f} s"
        )


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the shares of the causes, which add up to 1, the largest first, without zeros; empty without any time."""
    total = sum(value for value in seconds.values() if value > 0)
    return {cause: value / total for cause, value in sorted(seconds.items(), key=lambda item: -item[1]) if value > 0}


def idle(totals: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return for each program the `shares` of its time: the trainer of each policy, `places`, `weights`, `manager`.

    Args:
        totals: seconds for each policy as `IdleTimes.totals` names them, such as those of `Pace.of`.
    """
    found: dict[str, dict[str, float]] = {}
    for policy, seconds in totals.items():
        for name, value in seconds.items():
            program, slash, cause = name.partition("/")
            if slash:
                found.setdefault(f"trainer of {policy}" if program == TRAINER else program, {})[cause] = value
    return {program: shares(of_program) for program, of_program in found.items()}


def added(counted: Iterable[tuple[str, Mapping[str, float]]]) -> dict[str, Counter[str]]:
    """Return the totals of each policy, from successive ones of `IdleTimes`; a manager that restarts counts anew."""
    last: dict[str, Mapping[str, float]] = {}
    found: dict[str, Counter[str]] = {}
    for policy, now in counted:
        before = last.get(policy, {})
        if any(now.get(name, 0.0) < value for name, value in before.items()):
            before = {}
        steps = {name: value - before.get(name, 0.0) for name, value in now.items()}
        found.setdefault(policy, Counter()).update(steps)
        last[policy] = now
    return found


def words(found: Mapping[str, float]) -> str:
    """Return shares as a text, such as `works 80%, slowest episodes 20%`."""
    return ", ".join(f"{cause} {share:.0%}" for cause, share in found.items() if share >= 0.005)
