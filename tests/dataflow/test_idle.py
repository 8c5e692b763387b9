"""Who waits for whom and why: the causes of idle time, which add up to all of the time."""

from __future__ import annotations

import random
from typing import Any

import pytest
from flow_parts import Clock, held, make_manager, opened, played

from agentgym_flow.dataflow.bookkeeping.idle import (
    CAUSES,
    ELSEWHERE,
    FAILED,
    FEW,
    LOADING,
    MANAGER,
    NO_RUN,
    NOBODY,
    NOTHING,
    PLACES,
    POLICY,
    SILENT,
    SLOWEST,
    TRAINER,
    UPDATE,
    WEIGHTS,
    WORKS,
    idle,
)
from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.records import Claim, Lease, Slot

SETUP: dict[str, Any] = {"policies": ["p"], "order": "fixed", "staleness": 0, "max_attempts": 3}


class Run:
    """A manager whose clock is set by hand, a trainer, and workers."""

    def __init__(self, **setup: Any) -> None:
        self.clock = Clock()
        self.manager: Manager = make_manager(self.clock, lease_seconds=1000.0, deadline=1e6)
        self.setup = {**SETUP, **setup}
        self.claim: Claim = opened(self.manager, "s", "p", 0, self.setup)
        self.after = 0

    def request(self, batch: int, ahead: int = 0) -> None:
        self.manager.publish(self.claim, batch, batch, f"{batch}".encode())
        for planned in range(batch, batch + ahead + 1):
            self.manager.admit(self.claim, [Slot(planned, 0, sample, 0, 0) for sample in range(4)])

    def wait(self) -> None:
        found = self.manager.arrivals(self.claim, self.after)
        self.after = max([self.after, *(one.number for one in found)])
        if found:
            self.manager.arrivals(self.claim, self.after)

    def pass_(self, seconds: int) -> None:
        """Let time pass; a trainer and workers with empty places call every second."""
        for _ in range(seconds):
            self.clock.now += 1.0
            self.wait()

    def train(self, batch: int, seconds: float) -> None:
        arrived = [one.played for one in self.manager.arrivals(self.claim, 0) if one.slot.batch == batch]
        assert self.manager.ack(self.claim, batch, arrived, []) == []
        self.clock.now += seconds
        self.manager.beat(self.claim)

    def seconds(self, program: str) -> dict[str, float]:
        totals = self.manager.status()["totals"]["p"]
        found = {cause: totals[f"{program}/{cause}"] for cause in CAUSES[program]}
        return {cause: value for cause, value in found.items() if value}

    def loaded(self, worker: str, leases: list[Lease]) -> list[Lease]:
        for version in {lease.weights["p"] for lease in leases}:
            self.manager.loaded(worker, "p", version, 1.0)
        return leases


def test_both_wait_for_the_slowest_episode_of_a_batch() -> None:
    """Trainer and workers idle at once, and the status says for whom (verl#6693)."""
    run = Run()
    run.request(0)
    fast, slow = (run.loaded(name, run.manager.lease(name, 2)) for name in ("fast", "slow"))
    run.wait()
    run.pass_(10)
    run.manager.commit("fast", [played(lease) for lease in fast])
    run.manager.commit("slow", [played(slow[1])])
    for _ in range(40):
        run.manager.lease("fast", 2)
        run.manager.lease("slow", 1)
        run.pass_(1)
    assert run.seconds(TRAINER) == {SLOWEST: 50.0}
    assert run.seconds(PLACES) == {WORKS: 10.0 * 4 + 40.0, SLOWEST: 3 * 40.0}
    first, second = run.manager.status()["now"]
    assert "the trainer of p has waited 50 s for batch 0: slowest episodes; 1 are left, and slow has had" in first
    assert first.endswith(f"{slow[0].slot.id} for 50 s")
    assert second == "3 of 4 places are empty: slowest episodes"
    assert run.manager.status()["workers"]["fast"]["idle"] == {SLOWEST: 0.8, WORKS: 0.2}


def test_both_wait_for_weights_that_take_long_to_arrive() -> None:
    run = Run()
    run.request(0)
    leases = run.manager.lease("w", 8)
    run.wait()
    for _ in range(30):
        run.pass_(1)
        run.manager.lease("w", 4)
    assert run.seconds(TRAINER) == {WEIGHTS: 30.0}
    assert run.seconds(PLACES) == {WEIGHTS: 2 * 4 * 30.0}, "those with leases, and those without"
    assert run.seconds(LOADING) == {WORKS: 30.0}
    assert "loading weights; 4 are left, and w has had" in run.manager.status()["now"][0]
    run.loaded("w", leases)
    run.wait()
    run.pass_(5)
    assert run.seconds(TRAINER) == {WEIGHTS: 30.0, SLOWEST: 5.0}
    assert run.seconds(LOADING) == {WORKS: 30.0, NOTHING: 5.0}
    run.manager.commit("w", [played(lease) for lease in leases])
    run.wait()
    run.train(0, 1.0)
    run.request(1)
    assert len(run.manager.lease("w", 4)) == 4
    run.wait()
    run.pass_(2)
    assert run.seconds(TRAINER)[WEIGHTS] == 32.0, "each version is loaded anew"


