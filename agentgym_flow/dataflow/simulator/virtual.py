"""Rollout workers in virtual time, for `simulate`."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentgym_flow.core import Stream
from agentgym_flow.dataflow.records import SlotId
from agentgym_flow.dataflow.simulator.scenario import Region, RunningLease, Scenario, WorkerChange
from agentgym_flow.errors import NoWorkers

if TYPE_CHECKING:
    from agentgym_flow.dataflow.simulator.simulate import Simulation

_BITS = 8e-9  # gigabits of a byte


class Clock:
    """Virtual time: runs planned calls in order of time, and of planning if times are equal."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._planned = 0

    def after(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        """Plan a call of `do` with `args`."""
        self._planned += 1
        heapq.heappush(self._events, (self.now + seconds, self._planned, do, args))

    def run(self, done: Callable[[], bool]) -> None:
        """Run until `done()`. Raises `NoWorkers` if no calls are left."""
        while not done():
            if not self._events:
                raise NoWorkers(f"after {self.now / 3600:.2f} virtual hours no worker is left: let more of them join")
            self.now, _, do, args = heapq.heappop(self._events)
            do(*args)


@dataclass(slots=True)
class _Link:
    """A region with the state of its link and its relay; `ready` has the time at which the relay gets a version."""

    region: Region
    free_at: float = 0.0
    have: dict[str, int] = field(default_factory=dict)
    ready: dict[tuple[str, int], float] = field(default_factory=dict)
    bytes: float = 0.0


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker. `held` has for each policy its versions, with the number of episodes that play with them."""

    name: str
    link: _Link
    life: int = 0
    taking: bool = False
    idle: bool = False
    free: int = 0
    since: float = 0.0
    lived: int = 0
    held: dict[str, dict[int, int]] = field(default_factory=dict)
    loading: dict[str, set[int]] = field(default_factory=dict)
    waiting: list[RunningLease] = field(default_factory=list)
    playing: dict[SlotId, tuple[RunningLease, float | None]] = field(default_factory=dict)


class Pool:
    """All workers of a simulation.

    Args:
        clock: the virtual time.
        flow: the manager.
        scenario: what to simulate.
        seed: of the deaths.

    Attributes:
        busy: seconds of playing, summed over episodes.
        available: seconds for which workers could have played, summed over the episodes they can play at a time.
        lived: seconds that workers lived.
        kills: how often a worker died.
    """

    def __init__(self, clock: Clock, flow: Simulation, scenario: Scenario, seed: int) -> None:
        self._clock, self._flow, self._scenario, self._seed = clock, flow, scenario, seed
        self.busy, self.available, self.lived, self.kills = 0.0, 0.0, 0.0, 0
        self._links = {region.name: _Link(region) for region in scenario.regions}
        self._workers: list[_Worker] = []
        self._idle: deque[_Worker] = deque()

    @property
    def crossed(self) -> dict[str, float]:
        """The bytes of weights that crossed the link of each region."""
        return {name: link.bytes for name, link in self._links.items()}

    # ---------------------------------------------------------------- join, leave, die
    def start(self) -> None:
        """Let the workers of all regions join."""
        for link in self._links.values():
            self._join(link, link.region.workers)
        for change in self._scenario.changes:
            self._clock.after(change.at, self._change, change)

    def _change(self, change: WorkerChange) -> None:
        link = self._links[change.region]
        if change.kind == "join":
            self._join(link, change.workers)
            return
        there = [worker for worker in self._workers if worker.link is link and worker.taking]
        for worker in there[max(0, len(there) - change.workers) :]:
            (self._kill if change.kind == "kill" else self._stop)(worker)

    def _join(self, link: _Link, count: int) -> None:
        for _ in range(count):
            worker = _Worker(f"{link.region.name}-{len(self._workers)}", link)
            self._workers.append(worker)
            self._begin(worker)

    def _begin(self, worker: _Worker) -> None:
        worker.taking, worker.free, worker.since = True, worker.link.region.slots, self._clock.now
        worker.held = {policy: {} for policy in self._scenario.policies}
        worker.loading = {policy: set() for policy in self._scenario.policies}
        worker.lived += 1
        hours = self._scenario.hours_to_death
        if hours < math.inf:
            draw = Stream("simulate", self._seed, "life", worker.name, worker.lived).uniform()
            self._clock.after(-3600 * hours * math.log(1 - draw), self._die, worker, worker.life)
        self._ask(worker)

    def _stop(self, worker: _Worker) -> None:
        worker.taking = False
        seconds = self._clock.now - worker.since
        worker.since = self._clock.now
        self.lived += seconds
        self.available += seconds * worker.link.region.slots

    def _kill(self, worker: _Worker) -> None:
        self._stop(worker)
        worker.life += 1  # calls planned for its old life have no effect
        self.kills += 1
        self._count_cut(worker)
        self._flow.note("killed", worker=worker.name)
        self._flow.lose([play for play, _ in worker.playing.values()])
        worker.waiting, worker.playing = [], {}

    def _die(self, worker: _Worker, life: int) -> None:
        if worker.life == life and worker.taking:
            self._kill(worker)
            self._clock.after(self._scenario.restart, self._begin, worker)

    def _count_cut(self, worker: _Worker) -> None:
        for _, began in worker.playing.values():
            if began is not None:
                self._count(worker, self._clock.now - began)

    def _count(self, worker: _Worker, seconds: float) -> None:
        self.busy += seconds
        if not worker.taking:  # it has left, so its capacity counts only while it plays
            self.available += min(seconds, self._clock.now - worker.since)

    def close(self) -> None:
        """Account for unfinished episodes."""
        for worker in self._workers:
            self._count_cut(worker)
            if worker.taking:
                self._stop(worker)

    # ---------------------------------------------------------------- lease, play, commit
    def wake(self) -> None:
        """Give leases to waiting workers, the longest waiting first."""
        while self._idle:
            worker = self._idle[0]
            if worker.taking and worker.free:
                self._take(worker, worker.link.region.delay / 2)
                if worker.free:
                    return  # no slots are left
            self._idle.popleft()
            worker.idle = False

    def _ask(self, worker: _Worker) -> None:
        if not worker.taking:
            return
        self._take(worker, worker.link.region.delay)
        if worker.free and not worker.idle:
            worker.idle = True
            self._idle.append(worker)

    def _take(self, worker: _Worker, seconds: float) -> None:
        plays = self._flow.lease(worker.name, worker.free)
        if plays:
            worker.free -= len(plays)
            for play in plays:
                worker.playing[play.slot.id] = (play, None)
            self._clock.after(seconds, self._receive, worker, worker.life, plays)

    def _receive(self, worker: _Worker, life: int, plays: list[RunningLease]) -> None:
        if worker.life == life:
            worker.waiting += plays
            self._advance(worker)

    def _advance(self, worker: _Worker) -> None:
        """Start the episodes whose weights are loaded, and fetch weights for others if there is room for them."""
        wanted = {policy: {v for v, count in held.items() if count} for policy, held in worker.held.items()}
        waiting, worker.waiting = worker.waiting, []
        for play in waiting:
            for policy, version in play.weights.items():
                wanted[policy].add(version)
                if version not in worker.held[policy] and version not in worker.loading[policy]:
                    self._fetch(worker, policy, version, wanted[policy])
            if all(version in worker.held[policy] for policy, version in play.weights.items()):
                self._play(worker, play)
            else:
                worker.waiting.append(play)

    def _fetch(self, worker: _Worker, policy: str, version: int, wanted: set[int]) -> None:
        held, loading, link = worker.held[policy], worker.loading[policy], worker.link
        have = max(held, default=None)
        if len(held) + len(loading) >= self._scenario.versions:
            unused = [other for other in held if other not in wanted]
            if not unused:
                return  # the worker must finish episodes first
            del held[min(unused)]
        if link.region.gbit is None:
            held[version] = 0
            return
        ready = link.ready.get((policy, version)) if link.region.relay else None
        if ready is None:
            ready = self._transfer(link, worker, policy, version, have)
        loading.add(version)
        self._clock.after(max(0.0, ready - self._clock.now), self._loaded, worker, worker.life, policy, version)

    def _transfer(self, link: _Link, worker: _Worker, policy: str, version: int, have: int | None) -> float:
        """Queue weights on the link; return the time of their arrival."""
        region = link.region
        assert region.gbit is not None
        size = self._scenario.transfer(link.have.get(policy) if region.relay else have, version)
        link.free_at = max(self._clock.now, link.free_at) + size * _BITS / region.gbit
        link.bytes += size
        ready = link.free_at + region.delay
        if region.relay:
            link.have[policy] = max(version, link.have.get(policy, 0))
            link.ready[policy, version] = ready
        who = f"relay of {region.name}" if region.relay else worker.name
        seconds = ready - self._clock.now
        self._flow.note("fetch", worker=who, policy=policy, version=version, bytes=round(size), seconds=seconds)
        return ready

    def _loaded(self, worker: _Worker, life: int, policy: str, version: int) -> None:
        if worker.life == life:
            worker.loading[policy].remove(version)
            worker.held[policy][version] = 0
            self._advance(worker)

    def _play(self, worker: _Worker, play: RunningLease) -> None:
        for policy, version in play.weights.items():
            worker.held[policy][version] += 1
        worker.playing[play.slot.id] = (play, self._clock.now)
        seconds = self._flow.seconds(play.slot) / worker.link.region.speed
        self._clock.after(seconds, self._finish, worker, worker.life, play, seconds)

    def _finish(self, worker: _Worker, life: int, play: RunningLease, seconds: float) -> None:
        if worker.life != life:
            return
        self._count(worker, seconds)
        del worker.playing[play.slot.id]
        for policy, version in play.weights.items():
            worker.held[policy][version] -= 1
        worker.free += 1
        self._clock.after(worker.link.region.delay / 2, self._flow.commit, worker.name, play)
        if worker.waiting:
            self._advance(worker)
        self._ask(worker)
