"""The simulator: cases that can be worked out by hand, and what holds in every case."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_flow.dataflow.simulator import simulate
from agentgym_flow.dataflow.simulator.scenario import MODES, Region, Scenario, SimulationResult, WorkerChange
from agentgym_flow.errors import BadSetting, NoWorkers, UnknownName, UnknownOption

EQUAL = Scenario(sigma=0.0, updates=10, weights="lora")  # 128 episodes of 30 s in 64 places: 60 s; training: 60 s


def seconds(scenario: Scenario) -> float:
    return simulate(scenario).hours * 3600


def test_equal_episodes_take_the_hours_worked_out_by_hand() -> None:
    assert seconds(replace(EQUAL, mode="synchronous")) == pytest.approx(10 * (60 + 60))
    assert seconds(replace(EQUAL, mode="overlap")) == pytest.approx(60 + 10 * 60)
    for staleness in (1, 2, 4):  # nothing to gain: all are as fast as the trainer
        for mode in ("fixed", "ready"):
            assert seconds(replace(EQUAL, mode=mode, staleness=staleness)) == pytest.approx(60 + 10 * 60)
    slow_trainer = replace(EQUAL, train_seconds=(240.0,))
    assert seconds(replace(slow_trainer, mode="synchronous")) == pytest.approx(10 * (60 + 240))
    assert seconds(replace(slow_trainer, mode="overlap")) == pytest.approx(60 + 10 * 240)
    fast_trainer = replace(EQUAL, train_seconds=(30.0,))
    assert seconds(replace(fast_trainer, mode="overlap")) == pytest.approx(10 * 60 + 30)


def test_with_room_for_one_version_newer_weights_need_the_end_of_a_turn_and_not_of_an_episode() -> None:
    pinned = Scenario(mode="ready", updates=6, groups=4, size=4, versions=1, regions=(Region("a", 2, 8),))
    partial = replace(pinned, turns=8)
    alone, turning = simulate(pinned), simulate(partial)
    assert turning.hours < 0.8 * alone.hours
    assert turning.trained == alone.trained == 6 * 16
    assert max(turning.staleness) <= 4
    assert simulate(replace(pinned, versions=9)).composition == simulate(replace(partial, versions=9)).composition
    with pytest.raises(BadSetting, match="only in ready order"):
        replace(partial, mode="fixed")


def test_two_policies_take_the_hours_worked_out_by_hand() -> None:
    two = replace(EQUAL, train_seconds=(60.0, 100.0))
    assert seconds(replace(two, mode="synchronous", one_device=True)) == pytest.approx(10 * (60 + 60 + 100))
    assert seconds(replace(two, mode="synchronous")) == pytest.approx(10 * (60 + 100))
    assert seconds(replace(two, mode="fixed", lockstep=True)) == pytest.approx(60 + 10 * 100)
    assert seconds(replace(two, mode="fixed", one_device=True)) == pytest.approx(60 + 10 * 160, rel=0.1)
    outcome = simulate(replace(two, mode="fixed"))
    assert outcome.trained == 10 * 128
    assert sum(outcome.staleness.values()) == 2 * outcome.trained


def test_weights_take_their_time_over_a_link() -> None:
    far = Region("far", 1, gbit=4.0, delay=0.5)
    one = Scenario(mode="synchronous", sigma=0.0, updates=2, groups=1, size=1, regions=(far,))
    first = 0.5 + (28 * 8 / 4 + 0.5) + 30 + 0.25 + 60  # lease, full weights, episode, commit, training
    second = 0.25 + (1.5 * 8 / 4 + 0.5) + 30 + 0.25 + 60  # the worker waits for a lease already
    assert seconds(one) == pytest.approx(first + second)
    assert seconds(replace(one, weights="lora")) == pytest.approx(first + second - 56 - 3 + 2 * 0.05 * 8 / 4)


@pytest.mark.parametrize(("weights", "gigabytes"), [("full", 28 * 5), ("delta", 28 + 4 * 1.5), ("lora", 5 * 0.05)])
def test_a_relay_sends_every_update_once_over_the_link(weights: str, gigabytes: float) -> None:
    far = Region("far", 8, gbit=100.0)
    scenario = Scenario(updates=5, mode="synchronous", sigma=0.0, regions=(Region("near", 8), far), weights=weights)
    assert simulate(scenario).crossed == pytest.approx({"near": 0.0, "far": gigabytes * 1e9})
    direct = replace(scenario, regions=(Region("near", 8), replace(far, relay=False)))
    assert simulate(direct).crossed["far"] == pytest.approx(8 * gigabytes * 1e9)


def test_staleness_0_is_the_synchronous_run() -> None:
    scenario = Scenario(updates=8, groups=4, regions=(Region("a", 8), Region("b", 4, 2, 0.5, 1.0, 0.3)))
    expected = simulate(replace(scenario, mode="synchronous"), 5)
    assert simulate(replace(scenario, mode="fixed", staleness=0), 5) == expected
    assert simulate(replace(scenario, mode="ready", staleness=0), 5).hours == expected.hours


def test_modes_come_in_the_order_of_the_published_figures() -> None:
    scenario = Scenario(updates=30)
    hours = {mode: simulate(replace(scenario, mode=mode)).hours for mode in MODES}
    assert hours["synchronous"] > 1.15 * hours["overlap"] > 1.15 * 2 * hours["fixed"] > 2 * hours["ready"]


def test_dropping_what_is_stale_favours_short_episodes() -> None:
    ready = simulate(Scenario(mode="ready", staleness=1, updates=40))
    assert ready.dropped > 0
    assert ready.length < 0.97
    fixed = simulate(Scenario(mode="fixed", staleness=1, updates=40))
    assert fixed.dropped == 0
    assert fixed.length == pytest.approx(1.0)


def test_a_worker_with_room_for_one_version_must_finish_before_it_takes_the_next() -> None:
    scenario = Scenario(updates=10, regions=(Region("a", 2, 32),))
    assert simulate(replace(scenario, versions=1)).hours > 1.2 * simulate(scenario).hours


def test_workers_join_and_leave() -> None:
    scenario = Scenario(updates=20, regions=(Region("a", 16),))
    alone = simulate(scenario)
    joined = simulate(replace(scenario, changes=(WorkerChange(600, "join", 16, "a"),)))
    left = simulate(replace(scenario, changes=(WorkerChange(600, "leave", 8, "a"),)))
    killed = simulate(replace(scenario, changes=(WorkerChange(600, "kill", 8, "a"),)))
    assert joined.hours < alone.hours < left.hours < killed.hours * 1.05
    assert (left.repeated, left.kills) == (0, 0)
    assert (killed.repeated, killed.kills) == (8, 8)
    assert joined.composition == alone.composition == left.composition == killed.composition


def test_when_nobody_is_left_the_run_ends_with_an_error() -> None:
    with pytest.raises(NoWorkers, match="virtual hours"):
        simulate(replace(EQUAL, changes=(WorkerChange(100, "kill", 64, "local"),)))


regions = st.builds(
    Region,
    st.just("b"),
    st.integers(0, 6),
    st.integers(1, 3),
    st.floats(0.2, 3.0),
    st.none() | st.floats(0.5, 50.0),
    st.floats(0.0, 1.0),
    st.booleans(),
)
changes = st.builds(
    WorkerChange, st.floats(0, 2000), st.sampled_from(["join", "leave", "kill"]), st.integers(1, 4), st.just("b")
)
disturbed = st.fixed_dictionaries(
    {
        "regions": regions.map(lambda region: (Region("a", 3), region)),
        "changes": st.lists(changes, max_size=4).map(tuple),
        "versions": st.integers(1, 3),
        "weights": st.sampled_from(["full", "delta", "lora"]),
        "hours_to_death": st.sampled_from([0.5, float("inf")]),
    }
)


def check(scenario: Scenario, outcome: SimulationResult) -> None:
    assert outcome.trained == scenario.updates * scenario.groups * scenario.size
    used = outcome.trained * len(scenario.policies)
    assert sum(outcome.staleness.values()) == used
    assert all(0 <= age <= scenario.bound for age in outcome.staleness)
    if len(scenario.policies) == 1:
        assert outcome.played == outcome.trained + outcome.dropped + outcome.unused
    assert 0 < outcome.worker_use <= 1 + 1e-9
    assert 0 < outcome.trainer_use <= 1 + 1e-9
    assert outcome.repeated == 0 or outcome.kills > 0


@settings(max_examples=25, deadline=None)
@given(
    disturbance=disturbed,
    mode=st.sampled_from(MODES),
    staleness=st.integers(0, 3),
    policies=st.integers(1, 2),
    lockstep=st.booleans(),
    one_device=st.booleans(),
    seed=st.integers(0, 3),
)
def test_whatever_happens_nothing_is_lost_and_nothing_is_too_stale(
    disturbance: dict[str, Any],
    mode: str,
    staleness: int,
    policies: int,
    lockstep: bool,
    one_device: bool,
    seed: int,
) -> None:
    calm = Scenario(
        mode=mode,
        staleness=staleness,
        updates=5,
        groups=3,
        size=2,
        train_seconds=(20.0, 35.0)[:policies],
        train_sigma=0.3,
        lockstep=lockstep,
        one_device=one_device,
        regions=(Region("a", 3),),
    )
    scenario = replace(calm, **disturbance)
    outcome = simulate(scenario, seed)
    check(scenario, outcome)
    if mode != "ready":
        assert outcome.composition == simulate(calm, seed).composition
        assert outcome.dropped == 0


def test_equal_arguments_give_equal_outcomes_in_every_process() -> None:
    code = """
