"""The breaker's states against a model, over any order of requests, results and pauses."""

from __future__ import annotations

import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentgym_flow._util.endpoint import PROBE_POLL, Breaker, BreakerState, Permit
from agentgym_flow.errors import BadSetting

FAILURES, REST = 2, 4.0


class Requests(RuleBasedStateMachine):
    """Clients that send requests when they may, and report what came of them in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.breaker = Breaker(FAILURES, REST, clock=lambda: self.now)
        self.state = BreakerState.CLOSED
        self.current: list[Permit] = []  # given since the last change of state
        self.old: list[Permit] = []
        self.row = 0
        self.opened = 0.0

    def change(self, state: BreakerState) -> None:
        self.state, self.row = state, 0
        self.old += self.current
        self.current = []

    @rule()
    def ask(self) -> None:
        answer = self.breaker.enter()
        if self.state is BreakerState.CLOSED:
            assert isinstance(answer, Permit)
            self.current.append(answer)
        elif self.state is BreakerState.OPEN and self.now >= self.opened + REST:
            assert isinstance(answer, Permit)
            self.change(BreakerState.HALF_OPEN)
            self.current.append(answer)
        elif self.state is BreakerState.OPEN:
            assert answer == self.opened + REST - self.now > 0
        else:
            assert answer == PROBE_POLL, "one probe at a time"

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 4.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.current)
    @rule(which=st.integers(0, 99), how=st.sampled_from(["succeeded", "failed", "dropped"]))
    def come_back(self, which: int, how: str) -> None:
        given = self.current.pop(which % len(self.current))
        getattr(self.breaker, how)(given)
        probe = self.state is BreakerState.HALF_OPEN
        if how == "succeeded":
            self.row = 0
            if probe:
                self.change(BreakerState.CLOSED)
        elif how == "failed":
            self.row += 1
            if probe or self.row == FAILURES:
                self.change(BreakerState.OPEN)
                self.opened = self.now
        elif probe:
            self.change(BreakerState.OPEN)
            self.opened = self.now - REST

    @precondition(lambda self: self.old)
    @rule(which=st.integers(0, 99), how=st.sampled_from(["succeeded", "failed", "dropped"]))
    def come_back_too_late(self, which: int, how: str) -> None:
        getattr(self.breaker, how)(self.old.pop(which % len(self.old)))

    @invariant()
    def agrees(self) -> None:
        assert self.breaker.state is self.state


Requests.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
TestRequests = Requests.TestCase


@pytest.mark.parametrize("how", ["succeeded", "failed", "dropped"])
def test_a_result_from_before_says_nothing_of_the_probe(how) -> None:
    now = [0.0]
    breaker = Breaker(1, 1.0, clock=lambda: now[0])
    passes = [breaker.enter(), breaker.enter()]
    breaker.failed(passes[0])
    now[0] = 1.0
    probe = breaker.enter()
    getattr(breaker, how)(passes[1])
    assert breaker.state is BreakerState.HALF_OPEN
    breaker.succeeded(probe)
    assert breaker.state is BreakerState.CLOSED


def test_threads_get_one_probe_between_them() -> None:
    now = [0.0]
    breaker = Breaker(1, 1.0, clock=lambda: now[0])
    given = breaker.enter()
    assert isinstance(given, Permit)
    breaker.failed(given)
    now[0] = 5.0
    answers: list[object] = []
    together = threading.Barrier(16)

    def ask() -> None:
        together.wait()
        answers.append(breaker.enter())

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(answer, Permit) for answer in answers) == 1


@pytest.mark.parametrize("bad", [{"failures": 0}, {"rest": 0.0}, {"rest": -1.0}, {"rest": float("nan")}])
def test_settings_that_cannot_work_are_refused(bad) -> None:
    with pytest.raises(BadSetting):
        Breaker(**bad)


def test_a_forked_child_does_not_wait_for_the_probe_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    breaker = Breaker(1, 100.0)
    given = breaker.enter()
    assert isinstance(given, Permit)
    breaker.failed(given)
    assert breaker.state is BreakerState.OPEN
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert isinstance(breaker.enter(), Permit)
    assert breaker.state is BreakerState.CLOSED
