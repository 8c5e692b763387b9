"""Virtual time for `simulate`, and the rollout workers in it."""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentgym_flow.core import Stream
from agentgym_flow.dataflow.bookkeeping.entries import SlotState
from agentgym_flow.dataflow.bookkeeping.ledger import FIXED, READY, Ledger
from agentgym_flow.dataflow.records import CommitVerdict, Slot, SlotId
from agentgym_flow.dataflow.simulator.scenario import Region, Scenario, Times, WorkerChange
from agentgym_flow.errors import NoWorkers

_BITS = 8e-9  # gigabits of a byte
_TICK = 1.0  # seconds between two checks for expired leases
_SAMPLES = 400  # the states of the ledger are recorded whenever the time has grown by this fraction of itself


Record = Callable[[dict[str, Any]], None]
"""Is called with each event of a run; `agentgym_flow.dataflow.trace` describes events."""


class World:
    """Virtual time, the manager's ledger, and what happens.

    Args:
        scenario: what to simulate.
        seed: of the durations and the deaths.
        record: called with each event.

    Attributes:
        now: the time.
        ledger: the slots.
        times: the durations.
        calls: the calls of the manager in each second.
    """

    def __init__(self, scenario: Scenario, seed: int, record: Record | None) -> None:
        self.scenario, self.seed, self._record = scenario, seed, record
        order = READY if scenario.mode == READY else FIXED
        self.ledger = Ledger(scenario.policies, order=order, staleness=scenario.bound)
        self.times = Times(scenario, seed)
        self.now = 0.0
        self.calls: Counter[int] = Counter()
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._planned = 0
        self._sampled = 0.0

    def after(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        """Plan a call of `do` with `args`; of calls at the same time, the one that was planned first comes first."""
        self._planned += 1
        heapq.heappush(self._events, (self.now + seconds, self._planned, do, args))

    def run(self, done: Callable[[], bool]) -> None:
        """Run planned calls in order of time until `done()`. Raises `NoWorkers` if none is left."""
        while not done():
            if not self._events:
                raise NoWorkers(f"after {self.now / 3600:.2f} virtual hours no worker is left: let more of them join")
            self.now, _, do, args = heapq.heappop(self._events)
            do(*args)

    def call(self, count: int = 1) -> None:
        """Count calls of the manager."""
        self.calls[int(self.now)] += count

    def note(self, what: str, **fields: Any) -> None:
        """Record an event."""
        if self._record is not None:
            self._record({"at": self.now, "what": what, **fields})

    def sample(self, *, now: bool = False) -> None:
        """Record the states of the ledger, but not at every call, because this takes time."""
        if self._record is not None and (now or self.now >= self._sampled + max(1.0, self._sampled / _SAMPLES)):
            self._sampled = self.now
            self.note("states", stream="main", states=self.ledger.slots.states())


class RunningLease(NamedTuple):
    """A lease that a worker holds, when it began, the turns that are left, and the weights of its first turn."""

    slot: Slot
    attempt: int
    weights: dict[str, int]
    since: float
    left: int = 1
    began_with: dict[str, int] | None = None


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
    newest: dict[str, int] = field(default_factory=dict)


class Pool:
    """All workers of a simulation.

    Args:
        world: the world.
        committed: is called with the slots whose episodes were committed or are lost.

    Attributes:
        busy: seconds of playing, summed over episodes.
        available: seconds for which workers could have played, summed over the episodes they can play at a time.
        lived: seconds that workers lived.
        kills: how often a worker died.
    """

    def __init__(self, world: World, committed: Callable[[Sequence[Slot]], None]) -> None:
        self._world, self._committed, self._scenario = world, committed, world.scenario
        self._expiries: set[float] = set()
        self.busy, self.available, self.lived, self.kills = 0.0, 0.0, 0.0, 0
        self._links = {region.name: _Link(region) for region in world.scenario.regions}
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
            self._world.after(change.at, self._change, change)

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
        worker.taking, worker.free, worker.since = True, worker.link.region.slots, self._world.now
        worker.held = {policy: {} for policy in self._scenario.policies}
        worker.loading = {policy: set() for policy in self._scenario.policies}
        worker.lived += 1
        hours = self._scenario.hours_to_death
        if hours < math.inf:
            draw = Stream("simulate", self._world.seed, "life", worker.name, worker.lived).uniform()
            self._world.after(-3600 * hours * math.log(1 - draw), self._die, worker, worker.life)
        self._ask(worker)

    def _stop(self, worker: _Worker) -> None:
        worker.taking = False
        seconds = self._world.now - worker.since
        worker.since = self._world.now
        self.lived += seconds
        self.available += seconds * worker.link.region.slots

    def _kill(self, worker: _Worker) -> None:
        self._stop(worker)
        worker.life += 1  # calls planned for its old life have no effect
        self.kills += 1
        self._count_cut(worker)
        self._world.note("killed", worker=worker.name)
        for play, _ in worker.playing.values():
            self._lose(play)
        worker.waiting, worker.playing = [], {}

    def _die(self, worker: _Worker, life: int) -> None:
        if worker.life == life and worker.taking:
            self._kill(worker)
            self._world.after(self._scenario.restart, self._begin, worker)

    def _lose(self, play: RunningLease) -> None:
        """Let the lease of a worker that died expire, counted from its last renewal."""
        valid, now = self._scenario.lease_seconds, self._world.now
        renewed = play.since + (now - play.since) // (valid / 3) * (valid / 3)
        self._world.ledger.renew(play.slot.id, play.attempt, renewed + valid)
        tick = (math.floor((renewed + valid) / _TICK) + 1) * _TICK
        if tick not in self._expiries:
            self._expiries.add(tick)
            self._world.after(tick - now, self._expire, tick)

    def _expire(self, tick: float) -> None:
        self._expiries.remove(tick)
        ended = [entry for entry, _ in self._world.ledger.expire(tick)]
        if ended:
            slots = [[*one.slot.id, one.attempt] for one in ended]
            self._world.note("ended", stream="main", why="expired", slots=slots)
            lost = [entry.slot for entry in ended if entry.state is SlotState.COMMITTED]
            self._committed(lost)
            self.wake()

    def _count_cut(self, worker: _Worker) -> None:
        for _, began in worker.playing.values():
            if began is not None:
                self._count(worker, self._world.now - began)

    def _count(self, worker: _Worker, seconds: float) -> None:
        self.busy += seconds
        if not worker.taking:  # it has left, so its capacity counts only while it plays
            self.available += min(seconds, self._world.now - worker.since)

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
        """Lease as many slots as a worker has room for; it gets them after `seconds`."""
        world = self._world
        world.call()
        # Renewals are not simulated: a lease of a living worker never ends, see `_lose`.
        entries = world.ledger.lease(worker.name, worker.free, math.inf)
        turns = self._scenario.turns
        plays = [RunningLease(entry.slot, entry.attempt, entry.weights, world.now, turns) for entry in entries]
        if plays:
            worker.newest = plays[-1].weights
            slots = [[*play.slot.id, play.attempt] for play in plays]
            world.note("lease", worker=worker.name, stream="main", slots=slots)
            world.sample()
            worker.free -= len(plays)
            for play in plays:
                worker.playing[play.slot.id] = (play, None)
            self._world.after(seconds, self._receive, worker, worker.life, plays)

    def _receive(self, worker: _Worker, life: int, plays: list[RunningLease]) -> None:
        if worker.life == life:
            worker.waiting += plays
            self._advance(worker)

    def _advance(self, worker: _Worker) -> None:
        """Start the episodes whose weights are loaded, and fetch weights for others if there is room for them."""
        wanted = {policy: {v for v, count in held.items() if count} for policy, held in worker.held.items()}
        waiting, worker.waiting = worker.waiting, []
        for play in waiting:
            if self._scenario.turns > 1 and any(one not in worker.held[policy] for policy, one in play.weights.items()):
                play = play._replace(weights=worker.newest)
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
        self._world.after(max(0.0, ready - self._world.now), self._loaded, worker, worker.life, policy, version)

    def _transfer(self, link: _Link, worker: _Worker, policy: str, version: int, have: int | None) -> float:
        """Queue weights on the link; return the time of their arrival."""
        region = link.region
        assert region.gbit is not None
        size = self._scenario.transfer(link.have.get(policy) if region.relay else have, version)
        link.free_at = max(self._world.now, link.free_at) + size * _BITS / region.gbit
        link.bytes += size
        ready = link.free_at + region.delay
        if region.relay:
            link.have[policy] = max(version, link.have.get(policy, 0))
            link.ready[policy, version] = ready
        who = f"relay of {region.name}" if region.relay else worker.name
        seconds = ready - self._world.now
        self._world.note("fetch", worker=who, policy=policy, version=version, bytes=round(size), seconds=seconds)
        return ready

    def _loaded(self, worker: _Worker, life: int, policy: str, version: int) -> None:
        if worker.life == life:
            worker.loading[policy].remove(version)
            worker.held[policy][version] = 0
            self._advance(worker)

    def _play(self, worker: _Worker, play: RunningLease) -> None:
        for policy, version in play.weights.items():
            worker.held[policy][version] += 1
        play = play._replace(left=play.left - 1, began_with=play.began_with or play.weights)
        worker.playing[play.slot.id] = (play, self._world.now)
        seconds = self._world.times.of(play.slot) / worker.link.region.speed / self._scenario.turns
        self._world.after(seconds, self._finish if not play.left else self._go_on, worker, worker.life, play, seconds)

    def _go_on(self, worker: _Worker, life: int, play: RunningLease, seconds: float) -> None:
        """Begin the next turn with the newest weights that are loaded, or that need the only room."""
        if worker.life != life:
            return
        self._count(worker, seconds)
        weights = worker.newest
        if self._scenario.versions > 1:
            for policy, version in worker.newest.items():
                held = worker.held[policy]
                if version not in held and version not in worker.loading[policy]:
                    self._fetch(worker, policy, version, {one for one, count in held.items() if count})
                weights = {**weights, policy: max(one for one in held if one <= version)}
        for policy, version in play.weights.items():
            worker.held[policy][version] -= 1
        worker.playing[play.slot.id] = (play, None)
        worker.waiting.append(play._replace(weights=weights))
        self._advance(worker)

    def _finish(self, worker: _Worker, life: int, play: RunningLease, seconds: float) -> None:
        if worker.life != life:
            return
        self._count(worker, seconds)
        del worker.playing[play.slot.id]
        for policy, version in play.weights.items():
            worker.held[policy][version] -= 1
        worker.free += 1
        self._world.after(worker.link.region.delay / 2, self._commit, worker.name, play)
        if worker.waiting:
            self._advance(worker)
        self._ask(worker)

    def _commit(self, worker: str, play: RunningLease) -> None:
        self._world.call()
        used = [*(play.began_with or {}).items()] if self._scenario.turns > 1 else []
        verdict = self._world.ledger.commit(play.slot.id, play.attempt, "played", used=used)
        slots = [[*play.slot.id, play.attempt]]
        self._world.note("commit", worker=worker, stream="main", slots=slots, verdicts=[verdict.value])
        if verdict is CommitVerdict.ACCEPTED:
            self._committed([play.slot])