from agentgym_flow.dataflow.simulator.scenario import Region, Scenario
from agentgym_flow.dataflow.simulator import simulate
regions = (Region("x", 4), Region("y", 4, 2, 0.7, 2.0, 0.2))
print(simulate(Scenario(mode="ready", staleness=1, updates=6, groups=4, regions=regions, hours_to_death=0.3), 2))
"""
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(said) == 1
    assert "hours=" in said.pop()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"mode": "fast"}, UnknownOption),
        ({"weights": "half"}, UnknownOption),
        ({"staleness": -1}, BadSetting),
        ({"groups": 0}, BadSetting),
        ({"median": 0.0}, BadSetting),
        ({"sigma": -1.0}, BadSetting),
        ({"train_seconds": ()}, BadSetting),
        ({"lease_seconds": 0.0}, BadSetting),
        ({"regions": (Region("a", 1), Region("a", 2))}, BadSetting),
        ({"changes": (WorkerChange(1.0, "join", 1, "moon"),)}, UnknownName),
        ({"changes": (WorkerChange(1.0, "vanish", 1, "local"),)}, UnknownOption),
        ({"changes": (WorkerChange(-1.0, "join", 1, "local"),)}, BadSetting),
    ],
)
def test_a_scenario_that_cannot_be_is_refused(wrong: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Scenario(**wrong)


@pytest.mark.parametrize("wrong", [{"workers": -1}, {"slots": 0}, {"speed": 0.0}, {"gbit": 0.0}, {"delay": -1.0}])
def test_a_region_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        Region(**{"name": "a", "workers": 1, **wrong})


@pytest.mark.nightly
def test_ten_thousand_workers_in_five_regions_lose_nothing() -> None:
    places = [Region(f"r{n}", 2000, 1, speed, 4.0 if n else None, 0.3) for n, speed in enumerate((1, 0.6, 0.3, 0.8, 1))]
    scenario = Scenario(updates=10, groups=2048, regions=tuple(places), hours_to_death=20.0)
    outcome = simulate(scenario)
    check(scenario, outcome)
    assert outcome.kills > 100
    assert all(outcome.crossed[f"r{n}"] == pytest.approx(1e9 * (28 + 9 * 1.5), rel=0.1) for n in range(1, 5))
