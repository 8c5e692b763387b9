"""A number of workers that follows what is recommended, in a simulated run whose speed halves in its middle."""

from __future__ import annotations

import heapq
import itertools
import threading
from typing import Any

import pytest
from flow_parts import Clock, commit_of, make_manager, opened

from agentgym_flow.dataflow import scaling
from agentgym_flow.dataflow.bookkeeping.callers import target_workers
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.local_engine import Crew
from agentgym_flow.dataflow.records import Lease, Slot
from agentgym_flow.dataflow.scaling import Scaler
from agentgym_flow.errors import BadSetting

BATCH, PLACES, TRAIN = 16, 2, 10.0
"""Episodes of a batch, episodes that a worker plays at a time, and seconds of training on a batch."""


class Run:
    """A trainer and workers on a real manager, in virtual time. `seconds` says how long an episode of a batch takes.

    `sizes` has the number of workers while each batch was waited for.
    """

    def __init__(self, seconds: Any, least: int, most: int) -> None:
        self.clock = Clock()
        self.manager = make_manager(self.clock, lease_seconds=1e6, deadline=1e9)
        self.scaler, self.seconds, self.workers = Scaler(least, most), seconds, least
        self.events: list[tuple[float, int, str, Lease]] = []
        self.held = dict.fromkeys(map(str, range(most)), 0)
        self.sizes: list[int] = []

    def lease(self) -> None:
        for name in [*self.held][: self.workers]:
            if self.held[name] < PLACES:
                for lease in self.manager.lease(name, PLACES - self.held[name]):
                    self.held[name] += 1
                    end = self.clock.now + self.seconds(lease.slot.batch)
                    heapq.heappush(self.events, (end, lease.slot.batch * BATCH + lease.slot.sample, name, lease))

    def until(self, now: float) -> None:
        """Let episodes end, and look at the figures every second, until a time."""
        while self.clock.now < now:
            second = self.clock.now + 1.0
            while self.events and self.events[0][0] <= second:
                self.clock.now, _, name, lease = heapq.heappop(self.events)
                self.held[name] -= 1
                self.manager.commit(name, [commit_of(lease, "played")])
                self.lease()
            self.clock.now = second
            self.workers = self.scaler.decide(self.manager.status(), self.workers)
            self.lease()

    def train(self, batches: int, staleness: int = 1) -> list[int]:
        setup = {"policies": ["policy"], "order": "fixed", "staleness": staleness, "max_attempts": 3}
        claim = opened(self.manager, "s", "policy", 0, setup)
        arrived: list[Any] = []
        for batch in range(batches):
            self.manager.publish(claim, batch, batch, str(batch).encode())
            for ahead in range(0 if batch == 0 else batch + staleness, batch + staleness + 1):
                self.manager.admit(claim, [Slot(ahead, 0, sample, 0, 0) for sample in range(BATCH)])
            self.lease()
            while len(found := [one for one in arrived if one.slot.batch == batch]) < BATCH:
                if got := self.manager.arrivals(claim, len(arrived)):
                    arrived += got
                else:
                    self.until(self.clock.now + 1.0)
            self.sizes.append(self.workers)
            self.manager.ack(claim, batch, [one.played for one in found], [])
            self.until(self.clock.now + TRAIN)
        return self.sizes


def test_the_number_follows_a_run_whose_speed_halves_in_the_middle_and_comes_back() -> None:
    """16 episodes in 10 s, of 5 s each and with 2 places a worker, need 4 workers, and of 10 s 8. One more is kept."""
    run = Run(lambda batch: 10.0 if 33 <= batch < 66 else 5.0, 1, 16)
    sizes = run.train(100)
    first, slow, again = sizes[25:33], sizes[58:66], sizes[92:]
    assert {*first} <= {5}, sizes
    assert {*slow} <= {9}, sizes
    assert {*again} <= {5}, sizes
    assert sum(one != other for one, other in itertools.pairwise(sizes)) == 6, "it does not go up and down"


def test_nothing_changes_where_more_workers_would_idle_and_bounds_hold() -> None:
    assert target_workers(8, 0.5, 100, 100, 0.5) == 8, "with S = 0, workers wait for the trainer as well"
    assert target_workers(8, 0.0, 100, 100, 0.5) == 5
    assert target_workers(8, 0.2, 100, 100) == 10
    sizes = Run(lambda batch: 40.0, 2, 3).train(10)
    assert (sizes[0], sizes[-1], max(sizes)) == (2, 3, 3)
    assert {*Run(lambda batch: 0.1, 2, 3).train(10)} == {2}


def test_figures_that_go_back_begin_a_new_window() -> None:
    def figures(batches: int, waited: float) -> dict[str, Any]:
        totals = {"seconds": 10.0 * batches, "waited": waited, "used": 0, "entered": 1, "idle": 0.0, "busy": waited}
        policies = {"a": {"done": batches, "finished": False}}
        workers = {"w": {"silent": 0.0}}
        settings = {"lease_seconds": 5.0}
        return {
            "settings": settings,
            "workers": workers,
            "streams": {"s": {"policies": policies}},
            "totals": {"a": totals},
        }

    scaler = Scaler(1, 4)
    assert [scaler.decide(figures(*at), 1) for at in ((4, 40.0), (8, 5.0), (9, 15.0), (12, 45.0))] == [1, 1, 1, 2]


class Member:
    def __init__(self, number: int) -> None:
        self.number, self.left = number, False

    def ended(self) -> str | None:
        return "it has left" if self.left else None

    def leave(self) -> None:
        self.left = True

    def end(self) -> None:
        pass


def test_workers_that_leave_are_no_deaths_and_their_numbers_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_flow.dataflow.local_engine.LOOK", 0.005)
    hired: list[Member] = []

    def hire(number: int) -> Member:
        hired.append(Member(number))
        return hired[-1]

    def until(so: Any) -> None:
        for _ in range(2000):
            if so():
                return
            threading.Event().wait(0.005)
        raise AssertionError

    monkeypatch.setattr("agentgym_flow.dataflow.local_engine.PATIENCE", 0.05)
    crew = Crew(hire)
    crew.resize(3)
    until(lambda: len(hired) == 3)
    crew.resize(1)
    assert len(crew) == 1
    until(lambda: [one.left for one in hired] == [False, True, True])
    until(lambda: sum(seat.member is None for seat in crew._seats) == 2)
    crew.resize(2)
    until(lambda: len(hired) == 4)
    assert (hired[-1].number, crew.deaths, crew.given_up, len(crew)) == (1, 0, 0, 2)
    crew.check()
    crew.close()


def test_workers_are_followed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "LOOK", 0.005)
    answers = iter([2, 3, 3, 1])
    monkeypatch.setattr(Scaler, "decide", lambda *_: next(answers, 1))
    manager, ended, asked = make_manager(Clock()), threading.Event(), []

    def change(workers: int) -> None:
        asked.append(workers)
        if asked == [1, 2, 3, 1]:
            ended.set()

    crew = Crew(Member)
    scaling.follow(manager, crew, (1, 4), ended, change).join(20)
    assert asked == [1, 2, 3, 1]
    assert len(crew) == 1
    crew.close()


def test_bounds_are_checked() -> None:
    assert FlowConfig(workers={"min": 1, "max": 4}).most_workers == 4
    for wrong, says in (
        ({"min": 1}, "give min and max"),
        ({"min": 0, "max": 2}, "min"),
        ({"min": 3, "max": 2}, "max"),
    ):
        with pytest.raises(BadSetting, match=says):
            FlowConfig(workers=wrong)
