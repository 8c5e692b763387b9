"""The manager as trainers and workers call it: waiting, silence, streams, versions, and restarts from the journal."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flow_parts import Clock, Messages, commit_of, held, make_manager, opened, played

from agentgym_flow.dataflow.bookkeeping.callers import BATCHES, MOST_FAILED, advice
from agentgym_flow.dataflow.bookkeeping.journal import ManagerJournal, digest_of
from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.local_engine import WatchedFlow
from agentgym_flow.dataflow.records import (
    PARTIAL,
    Attempt,
    Claim,
    CommitVerdict,
    Slot,
    SlotId,
    UsedWeights,
    stage_digest,
)
from agentgym_flow.dataflow.trace import TracedFlow, TraceWriter
from agentgym_flow.errors import (
    BadData,
    BadSetting,
    DiskFull,
    FlowDown,
    NoWorkers,
    PutAside,
    RunsFinished,
    Superseded,
    UnknownName,
)

SETUP: dict[str, Any] = {"policies": ["a"], "staleness": 0, "env": "game"}
SHARED: dict[str, Any] = {"policies": ["a", "b"], "staleness": 0, "env": "game"}


@pytest.fixture
def clock() -> Clock:
    return Clock()


def slots(batch: int, groups: int = 2, samples: int = 2) -> list[Slot]:
    return [Slot(batch, group, sample, group, 7) for group in range(groups) for sample in range(samples)]


def first(slots: list[Slot]) -> list[Attempt]:
    """Name the first attempts at slots."""
    return [Attempt(slot.id, 1) for slot in slots]


def turn(manager: Manager, claim: Claim, batch: int, after: int = 0) -> list[str]:
    """Make one batch with one worker; return the payloads."""
    manager.publish(claim, batch, 10 * batch, f"weights {batch}".encode())
    manager.admit(claim, slots(batch))
    manager.commit("w", [played(lease) for lease in manager.lease("w", 100)])
    arrivals = manager.arrivals(claim, after)
    assert manager.ack(claim, batch, [one.played for one in arrivals], []) == []
    return sorted(one.payload for one in arrivals)


# -------------------------------------------------------------------- calls
def test_a_batch_goes_from_trainer_to_workers_and_back(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, SETUP)
    assert manager.describe() == {"s": {**SETUP, "actors": {"a": {}}}}
    assert manager.publish(a, 0, 5, b"weights") == 1
    manager.admit(a, slots(0))
    leases = manager.lease("w", 8)
    assert [lease.slot for lease in leases] == slots(0)
    assert manager.fetch("a", leases[0].weights["a"], None) == b"weights"
    assert manager.commit("w", [played(lease) for lease in leases]) == [CommitVerdict.ACCEPTED] * 4
    assert manager.commit("w", [played(leases[0])]) == [CommitVerdict.REPEATED]
    arrivals = manager.arrivals(a, 0)
    assert [(one.slot, one.payload) for one in arrivals] == [(lease.slot, played(lease).payload) for lease in leases]
    assert {(one.steps["a"], one.updates["a"], one.attempt) for one in arrivals} == {(5, 0, 1)}
    assert manager.arrivals(a, arrivals[1].number) == arrivals[2:]
    manager.ack(a, 0, [one.played for one in arrivals[1:]], [arrivals[0].played])
    assert manager.arrivals(a, 0) == []
    manager.keep(a, 1)
    status = manager.status()
    assert status["streams"]["s"]["states"] == {
        **dict.fromkeys(["queued", "leased", "committed", "used", "withdrawn"], 0),
        "trained": 3,
        "dropped": 1,
    }
    assert status["streams"]["s"]["policies"]["a"]["ages"] == {"0": 3}
    assert status["workers"] == {"w": {"silent": 0.0, "accepted": 4, "repeated": 1}}


def test_any_bytes_can_be_an_episode(clock: Clock, tmp_path: Path) -> None:
    manager = make_manager(clock, journal=ManagerJournal(tmp_path / "journal"))
    a = opened(manager, "s", "a", 0, SETUP)
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0))
    texts = ["", "\ud800", "\0", "é" * 100]
    manager.commit("\udfff", [commit_of(lease, text) for lease, text in zip(manager.lease("w", 4), texts, strict=True)])
    assert [one.payload.decode("utf-8", "surrogatepass") for one in manager.arrivals(a, 0)] == texts


def test_a_rejected_episode_is_played_again(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, SETUP)
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0, 1, 1))
    [lease] = manager.lease("forger", 1)
    manager.commit("forger", [played(lease)])
    manager.reject(a, Attempt(lease.slot.id, lease.attempt), "token 3 is not in the vocabulary")
    manager.reject(a, Attempt(lease.slot.id, lease.attempt), "again")
    assert manager.status()["workers"]["forger"] == {"silent": 0.0, "accepted": 1, "rejected": 1}
    [again] = manager.lease("w", 1)
    assert again.attempt == 2
    assert manager.commit("forger", [played(lease)]) == [CommitVerdict.LATE]


def test_the_same_message_has_the_same_version(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, SETUP)
    assert manager.publish(a, 0, 0, b"weights") == manager.publish(a, 0, 0, b"weights") == 1
    with pytest.raises(BadSetting, match="update 0 was published before, with other weights"):
        manager.publish(a, 0, 0, b"others")


def test_weights_are_kept_before_a_version_is_answered(clock: Clock) -> None:
    store = Messages()
    manager = make_manager(clock, store=store)
    a = opened(manager, "s", "a", 0, SETUP)
    assert manager.publish(a, 0, 0, b"weights") == 1
    store.kept.clear()  # the disk was lost, the journal not
    assert manager.publish(a, 0, 0, b"weights") == 1
    assert manager.fetch("a", 1, None) == b"weights"


def test_an_episode_that_was_played_with_other_weights_is_played_again(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, SETUP)
    manager.publish(a, 0, 0, b"weights")
    manager.admit(a, slots(0, 1, 1))
    [lease] = manager.lease("w", 1)
    assert lease.digests == {"a": digest_of(b"weights")}
    assert manager.commit("w", [played(lease)._replace(digests={"a": digest_of(b"others")})]) == ["other_weights"]
    assert manager.status()["streams"]["s"]["counts"]["other_weights"] == 1
    assert manager.commit("w", [played(lease)]) == [CommitVerdict.LATE]
    assert manager.arrivals(a, 0) == []
    assert manager.lease("w", 1)[0].attempt == 2


def test_a_lease_names_the_settings_that_it_is_to_be_played_with(clock: Clock) -> None:
    manager = make_manager(clock)
    stages = []
    for size in (1, 2):
        a = opened(manager, "s", "a", 0, {**SETUP, "actor": {"size": size}})
        manager.publish(a, 0, 0, b"weights")
        manager.admit(a, slots(0))
        stages += [lease.stage for lease in manager.lease("w", 1)]
        assert stages[-1] == stage_digest(manager.describe()["s"])
    assert stages[0] != stages[1]


@pytest.mark.parametrize("order", ["fixed", "ready"])
def test_weights_that_nobody_needs_are_not_kept(order: str, clock: Clock) -> None:
    store = Messages()
    manager = make_manager(clock, store=store)
    a = opened(manager, "s", "a", 0, {**SETUP, "staleness": 2, "order": order})
    for batch in range(5):
        turn(manager, a, batch)  # when update n is published, batch n - 1 is acknowledged
    assert store.versions() == [3, 4, 5]


@pytest.mark.parametrize("order", ["fixed", "ready"])
def test_weights_that_a_trainer_goes_back_to_are_stored_again(order: str, clock: Clock) -> None:
    store = Messages()
    manager, setup = make_manager(clock, store=store), {**SETUP, "order": order}
    a = opened(manager, "s", "a", 0, setup)
    for batch in range(3):
        turn(manager, a, batch)
    a = opened(manager, "s", "a", 0, setup)
    manager.admit(a, slots(0))
    assert manager.lease("w", 1) == [], "update 0 is not kept any more"
    assert manager.publish(a, 0, 0, b"weights 0") == 4
    manager.admit(a, slots(0, 3))
    [lease, *_] = manager.lease("w", 1)
    assert manager.fetch("a", lease.weights["a"], None) == b"weights 0"


def test_versions_of_present_leases_are_kept(clock: Clock) -> None:
    store = Messages()
    manager = make_manager(clock, store=store)
    a = opened(manager, "s", "a", 0, {**SETUP, "order": "ready"})
    manager.publish(a, 0, 0, b"0")
    manager.admit(a, slots(0, 1, 1))
    [lease] = manager.lease("w", 1)
    for batch in (1, 2):
        manager.ack(a, batch - 1, [], [])
        manager.publish(a, batch, batch, f"{batch}".encode())
    assert store.versions() == [1, 3]
    manager.commit("w", [played(lease)])
    manager.ack(a, 2, [], [Attempt(lease.slot.id, 1)])
    manager.publish(a, 3, 3, b"3")
    assert store.versions() == [4]


# -------------------------------------------------------------------- streams and policies
def test_trainers_of_a_stream_have_the_same_setup(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, SHARED)
    opened(manager, "s", "b", 0, SHARED)
    with pytest.raises(BadSetting, match="stream s has env='game', but this trainer has 'other'"):
        opened(manager, "s", "b", 0, {**SHARED, "env": "other"})
    with pytest.raises(BadSetting, match="must list the stream's policies, c too"):
        opened(manager, "s", "c", 0, SHARED)
    with pytest.raises(BadSetting, match="b acts in stream s, so it cannot act in t too"):
        opened(manager, "t", "b", 0, {"policies": ["b", "c"]})
    with pytest.raises(UnknownName):
        manager.publish(a._replace(policy="c"), 0, 0, b"")
    with pytest.raises(BadData, match="a is trained in stream 't', which the manager does not know"):
        manager.admit(a._replace(stream="t"), [])
    with pytest.raises(UnknownName):
        manager.arrivals(a._replace(policy="c"), 0)


def test_workers_are_shared_out_to_streams_by_need(clock: Clock) -> None:
    manager = make_manager(clock)
    for stream, groups in (("large", 3), ("small", 1)):
        claim = opened(manager, stream, stream, 0, {"policies": [stream]})
        manager.publish(claim, 0, 0, b"")
        manager.admit(claim, slots(0, groups))
    streams = [lease.stream for _ in range(4) for lease in manager.lease("w", 2)]
    assert [streams[:half].count("small") for half in (4, 8)] == [1, 2]


def test_who_waits_for_another_policy_gets_slots_when_its_weights_come(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, SHARED)
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0))
    assert manager.lease("w", 1) == []
    b = opened(manager, "s", "b", 0, SHARED)
    manager.publish(b, 0, 0, b"")
    assert manager.lease("w", 1)[0].weights == {"a": 1, "b": 1}


def test_a_trainer_that_goes_back_voids_what_another_has_not_used(clock: Clock) -> None:
    manager, setup = make_manager(clock), {**SHARED, "staleness": 1}
    a, b = (opened(manager, "s", policy, 0, setup) for policy in "ab")
    for one in (a, b):
        manager.publish(one, 0, 0, b"")
    manager.admit(a, slots(0) + slots(1) + slots(2))
    manager.commit("w", [played(lease) for lease in manager.lease("w", 100)])
    for one in (a, b):
        manager.ack(one, 0, first(slots(0)), [])
        manager.publish(one, 1, 1, b"1")
        manager.ack(one, 1, first(slots(1)), [])
    manager.commit("w", [played(lease) for lease in manager.lease("w", 100)])  # batch 2, with update 1
    a = opened(manager, "s", "a", 0, setup)
    assert manager.ack(b, 2, first(slots(2)), []) == first(slots(2))
    assert manager.status()["streams"]["s"]["states"]["withdrawn"] == 4
    assert {one.slot.batch for one in manager.arrivals(a, 0)} == {0, 1}, "b has used these with its weights"


def test_an_episode_that_another_trainer_has_refused_is_not_trained_on(clock: Clock) -> None:
    manager = make_manager(clock)
    a, b = (opened(manager, "s", policy, 0, SHARED) for policy in "ab")
    for one in (a, b):
        manager.publish(one, 0, 0, b"")
    manager.admit(a, slots(0, 1, 1))
    manager.commit("w", [played(lease) for lease in manager.lease("w", 1)])
    [before] = manager.arrivals(a, 0)
    manager.reject(b, before.played, "another environment")
    manager.commit("w", [played(lease) for lease in manager.lease("w", 1)])
    assert manager.ack(a, 0, [before.played], []) == [before.played], "the slot is there, with another episode"
    [after] = manager.arrivals(a, before.number)
    assert manager.ack(a, 0, [after.played], []) == []


def test_a_trainer_that_was_only_stopped_cannot_go_on(tmp_path: Path, clock: Clock) -> None:
    manager = make_manager(clock, journal=ManagerJournal(tmp_path / "journal"))
    old = manager.open("s", "a", 0, SETUP, "old")
    new = manager.open("s", "a", 0, SETUP, "new")
    assert (old.epoch, new.epoch) == (1, 2)
    assert manager.open("s", "a", 0, SETUP, "new") == new, "an answer that was lost"
    manager.publish(new, 0, 0, b"")
    manager.close()
    manager = make_manager(clock, journal=ManagerJournal(tmp_path / "journal"))
    manager.admit(new, slots(0))
    with pytest.raises(Superseded, match="a newer trainer of a has started"):
        manager.beat(old)
    with pytest.raises(Superseded):
        manager.publish(old, 0, 0, b"older")
    with pytest.raises(Superseded):
        manager.open("s", "a", 0, SETUP, "old")
    assert manager.status()["streams"]["s"]["policies"]["a"]["epoch"] == 2


def test_what_an_earlier_trainer_has_published_otherwise_is_played_again(clock: Clock) -> None:
    """A trainer that begins anew, or on another machine, may have other weights as the same update."""
    manager = make_manager(clock)
    old = opened(manager, "s", "a", 0, SETUP)
    manager.publish(old, 0, 0, b"weights")
    manager.admit(old, slots(0, 1, 1))
    manager.commit("w", [played(lease) for lease in manager.lease("w", 1)])
    new = opened(manager, "s", "a", 0, SETUP)
    assert len(manager.arrivals(new, 0)) == 1
    manager.publish(new, 0, 0, b"others")
    assert manager.arrivals(new, 0) == []
    [lease] = manager.lease("w", 1)
    assert manager.fetch("a", lease.weights["a"], None) == b"others"


def test_weights_that_nobody_will_publish_again_are_named(clock: Clock) -> None:
    manager = make_manager(clock)
    setup = {**SETUP, "staleness": 1}
    a = opened(manager, "s", "a", 0, setup)
    for batch in range(5):
        manager.publish(a, batch, batch, str(batch).encode())
        manager.admit(a, slots(batch) + slots(batch + 1))
        manager.commit("w", [played(lease) for lease in manager.lease("w", 100)])
        manager.ack(a, batch, first(slots(batch)), [])
        if batch == 1:
            manager.keep(a, 2)
    a = opened(manager, "s", "a", 2, setup)  # batch 2 was played with update 1, which is long gone
    manager.publish(a, 2, 2, b"2")
    refused = slots(2)[0]
    manager.reject(a, Attempt(refused.id, 1), "another environment")
    assert manager.lease("w", 1) == []
    with pytest.raises(FlowDown, match=r"slot \(2, 0, 0\) needs the weights of a from before update 2, which are gone"):
        manager.arrivals(a, 24)


# -------------------------------------------------------------------- waiting and silence
def test_waiting_ends_when_there_is_something(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, SETUP)
    found: list[Any] = []
    worker = threading.Thread(target=lambda: found.append(manager.lease("w", 1, wait=60)))
    worker.start()
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0, 1, 1))
    worker.join(30)
    trainer = threading.Thread(target=lambda: found.append(manager.arrivals(a, 0, wait=60)))
    trainer.start()
    manager.commit("w", [played(found[0][0])])
    trainer.join(30)
    assert [one.slot for one in found[1]] == slots(0, 1, 1)
    assert manager.arrivals(a, found[1][0].number, wait=0.01) == []


def test_leases_end_unless_they_are_renewed(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, SETUP)
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0, 1, 2))
    one, other = manager.lease("w", 2)
    clock.now += 4
    assert manager.renew("w", [held(one)]) == []
    clock.now += 4
    [again] = manager.lease("v", 2)
    assert (again.slot, again.attempt) == (other.slot, 2)
    assert manager.renew("w", [held(one), held(other), held(one)._replace(stream="t")]) == [
        held(other),
        held(one)._replace(stream="t"),
    ]
    assert manager.commit("w", [played(one), played(other)]) == [CommitVerdict.ACCEPTED, CommitVerdict.LATE]


def test_a_slot_that_cannot_be_played_is_lost_in_the_end(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, {**SETUP, "max_attempts": 2})
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0, 1, 1))
    for _ in range(2):
        manager.fail("w", held(manager.lease("w", 1)[0]), "the game crashed")
    [lost] = manager.arrivals(a, 0)
    assert (lost.payload, lost.reason) == (b"", "the game crashed")
    manager.reject(a, lost.played, "there is nothing")
    with pytest.raises(BadSetting, match="lost"):
        manager.ack(a, 0, [lost.played], [])
    manager.ack(a, 0, [], [lost.played])


def test_a_trainer_is_told_when_no_worker_has_called(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, SETUP)
    clock.now += 10
    assert manager.arrivals(a, 0) == []
    clock.now += 1
    with pytest.raises(BadData, match="waits for episodes, and the manager knows none"):
        manager.arrivals(a, 0)  # it has planned some, and the journal has lost them
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0))
    clock.now += 10
    assert manager.arrivals(a, 0) == []
    clock.now += 1
    with pytest.raises(NoWorkers, match="for 11 seconds"):
        manager.arrivals(a, 0)
    manager.lease("w", 1)
    assert manager.arrivals(a, 0) == []


def test_a_worker_is_told_when_no_trainer_has_called(clock: Clock) -> None:
    manager = make_manager(clock)
    assert manager.lease("w", 1) == []
    a = opened(manager, "s", "a", 0, SETUP)
    clock.now += 10
    manager.beat(a)
    clock.now += 10
    assert manager.lease("w", 1) == []
    clock.now += 1
    with pytest.raises(FlowDown, match="no trainer has called for 11 seconds"):
        manager.lease("w", 1)


def test_a_trainer_does_not_wait_for_ever_for_another_ones_weights(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, SHARED)
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0))
    clock.now += 11
    manager.beat(a)
    manager.lease("w", 1)
    with pytest.raises(FlowDown, match="new weights of b, whose trainer has not called for 11 seconds"):
        manager.arrivals(a, 0)


# -------------------------------------------------------------------- restarts
def test_a_restart_goes_on(tmp_path: Path, clock: Clock) -> None:
    store, path = Messages(), tmp_path / "folder" / "journal"
    manager = make_manager(clock, store=store, journal=ManagerJournal(path))
    a = opened(manager, "s", "a", 0, SETUP)
    turn(manager, a, 0)
    manager.keep(a, 1)
    manager.publish(a, 1, 10, b"1")
    manager.admit(a, slots(1))
    one, other = manager.lease("w", 2)
    manager.commit("w", [played(one)])
    before = manager.status()
    manager.close()
    with pytest.raises(FlowDown):
        manager.status()
    store.put("a", 3, b"published, and never answered")

    clock.now = 0.0  # another machine
    manager = make_manager(clock, store=store, journal=ManagerJournal(path))
    after = manager.status()
    assert after["streams"] == before["streams"]
    assert store.versions() == [2]
    assert [arrival.payload for arrival in manager.arrivals(a, 0)] == [played(one).payload]
    clock.now = 4.0
    assert manager.commit("w", [played(one), played(other)]) == [CommitVerdict.REPEATED, CommitVerdict.ACCEPTED]
    manager.ack(a, 1, first(slots(1)[:2]), [])
    assert manager.publish(a, 2, 20, b"2") == 3


def test_a_trainer_cannot_go_on_from_what_is_not_there(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, SETUP)
    turn(manager, a, 0)
    with pytest.raises(
        BadData, match="a has trained on 2 batches, of which the manager knows 1: the manager's journal"
    ):
        opened(manager, "s", "a", 2, SETUP)
    manager.keep(a, 1)
    with pytest.raises(BadSetting, match="cannot continue from before batch 0"):
        opened(manager, "s", "a", 0, SETUP)


def test_a_long_journal_is_compacted(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_flow.dataflow.bookkeeping.journal.MOST_BYTES", 700)
    store, path = Messages(), tmp_path / "journal"
    plain, manager = make_manager(clock), make_manager(clock, store=store, journal=ManagerJournal(path))
    claims = [opened(one, "s", "a", 0, SETUP) for one in (manager, plain)]
    assert claims[0] == claims[1]
    for batch in range(6):
        assert turn(manager, claims[0], batch) == turn(plain, claims[0], batch)
        since_start = {"pace": None, "totals": None}
        assert {**manager.status(), **since_start} == {**plain.status(), **since_start}
        manager.close()
        with sqlite3.connect(path) as file:
            assert file.execute("SELECT count(*) FROM calls").fetchone()[0] < 7
        file.close()
        manager = make_manager(clock, store=store, journal=ManagerJournal(path))
        manager.lease("w", 1), plain.lease("w", 1)
        plain._workers._counts.clear()


def test_another_manager_is_kept_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_flow.dataflow.bookkeeping.journal.PATIENCE", 0.05)
    first = ManagerJournal(tmp_path / "journal")
    with pytest.raises(BadSetting, match="another manager has"):
        ManagerJournal(tmp_path / "journal")
    first.close()
    ManagerJournal(tmp_path / "journal").close()


def test_a_restart_knows_settings_and_actors(tmp_path: Path, clock: Clock) -> None:
    manager = make_manager(clock, journal=ManagerJournal(tmp_path / "journal"))
    for size in (1, 2):  # a trainer that comes back may tell something else
        opened(manager, "s", "a", 0, {**SETUP, "actor": {"size": size}})
    told = manager.describe()
    assert told == {"s": {**SETUP, "actors": {"a": {"size": 2}}}}
    manager.close()
    again = make_manager(clock, journal=ManagerJournal(tmp_path / "journal"))
    assert again.describe() == told
    with pytest.raises(BadSetting, match="stream s has staleness=0, but this trainer has 3"):
        opened(again, "s", "a", 0, {**SETUP, "staleness": 3})


def spoilt(path: Path) -> Iterator[None]:
    """Damage a journal in one way after the other."""
    whole = path.read_bytes()
    for statement in (
        "UPDATE calls SET events = replace(events, 'lease', 'leash') WHERE events LIKE '%lease%'",
        "DELETE FROM calls WHERE number = 2",
        "UPDATE calls SET events = '[[\"lease\"]]', sum = 0 WHERE number = 1",
        "UPDATE streams SET setup = '{}'",
        "UPDATE batches SET slots = replace(slots, 'used', 'lost')",
        "DELETE FROM batches",
        "PRAGMA user_version = 99",
        "PRAGMA application_id = 7",
        "DROP TABLE payloads",
    ):
        with sqlite3.connect(path) as file:
            file.execute(statement)
        file.close()
        yield
        path.write_bytes(whole)
    for content in (b"x" * 5000, whole[:5000], whole[:4096] + b"x" * 4096 + whole[8192:]):
        path.write_bytes(content)
        yield


def test_damaged_and_foreign_files_are_refused_and_left_alone(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "journal"
    manager = make_manager(clock, journal=ManagerJournal(path))
    a = opened(manager, "s", "a", 0, SETUP)
    turn(manager, a, 0)
    manager._book._journal.compact(manager._book._streams())
    turn(manager, a, 1, after=4)
    manager.close()
    for _ in spoilt(path):
        damaged = path.read_bytes()
        with pytest.raises(BadData, match=str(path)):
            make_manager(clock, journal=ManagerJournal(path))
        assert path.read_bytes() == damaged


def test_a_damaged_episode_is_noticed(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "journal"
    manager = make_manager(clock, journal=ManagerJournal(path))
    a = opened(manager, "s", "a", 0, SETUP)
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0))
    manager.commit("w", [played(lease) for lease in manager.lease("w", 4)])
    manager.close()
    with sqlite3.connect(path) as file:
        file.execute("UPDATE payloads SET payload = CAST('x' AS BLOB) WHERE number % 2 = 1")
    file.close()
    with pytest.raises(BadData, match="the episode of slot"):
        make_manager(clock, journal=ManagerJournal(path))


# -------------------------------------------------------------------- a full disk
def fill(journal: ManagerJournal, spare: int = 0) -> None:
    """Leave room for `spare` more pages of 4 kB only; SQLite then fails as on a full disk."""
    [pages] = journal._file.execute("PRAGMA page_count").fetchone()
    journal._file.execute(f"PRAGMA max_page_count = {pages + spare}")


def make_room(journal: ManagerJournal) -> None:
    journal._file.execute("PRAGMA max_page_count = 100000")


def test_a_full_disk_is_named_and_the_manager_goes_on_when_there_is_space(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "journal"
    journal = ManagerJournal(path)
    manager = make_manager(clock, journal=journal)
    a = opened(manager, "s", "a", 0, SETUP)
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0))
    commits = [commit_of(lease, "x" * 50_000) for lease in manager.lease("w", 4)]
    fill(journal, spare=20)
    assert manager.commit("w", commits[:1]) == [CommitVerdict.ACCEPTED]
    shutil.copytree(tmp_path, tmp_path / "killed")
    full = f"{path} cannot be written, because the disk is full or a quota is reached .*: free some space"
    for _ in range(2):
        for call in (lambda: manager.commit("w", commits[1:]), lambda: manager.arrivals(a, 0), manager.status):
            with pytest.raises(DiskFull, match=full):
                call()
    make_room(journal)
    assert manager.commit("w", commits) == [CommitVerdict.REPEATED] * 4
    arrivals = manager.arrivals(a, 0)
    assert [one.payload for one in arrivals] == [commit.payload for commit in commits]
    assert manager.ack(a, 0, [one.played for one in arrivals], []) == []
    before = manager.status()["streams"]
    manager.close()
    assert make_manager(clock, journal=ManagerJournal(path)).status()["streams"] == before
    killed = make_manager(clock, journal=ManagerJournal(tmp_path / "killed" / "journal"))
    assert len(killed.arrivals(a, 0)) == 1, "what was not answered was not applied"
    assert killed.commit("w", commits) == [CommitVerdict.REPEATED, *[CommitVerdict.ACCEPTED] * 3]


def test_a_stream_that_a_full_disk_has_kept_out_can_begin_later(tmp_path: Path, clock: Clock) -> None:
    journal = ManagerJournal(tmp_path / "journal")
    manager = make_manager(clock, journal=journal)
    large: dict[str, Any] = {**SETUP, "env": "x" * 90_000}
    fill(journal)
    with pytest.raises(DiskFull):
        manager.open("s", "a", 0, large, "first")
    make_room(journal)
    assert manager.describe() == {}
    assert manager.open("s", "a", 0, large, "first").epoch == 1
    setup = {**large, "actor": {"files": "y" * 200_000}}
    fill(journal)
    for _ in range(2):
        with pytest.raises(DiskFull):
            manager.open("s", "a", 0, setup, "second")
    make_room(journal)
    assert manager.open("s", "a", 0, setup, "second").epoch == 2
    told = manager.describe()
    assert told["s"]["actors"] == {"a": setup["actor"]}
    manager.close()
    assert make_manager(clock, journal=ManagerJournal(tmp_path / "journal")).describe() == told


def test_a_full_disk_under_the_calls_that_are_compacted(tmp_path: Path, clock: Clock, monkeypatch: Any) -> None:
    journal, store = ManagerJournal(tmp_path / "journal"), Messages()
    manager = make_manager(clock, journal=journal, store=store)
    a = opened(manager, "s", "a", 0, SETUP)
    for batch in range(3):
        manager.publish(a, batch, batch, b"")
        manager.admit(a, slots(batch, 40, 8))
        manager.ack(a, batch, [], [])
    fill(journal)
    monkeypatch.setattr("agentgym_flow.dataflow.bookkeeping.journal.MOST_BYTES", 700)
    for _ in range(2):
        with pytest.raises(DiskFull):
            manager.beat(a)
    make_room(journal)
    manager.beat(a)
    assert journal._file.execute("SELECT count(*) FROM calls").fetchone() == (0,)
    before = manager.status()["streams"]
    manager.close()
    assert make_manager(clock, journal=ManagerJournal(tmp_path / "journal"), store=store).status()["streams"] == before


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_under_the_weights(code: int, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Messages()
    manager = make_manager(clock, store=store)
    a = opened(manager, "s", "a", 0, SETUP)

    def put(*_: object) -> None:
        raise OSError(code, os.strerror(code), "weights/a@1")

    with monkeypatch.context() as patch:
        patch.setattr(store, "put", put)
        with pytest.raises(DiskFull, match=r"weights/a@1 cannot be written"):
            manager.publish(a, 0, 0, b"weights")
    assert manager.publish(a, 0, 0, b"weights") == 1


def test_a_trainer_beside_the_manager_waits_for_space(tmp_path: Path, clock: Clock, monkeypatch: Any) -> None:
    """As clients over HTTP and Ray do, and past the writer of a trace."""
    journal = ManagerJournal(tmp_path / "journal")
    traced = TracedFlow(make_manager(clock, journal=journal), TraceWriter(tmp_path / "trace"))
    flow = WatchedFlow(traced, lambda: None, 60.0)
    a = opened(flow, "s", "a", 0, SETUP)
    fill(journal)
    monkeypatch.setattr(flow, "_closed", threading.Event())
    monkeypatch.setattr(flow._closed, "wait", lambda _: make_room(journal))  # between two attempts
    flow.admit(a, slots(0, 40, 8))
    assert flow.status()["streams"]["s"]["states"]["queued"] == 320


def test_a_journal_that_cannot_begin_on_a_full_disk_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr("agentgym_flow.dataflow.bookkeeping.journal.open_sqlite", full)
    with pytest.raises(DiskFull, match="journal cannot be written"):
        ManagerJournal(tmp_path / "journal")


# -------------------------------------------------------------------- a journal that is behind
@pytest.mark.parametrize("order", ["fixed", "ready"])
def test_a_journal_that_has_lost_acknowledged_batches_is_called_damaged(
    order: str, tmp_path: Path, clock: Clock
) -> None:
    """A bit of the write-ahead log is flipped, or the log deleted, after a kill; SQLite says nothing of either."""
    batches, store, setup = 7, Messages(), {**SETUP, "order": order}
    manager = make_manager(clock, store=store, journal=ManagerJournal(tmp_path / "journal"))
    a = opened(manager, "s", "a", 0, setup)
    ends = []
    for batch in range(batches):
        turn(manager, a, batch, after=4 * batch)
        ends.append((tmp_path / "journal-wal").stat().st_size)
    shutil.copytree(tmp_path, tmp_path / "killed")
    manager.close()
    copy = tmp_path / "killed" / "journal"
    wal = (tmp_path / "killed" / "journal-wal").read_bytes()
    main = copy.read_bytes()
    lost = []
    for at in (None, *(one - 2000 for one in ends), *range(40, ends[0], ends[0] // 5)):
        copy.write_bytes(main)
        content = bytearray(wal)
        if at is not None:
            content[at] ^= 16
        copy.with_name("journal-wal").write_bytes(content if at is not None else b"")
        again = make_manager(clock, store=Messages(), journal=ManagerJournal(copy))
        policies = again.status()["streams"].get("s", {"policies": {"a": {"done": 0}}})["policies"]
        lost.append(batches - policies["a"]["done"])
        assert lost[-1] > 0, at
        for call in (
            partial(opened, again, "s", "a", batches, setup),  # a trainer resumes
            partial(again.ack, a, batches, [], []),  # a trainer has lived on
            partial(again.publish, a, batches, 0, b"next"),
            partial(again.arrivals, a, 4 * batches + 1),
        ):
            with pytest.raises(BadData, match=r"the manager's journal is damaged .*resume from a checkpoint"):
                call()
        assert again.status()["streams"].keys() <= {"s"}
        again.close()
    assert {*range(1, batches + 1)} == {*lost}


def test_a_new_manager_cannot_continue_a_run(clock: Clock) -> None:
    """Not even where no earlier weights are needed: versions and claims would begin anew."""
    for setup in (SETUP, {**SETUP, "staleness": 2}, {**SETUP, "staleness": 2, "order": "ready"}):
        manager = make_manager(clock)
        with pytest.raises(BadData, match="a has trained on 3 batches, of which the manager knows 0"):
            opened(manager, "s", "a", 3, setup)
        assert manager.describe() == {}


# -------------------------------------------------------------------- large episodes
def test_an_episode_that_is_too_long_is_not_kept(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_flow.dataflow.bookkeeping.book.LONGEST", 1000)
    manager = make_manager(clock, journal=ManagerJournal(tmp_path / "journal"))
    a = opened(manager, "s", "a", 0, {**SETUP, "max_attempts": 2})
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0, 1, 1))
    for text in ("x" * 100_000, "é" * 501):
        [lease] = manager.lease("w", 1)
        assert manager.commit("w", [commit_of(lease, text)]) == ["too_long"]
    assert manager.commit("w", [commit_of(lease, "x")]) == [CommitVerdict.LATE]
    [lost] = manager.arrivals(a, 0)
    assert (lost.payload, lost.reason) == (b"", "its episode has 1,002 bytes, and at most 1,000 are accepted")
    assert manager.status()["workers"] == {"w": {"silent": 0.0, "too_long": 2, "failed": 2, "late": 1}}
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 100_000


def test_a_worker_has_a_quota_of_what_was_not_used_yet(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentgym_flow.dataflow.bookkeeping.book.QUOTA", 2500)
    manager = make_manager(clock, journal=ManagerJournal(tmp_path / "journal"))
    a = opened(manager, "s", "a", 0, SETUP)
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0, 3, 2))
    leases = manager.lease("greedy", 3)
    texts = [commit_of(lease, "x" * 1000) for lease in leases]
    assert manager.commit("greedy", texts) == ["accepted", "accepted", "over_quota"]
    assert manager.status()["workers"]["greedy"]["unused"] == 2000
    assert manager.commit("modest", [commit_of(one, "x" * 1000) for one in manager.lease("modest", 1)]) == ["accepted"]
    manager.reject(a, Attempt(leases[0].slot.id, 1), "no such step")
    manager.ack(a, 0, [Attempt(leases[1].slot.id, 1)], [])
    assert "unused" not in manager.status()["workers"]["greedy"]
    manager.close()
    manager = make_manager(clock, journal=ManagerJournal(tmp_path / "journal"))  # it is known after a restart too
    assert manager.commit("greedy", [commit_of(one, "x" * 1250) for one in manager.lease("greedy", 4)]) == [
        "accepted",
        "accepted",
        "over_quota",
        "over_quota",
    ]
    assert manager.status()["workers"]["greedy"]["unused"] == 2500
    with pytest.raises(BadSetting, match="the name of a worker has at most 200 characters"):
        manager.lease("w" * 201, 1)
    manager.fail("w", held(manager.lease("w", 1)[0]), "y" * 100_000)
    assert max(len(entry.reason) for entry in manager._book.ledgers["s"].entries.values()) <= 1000


def test_a_journal_that_cannot_be_written_ends_the_manager(tmp_path: Path, clock: Clock) -> None:
    journal = ManagerJournal(tmp_path / "journal")
    manager = make_manager(clock, journal=journal)
    a = opened(manager, "s", "a", 0, SETUP)
    manager.publish(a, 0, 0, b"")
    journal._file.execute("PRAGMA query_only = ON")
    for _ in range(2):
        with pytest.raises(FlowDown, match="the journal cannot be used"):
            manager.admit(a, slots(0))
    journal.close()
    manager = make_manager(clock, journal=ManagerJournal(tmp_path / "journal"))
    assert manager.status()["streams"]["s"]["counts"] == {}


CHILD = """
import sys
from flow_parts import Clock, make_manager, played
from agentgym_flow.dataflow.bookkeeping.journal import ManagerJournal, digest_of
from agentgym_flow.dataflow.records import Attempt, Slot
slots = lambda batch: [Slot(batch, group, 0, group, 7) for group in range(4)]
clock = Clock()
manager = make_manager(clock, journal=ManagerJournal(sys.argv[1]), lease_seconds=1e9, deadline=1e12)
clock.now += 2e9  # nobody plays on what an earlier process has leased
there = manager.status()["streams"].get("s")
done = there["policies"]["a"]["done"] if there else 0
a = manager.open("s", "a", done, {"policies": ["a"]}, sys.argv[2])
for batch in range(done, 1000000):
    print("published", manager.publish(a, batch, batch, str(batch).encode()), batch, flush=True)
    manager.admit(a, slots(batch))
    for lease in manager.lease("w", 10):
        print("leased", *lease.slot.id, lease.attempt, flush=True)
        print(manager.commit("w", [played(lease)])[0].value, *lease.slot.id, flush=True)
    print("acked", batch, manager.ack(a, batch, [one.played for one in manager.arrivals(a, 0)], []), flush=True)