def test_workers_wait_for_an_update_and_trainers_for_places() -> None:
    run = Run(staleness=1)
    run.request(0, ahead=1)
    leases = run.loaded("w", run.manager.lease("w", 2))
    run.wait()
    run.pass_(3)
    assert run.seconds(TRAINER) == {FEW: 3.0}
    while leases:
        run.manager.commit("w", [played(lease) for lease in leases])
        leases = run.manager.lease("w", 2)
    run.wait()
    run.train(0, 4.0)
    run.manager.lease("w", 2)
    assert run.seconds(TRAINER) == {FEW: 3.0, WORKS: 4.0}
    assert run.seconds(PLACES) == {WORKS: 6.0, UPDATE: 8.0}
    assert run.manager.status()["now"][1] == "2 of 2 places are empty: trainer's update"


def test_no_worker_no_run_and_a_silent_trainer_are_told_apart() -> None:
    clock = Clock()
    manager = make_manager(clock, lease_seconds=1000.0, deadline=1e6)
    manager.lease("w", 1)
    clock.now += 5
    manager.lease("w", 1)
    run = Run()
    run.request(0)
    run.wait()
    run.pass_(4)
    assert run.seconds(TRAINER) == {NOBODY: 4.0}
    run.loaded("w", run.manager.lease("w", 5))
    run.wait()
    run.clock.now += 20  # it neither calls nor beats
    assert run.seconds(TRAINER) == {NOBODY: 4.0, SLOWEST: 15.0, SILENT: 5.0}
    assert run.manager.status()["now"][0] == "the trainer of p has not called for 20 s"
    run.manager.lease("w", 1)
    run.clock.now += 2
    assert run.seconds(PLACES)[SILENT] == 2.0
    claim = opened(manager, "s", "p", 0, SETUP)
    assert manager._idle.totals("p")[f"{PLACES}/{NO_RUN}"] == 5.0
    manager.finish(claim)
    clock.now += 3
    assert sum(manager._idle.totals("p")[f"{TRAINER}/{cause}"] for cause in CAUSES[TRAINER]) == 0.0


def test_another_policy_another_run_and_a_worker_that_fails_are_told_apart() -> None:
    run = Run(policies=["p", "q"])
    run.request(0)
    run.manager.lease("w", 1)
    run.wait()
    run.pass_(3)
    assert run.seconds(TRAINER) == {POLICY: 3.0}

    pool = Run()
    other = opened(pool.manager, "t", "q", 0, {**SETUP, "policies": ["q"]})
    pool.manager.publish(other, 0, 0, b"q")
    pool.manager.admit(other, [Slot(0, 0, 0, 0, 0)])
    pool.manager.lease("w", 1)
    pool.request(0)
    pool.wait()
    pool.pass_(3)
    assert pool.seconds(TRAINER) == {ELSEWHERE: 3.0}

    failing = Run()
    failing.request(0)
    failing.manager.lease("other", 3)
    (lease,) = failing.manager.lease("w", 1)
    failing.manager.fail("w", held(lease), "no data set")
    assert failing.manager.lease("w", 1) == []
    failing.clock.now += 2
    assert failing.seconds(PLACES)[FAILED] == 2.0


@pytest.mark.parametrize("seed", range(6))
def test_all_causes_add_up_to_all_of_the_time(seed: int) -> None:
    chance = random.Random(seed)
    run = Run(order=chance.choice(["fixed", "ready"]), staleness=chance.randrange(3))
    began = run.clock.now
    there: dict[str, list[Lease]] = {name: [] for name in "abc"}
    for batch in range(5):
        run.request(batch, ahead=run.setup["staleness"] if batch == 0 else 0)
        if batch:
            ahead = batch + run.setup["staleness"]
            run.manager.admit(run.claim, [Slot(ahead, 0, sample, 0, 0) for sample in range(4)])
        while len([one for one in run.manager.arrivals(run.claim, 0) if one.slot.batch == batch]) < 4:
            name = chance.choice("abc")
            got = run.manager.lease(name, 2 - len(there[name])) if len(there[name]) < 2 else []
            there[name] += got
            if chance.random() < 0.7:
                run.loaded(name, there[name])
            run.clock.now += chance.random()
            if there[name] and chance.random() < 0.5:
                lease = there[name].pop(chance.randrange(len(there[name])))
                if chance.random() < 0.1:
                    run.manager.fail(name, held(lease), "it failed")
                else:
                    run.manager.commit(name, [played(lease)])
            run.wait()
        run.train(batch, chance.random())
    figures = run.manager.status()
    passed = run.clock.now - began
    assert sum(run.seconds(TRAINER).values()) == pytest.approx(passed)
    assert sum(run.seconds(LOADING).values()) == pytest.approx(passed)
    assert sum(run.seconds(PLACES).values()) <= 6 * passed + 1e-6
    programs = idle(figures["pace"])
    for program, found in programs.items():
        assert sum(found.values()) == pytest.approx(1.0), program
        assert found.keys() <= {*CAUSES[program.removesuffix(" of p")]}
    assert {*programs} == {"trainer of p", PLACES, LOADING, MANAGER}
    for one in figures["workers"].values():
        assert sum(one["idle"].values()) == pytest.approx(1.0)
    states = figures["streams"]["s"]["states"]
    held_now = sum(places.held for places in run.manager._idle._workers.values())
    assert held_now == states["leased"]
    assert run.manager._idle._spare == sum(places.spare for places in run.manager._idle._workers.values())


def test_what_was_loaded_long_ago_or_is_not_played_is_not_kept() -> None:
    run = Run()
    run.request(0)
    (lease, *_) = run.manager.lease("w", 1)
    for version in range(100):
        run.manager.loaded("w", "p", version, 1.0)
        run.manager.loaded("w", f"another {version}", version, 1.0)
    times = run.manager._idle
    assert lease.weights["p"] in range(100)
    assert not times._loading
    assert all(policy == "p" for policy, _ in times._workers["w"].loaded)