"""


def slot_id(words: list[str]) -> SlotId:
    batch, group, sample = map(int, words[:3])
    return batch, group, sample


@pytest.mark.heavy
def test_a_killed_manager_has_lost_nothing_that_it_answered(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    published: dict[int, int] = {}
    for lines in (3, 100):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), str(lines)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        assert child.stdout is not None
        told = [child.stdout.readline() for _ in range(lines)]
        os.kill(child.pid, signal.SIGKILL)
        told += [line for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        child.wait()
        child.stdout.close()
        manager = make_manager(Clock(), journal=ManagerJournal(path))
        policy = manager.status()["streams"]["s"]["policies"]["a"]
        entries = manager._book.ledgers["s"].entries
        for line in told:
            word, *numbers = line.split()
            if word == "published":
                assert policy["newest"]["version"] >= int(numbers[0])
                assert published.setdefault(int(numbers[0]), int(numbers[1])) == int(numbers[1]), "none comes twice"
            elif word == "acked":
                assert policy["done"] > int(numbers[0])
                assert numbers[1] == "[]", line
            elif word == "leased":
                assert entries[slot_id(numbers)].attempt >= int(numbers[3])
            else:
                assert word == "accepted"
                assert entries[slot_id(numbers)].state in ("committed", "used")
        manager.close()


# -------------------------------------------------------------------- pace
def test_figures_cover_the_last_batches(clock: Clock) -> None:
    """Who waits, and how many episodes come and go: what the advice on workers is computed from."""
    manager = make_manager(clock, deadline=1e6)
    a = opened(manager, "s", "a", 0, SETUP)

    def late(_: Any) -> bool:  # the trainer waits; meanwhile a batch is played
        leases = manager.lease("w", 100)
        clock.now += 3.0
        manager.commit("w", [played(lease) for lease in leases])
        return True

    for batch in range(BATCHES + 4):
        clock.now += 1.0  # of training
        manager.publish(a, batch, batch, f"{batch}".encode())
        manager.admit(a, slots(batch))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(manager._book, "waited", late)
            arrivals = manager.arrivals(a, 4 * batch, 1.0)
        manager.ack(a, batch, [one.played for one in arrivals], [])
    figures = manager.status()
    many = BATCHES
    expected = {"seconds": 4.0 * many, "waited": 3.0 * many, "used": 4 * many, "entered": 4 * many}
    expected |= {"idle": (3.0 * 96 + 1.0 * 100) * many, "busy": 3.0 * 4 * many}
    assert {name: figures["pace"]["a"][name] for name in expected} == expected
    advised = advice(figures)
    assert (advised["target_workers"], advised["busy"]) == (1, 0.03), "96 or 100 of its 100 places were empty"
    assert (advised["workers"], advised["wait"], advised["consumed"], advised["entered"]) == (1, 0.75, 32, 32)
    clock.now += 5.1  # longer than a lease
    assert advice(manager.status())["workers"] == 0
    assert advice(make_manager(clock).status()) == {}


# -------------------------------------------------------------------- workers of which nothing comes
def test_an_episode_that_hangs_is_played_by_another_worker(clock: Clock) -> None:
    """A thread of the worker goes on renewing the lease."""
    manager = make_manager(clock, episode_seconds=20.0)
    a = opened(manager, "s", "a", 0, SETUP)
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0, 1, 1))
    [lease] = manager.lease("w", 1)
    while not manager.renew("w", [held(lease)]):
        clock.now += 3
        manager.beat(a)
        [*again] = manager.lease("v", 1)
        assert clock.now < 130
        if again:
            break
    assert [one.slot for one in again] == [lease.slot]
    assert manager.renew("w", [held(lease)]) == [held(lease)]
    counts = manager.status()["streams"]["s"]["counts"]
    assert (counts["overlong"], counts.get("expired")) == (1, None)


def test_workers_that_all_hang_are_missed_although_they_renew(clock: Clock) -> None:
    manager = make_manager(clock, episode_seconds=20.0)
    a = opened(manager, "s", "a", 0, SETUP)
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0, 1, 1))
    [lease] = manager.lease("w", 1)
    for _ in range(9):  # it is heard of for the last time at 18 seconds, before the limit of 20
        clock.now += 3
        manager.renew("w", [held(lease)])
        assert manager.arrivals(a, 0) == []
    clock.now += 3
    manager.renew("w", [held(lease)])
    with pytest.raises(NoWorkers, match="no rollout worker has called"):
        manager.arrivals(a, 0)


def test_a_worker_does_not_get_again_at_once_what_it_has_failed(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, {**SETUP, "max_attempts": 3})
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0, 1, 1))
    manager.commit("good", [])
    manager.fail("bad", held(manager.lease("bad", 1)[0]), "no data set")
    for _ in range(5):
        assert manager.lease("bad", 1) == [], "another worker may do better"
    [lease] = manager.lease("good", 1)
    assert manager.commit("good", [played(lease)]) == [CommitVerdict.ACCEPTED]
    assert manager.status()["streams"]["s"]["counts"].get("lost", 0) == 0


def test_after_a_while_or_alone_a_worker_tries_again(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, SETUP)
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0, 1, 1))
    manager.fail("w", held(manager.lease("w", 1)[0]), "no data set")
    [again] = manager.lease("w", 1)
    manager.commit("other", [])
    manager.fail("w", held(again), "no data set")
    assert manager.lease("w", 1) == []
    clock.now += 5
    manager.commit("other", [])
    assert [one.attempt for one in manager.lease("w", 1)] == [3]


def test_workers_that_leave_use_up_no_attempts(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, {**SETUP, "max_attempts": 1})
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0, 1, 1))
    for number in range(5):
        manager.give_back(f"w{number}", [held(lease) for lease in manager.lease(f"w{number}", 1)])
    [lease] = manager.lease("last", 1)
    assert lease.attempt == 6
    assert manager.commit("last", [played(lease)]) == [CommitVerdict.ACCEPTED]


@pytest.mark.parametrize("refused", [False, True])
def test_a_worker_of_which_nothing_comes_is_put_aside(refused: bool, clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, SETUP)
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0, MOST_FAILED + 5, 1))
    leases = manager.lease("bad", MOST_FAILED)
    for number, lease in enumerate(leases):
        assert "put_aside" not in manager.status()["workers"]["bad"], number
        if refused:
            manager.commit("bad", [played(lease)])
            manager.reject(a, Attempt(lease.slot.id, lease.attempt), "no such step")
        else:
            manager.fail("bad", held(lease), "no data set")
    why = "no such step" if refused else "no data set"
    with pytest.raises(PutAside, match=f"worker bad was excluded: its last 20 episodes .* because: {why}"):
        manager.lease("bad", 1)
    assert why in manager.status()["workers"]["bad"]["put_aside"]
    clock.now += 11
    manager.commit("bad", [])
    with pytest.raises(NoWorkers, match=f"1 excluded; the last one because its last 20 episodes .*{why}"):
        manager.arrivals(a, MOST_FAILED * refused)
    manager.commit("good", [played(lease) for lease in manager.lease("good", 100)])
    assert len(manager.arrivals(a, 0)) == MOST_FAILED + 5


def test_a_worker_that_succeeds_now_and_then_stays(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, SETUP)
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0, 3 * MOST_FAILED, 1))
    for number, lease in enumerate(manager.lease("w", 3 * MOST_FAILED)):
        if number % 10:
            manager.fail("w", held(lease), "out of memory")
        else:
            manager.commit("w", [played(lease)])
    assert len(manager.lease("w", 100)) == 54


def test_when_all_runs_are_finished_workers_are_told(tmp_path: Path, clock: Clock) -> None:
    manager = make_manager(clock, journal=ManagerJournal(tmp_path / "journal"))
    assert manager.lease("w", 1) == [], "no run has begun"
    a, b = (opened(manager, "s", policy, 0, SHARED) for policy in "ab")
    manager.finish(a)
    assert manager.lease("w", 1) == []
    manager.finish(b)
    manager.close()
    manager = make_manager(clock, journal=ManagerJournal(tmp_path / "journal"))
    clock.now += 1000
    with pytest.raises(RunsFinished):
        manager.lease("w", 1)
    opened(manager, "t", "c", 0, {"policies": ["c"]})
    assert manager.lease("w", 1) == []
    opened(manager, "s", "a", 0, SHARED)
    assert not manager.status()["streams"]["s"]["policies"]["a"]["finished"]


def test_weights_of_a_trainer_that_has_finished_are_not_waited_for(clock: Clock) -> None:
    manager = make_manager(clock)
    a, b = (opened(manager, "s", policy, 0, SHARED) for policy in "ab")
    manager.publish(a, 0, 0, b"")
    manager.admit(a, slots(0))
    manager.finish(b)
    with pytest.raises(FlowDown, match="new weights of b, whose trainer has finished"):
        manager.arrivals(a, 0)


# -------------------------------------------------------------------- partial rollouts
def test_newer_weights_are_checked_by_their_digests_and_void_ones_are_no_fault(tmp_path: Path, clock: Clock) -> None:
    manager = make_manager(clock, journal=ManagerJournal(tmp_path / "journal"))
    a = opened(manager, "s", "a", 0, {"policies": ["a"], "order": "ready", PARTIAL: True})
    manager.publish(a, 0, 0, b"first")
    manager.admit(a, slots(0, 3))
    leases = manager.lease("w", 6)
    manager.ack(a, 0, [], [])
    manager.publish(a, 1, 10, b"second")
    one, two = UsedWeights("a", 1, digest_of(b"first")), UsedWeights("a", 2, digest_of(b"second"))
    commits = [played(lease) for lease in leases]

    def verdict(number: int, *used: UsedWeights) -> CommitVerdict:
        return manager.commit("w", [commits[number]._replace(used=used)])[0]

    assert verdict(0, *[one, two] * 5) is verdict(1, two) is CommitVerdict.ACCEPTED
    assert verdict(0, one, two) is CommitVerdict.REPEATED
    refused = [verdict(2), verdict(3, one._replace(version=0)), verdict(4, one, two._replace(digest=one.digest))]
    refused.append(verdict(5, one, two._replace(policy="b")))
    assert refused == [CommitVerdict.OTHER_WEIGHTS] * 4
    [again] = manager.lease("w2", 1)
    assert again.weights == {"a": 2}
    commits[2] = played(again)
    assert verdict(2, one, two) is CommitVerdict.OTHER_WEIGHTS, "older than its lease names"
    manager.close()
    manager = make_manager(clock, journal=ManagerJournal(tmp_path / "journal"))
    found = [(arrival.steps, arrival.updates, arrival.used) for arrival in manager.arrivals(a, 0)]
    assert found == [
        ({"a": 0}, {"a": 0}, (("a", 1, 0), ("a", 2, 10))),
        ({"a": 10}, {"a": 1}, (("a", 2, 10),)),
    ]
    a = opened(manager, "s", "a", 0, {"policies": ["a"], "order": "ready", PARTIAL: True})
    assert manager.arrivals(a, 0) == [], "both went on with weights that are void now"
    commits[0] = played(manager.lease("w3", 1)[0])
    before = manager.status()["streams"]["s"]["counts"]
    assert verdict(0, one, two) is CommitVerdict.LATE
    after = manager.status()["streams"]["s"]["counts"]
    assert after == {**before, "given_back": 1}, "which is no failed attempt"
    commits[1] = played(manager.lease("w4", 1)[0])
    assert verdict(1, one, two._replace(version=9)) is CommitVerdict.OTHER_WEIGHTS, "a version that never existed"


def test_a_stream_without_the_setting_takes_no_newer_weights(clock: Clock) -> None:
    manager = make_manager(clock)
    a = opened(manager, "s", "a", 0, SETUP)
    manager.publish(a, 0, 0, b"first")
    manager.admit(a, slots(0))
    commit = played(manager.lease("w", 1)[0])._replace(used=(UsedWeights("a", 1, digest_of(b"first")),))
    assert manager.commit("w", [commit]) == [CommitVerdict.OTHER_WEIGHTS]
