"""The ledger under everything that can happen, and each rule of it alone."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections import Counter
from math import inf
from pathlib import Path
from typing import Any

import pytest
from flow_parts import Clock, Messages, commit_of, held, opened
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentgym_flow.dataflow.bookkeeping import journal as journal_module
from agentgym_flow.dataflow.bookkeeping.callers import MOST_FAILED
from agentgym_flow.dataflow.bookkeeping.entries import SlotState
from agentgym_flow.dataflow.bookkeeping.journal import ManagerJournal, digest_of
from agentgym_flow.dataflow.bookkeeping.ledger import FIXED, ORDERS, READY, Ledger
from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.bookkeeping.progress import PublishedWeights
from agentgym_flow.dataflow.records import (
    PARTIAL,
    Arrival,
    Attempt,
    Claim,
    Commit,
    CommitVerdict,
    Lease,
    Slot,
    SlotId,
    UsedWeights,
)
from agentgym_flow.errors import BadData, BadSetting, PutAside, Superseded, UnknownName, UnknownOption

SIZE = 2  # slots of a batch
FORGED = "forged"


def planned(batch: int) -> list[Slot]:
    return [Slot(batch, group, 0, group, batch) for group in range(SIZE)]


def trained(weights: str, batch: dict[SlotId, str]) -> str:
    """Return the weights after training on the episodes of a batch."""
    return hashlib.sha256(json.dumps([weights, sorted(batch.items())]).encode()).hexdigest()[:8]


def episode(slot: Slot, weights: dict[str, str]) -> str:
    return f"{[*slot]} played with {sorted(weights.items())}"


def synchronous(policies: list[str], staleness: int, count: int) -> list[dict[SlotId, str]]:
    """Return the batches of a run in one loop, in which nothing ever goes wrong."""
    weights, batches = {policy: [policy] for policy in policies}, []
    for batch in range(count):
        played_with = {policy: updates[max(0, batch - staleness)] for policy, updates in weights.items()}
        batches.append({slot.id: episode(slot, played_with) for slot in planned(batch)})
        for updates in weights.values():
            updates.append(trained(updates[-1], batches[-1]))
    return batches


class Trainer:
    """A trainer that can be killed, or superseded by another one of the same policy."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.history = [policy]  # its weights after each update
        self.batches: list[dict[SlotId, str]] = []
        self.dropped = 0
        self.inbox: dict[SlotId, Arrival] = {}
        self.checkpoint: tuple[list[str], list[dict[SlotId, str]], int] = ([policy], [], 0)

    def write_checkpoint(self) -> None:
        self.checkpoint = (list(self.history), list(self.batches), self.dropped)

    def open(self, manager: Manager, setup: dict[str, Any], *, others: bool = False) -> None:
        history, batches, self.dropped = self.checkpoint
        self.history, self.batches, self.inbox = list(history), list(batches), {}
        if others:  # another machine rounds otherwise
            self.history[-1] += "'"
        self.claim = opened(manager, "s", self.policy, len(self.batches), {"max_attempts": 1000, **setup})

    def step(self, manager: Manager, order: str, staleness: int, *, repeat: bool, receive: bool = True) -> bool:
        """Make the next batch if its episodes are there; each call is repeated if the answers are lost."""
        number = len(self.batches)
        for _ in range(1 + repeat):
            manager.publish(self.claim, number, number, self.history[-1].encode())
            ahead = 0 if order == FIXED else -(-self.dropped // SIZE)
            manager.admit(
                self.claim, [slot for batch in range(number, number + staleness + 1 + ahead) for slot in planned(batch)]
            )
        if receive:
            self.receive(manager)
        return self._ack(manager, number, order, staleness, repeat)

    def receive(self, manager: Manager) -> None:
        for arrival in manager.arrivals(self.claim, max([0, *(one.number for one in self.inbox.values())])):
            self.inbox[arrival.slot.id] = arrival
        for slot, arrival in list(self.inbox.items()):
            if arrival.payload.startswith(FORGED.encode()):
                manager.reject(self.claim, arrival.played, "forged")
                del self.inbox[slot]

    def _ack(self, manager: Manager, number: int, order: str, staleness: int, repeat: bool) -> bool:
        there = sorted(self.inbox.values(), key=lambda one: one.number)
        stale = [one for one in there if number - one.updates[self.policy] > staleness]
        if order == FIXED:
            assert not stale
            there = [one for one in there if one.slot.batch == number]
        there = [one for one in there if one not in stale][:SIZE]
        if len(there) < SIZE:
            return False
        used, drops = [one.played for one in there], [one.played for one in stale]
        for _ in range(1 + repeat):
            void = manager.ack(self.claim, number, used, drops)
        for attempt in void or used + drops:
            del self.inbox[attempt.slot]
        if void:
            return False
        self.batches.append({one.slot.id: one.payload.decode() for one in there})
        self.history.append(trained(self.history[-1], self.batches[-1]))
        self.dropped += len(drops)
        return True


class Flow(RuleBasedStateMachine):
    """Trainers, workers and a manager; all of them can be killed at any time, and answers can be lost."""

    @initialize(
        order=st.sampled_from([*ORDERS, PARTIAL]),
        staleness=st.integers(0, 2),
        policies=st.sampled_from(["a", "ab"]),
    )
    def begin(self, order: str, staleness: int, policies: str) -> None:
        self.partial = order == PARTIAL
        self.order, self.staleness, self.policies = READY if self.partial else order, staleness, [*policies]
        self.heard: list[UsedWeights] = []
        self.folder = tempfile.TemporaryDirectory()
        self.store, self.clock = Messages(), Clock()
        self.manager = self.start()
        self.superseded: list[Claim] = []
        self.trainers = [Trainer(policy) for policy in policies]
        for trainer in self.trainers:
            trainer.open(self.manager, self.setup)
        self.leases: list[tuple[Lease, str]] = []
        self.attempts: dict[SlotId, int] = {}
        self.accepted: dict[tuple[SlotId, int], str] = {}
        self.reference = synchronous(self.policies, staleness, 40)

    def start(self) -> Manager:
        return Manager(
            lease_seconds=5.0,
            deadline=1e9,
            journal=ManagerJournal(Path(self.folder.name) / "journal"),
            store=self.store,
            clock=self.clock,
        )

    @property
    def setup(self) -> dict[str, Any]:
        partial = {PARTIAL: True} if self.partial else {}
        return {"policies": self.policies, "order": self.order, "staleness": self.staleness, **partial}

    @property
    def ledger(self) -> Ledger:
        return self.manager._book.ledgers["s"]

    # ---------------------------------------------------------------- trainers
    def trainer(self, number: int) -> Trainer:
        return self.trainers[number % len(self.trainers)]

    @rule(number=st.integers(0, 1), repeat=st.booleans(), receive=st.integers(0, 3))
    def train(self, number: int, repeat: bool, receive: int) -> None:
        """Without `receive` what it has may be void by now."""
        trainer = self.trainer(number)
        if trainer.step(self.manager, self.order, self.staleness, repeat=repeat, receive=receive > 0):
            for slot, payload in trainer.batches[-1].items():
                known = self.ledger.entries[slot].digest
                assert known == digest_of(payload.encode()), "what is trained on is what the ledger has"
                for policy, version in self.ledger.entries[slot].versions():
                    published = self.ledger.of(policy).versions.by_number[version]
                    assert published.update >= len(trainer.batches) - 1 - self.staleness or policy != trainer.policy
                    if len(self.trainers) == 1:
                        ours = {digest_of(weights.encode()) for weights in trainer.history}
                        assert published.digest in ours, "no turn is of weights that a trainer went back behind"

    @rule(number=st.integers(0, 1))
    def receive(self, number: int) -> None:
        self.trainer(number).receive(self.manager)

    @rule(number=st.integers(0, 1), told=st.booleans())
    def write_checkpoint(self, number: int, told: bool) -> None:
        trainer = self.trainer(number)
        trainer.write_checkpoint()
        if told:
            self.manager.keep(trainer.claim, len(trainer.batches))

    @rule(number=st.integers(0, 1), repeat=st.booleans(), others=st.integers(0, 3))
    def kill_trainer(self, number: int, repeat: bool, others: int) -> None:
        """In fixed order it comes back with the same weights: otherwise there is nothing to compare with."""
        trainer = self.trainer(number)
        self.superseded.append(trainer.claim)
        for _ in range(1 + repeat):
            trainer.open(self.manager, self.setup, others=self.order == READY and others == 0)

    @precondition(lambda self: self.superseded)
    @rule(data=st.data())
    def an_old_trainer_calls(self, data: st.DataObject) -> None:
        """It was only stopped, and does not know that another one has its place."""
        claim = data.draw(st.sampled_from(self.superseded))
        before = self.ledger.snapshot()
        done = before["progress"]["done"][claim.policy]
        attempts = [Attempt(slot, entry.attempt) for slot, entry in self.ledger.entries.items()]
        for call in (
            lambda: self.manager.publish(claim, done, done, b"weights of another run"),
            lambda: self.manager.admit(claim, planned(done + 9)),
            lambda: self.manager.arrivals(claim, 0),
            lambda: self.manager.ack(claim, done, attempts, []),
            lambda: self.manager.reject(claim, Attempt((0, 0, 0), 1), "no"),
            lambda: self.manager.keep(claim, done),
            lambda: self.manager.beat(claim),
        ):
            with pytest.raises(Superseded, match=r"a newer trainer of \w has started"):
                call()
        assert self.ledger.snapshot() == before

    # ---------------------------------------------------------------- workers
    @rule(count=st.integers(1, 5))
    def lease(self, count: int) -> None:
        try:
            leases = self.manager.lease("w", count)
        except PutAside:
            assert sum(entry.failures for entry in self.ledger.entries.values()) >= MOST_FAILED
            return
        for lease in leases:
            assert lease.attempt > self.attempts.get(lease.slot.id, 0), "attempts only grow"
            self.attempts[lease.slot.id] = lease.attempt
            weights = {p: self.store.get(p, version, None).decode() for p, version in lease.weights.items()}
            assert lease.digests == {p: digest_of(one.encode()) for p, one in weights.items()}
            self.leases.append((lease, episode(lease.slot, weights)))
            self.heard += [UsedWeights(p, lease.weights[p], lease.digests[p]) for p in lease.weights]

    def sent(self, lease: Lease, payload: str) -> Commit:
        """In a partial stream, an episode goes on with the weights of later leases; void ones may be among them."""
        own = [UsedWeights(p, lease.weights[p], lease.digests[p]) for p in lease.weights]
        later = [one for one in self.heard[-4:] if one.version > lease.weights[one.policy]]
        used = tuple(dict.fromkeys([*own, *later])) if self.partial else ()
        return commit_of(lease, payload)._replace(used=used)

    @rule(count=st.integers(1, 6), forged=st.integers(0, 5))
    def play(self, count: int, forged: int) -> None:
        before = len(self.leases)
        self.lease(count)
        for number, (lease, payload) in enumerate(self.leases[before:]):
            self.hand_in(lease, f"{FORGED} {payload}" if number == forged else payload)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), again=st.booleans(), forged=st.integers(0, 4))
    def commit(self, data: st.DataObject, again: bool, forged: int) -> None:
        lease, payload = data.draw(st.sampled_from(self.leases[-12:]))
        self.hand_in(lease, f"{FORGED} {payload}" if forged == 0 else payload)
        if again:
            self.hand_in(lease, payload)

    def hand_in(self, lease: Lease, payload: str) -> None:
        key = lease.slot.id, lease.attempt
        before = self.ledger.snapshot()
        there = self.ledger.slots.leased(lease.slot.id, lease.attempt)
        [verdict] = self.manager.commit("w", [self.sent(lease, payload)])
        if there and verdict is CommitVerdict.LATE:
            assert self.partial, "it went on with void weights"
            assert there.state is SlotState.QUEUED
            assert there.row()[-2] == next(row for row in before["slots"]["entries"] if row[0] == [*lease.slot])[-2]
            return
        if verdict is CommitVerdict.ACCEPTED:
            assert self.attempts[lease.slot.id] == lease.attempt, "only the last attempt commits"
            assert key not in self.accepted, "and once"
            self.accepted[key] = payload
            return
        if verdict is CommitVerdict.REPEATED:
            assert self.accepted[key] == payload
        before["slots"]["counts"].pop("late", None)
        after = self.ledger.snapshot()
        assert (after["slots"]["counts"].pop("late", 0) > 0) >= (verdict is CommitVerdict.LATE)
        assert after == before

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def play_with_other_weights(self, data: st.DataObject) -> None:
        lease, _ = data.draw(st.sampled_from(self.leases[-12:]))
        there = self.ledger.slots.leased(lease.slot.id, lease.attempt) is not None
        sent = commit_of(lease, "played with weights of another run")._replace(digests={"a": "0" * 64})
        [verdict] = self.manager.commit("w", [sent])
        assert verdict is (CommitVerdict.OTHER_WEIGHTS if there else CommitVerdict.LATE)

    @rule(count=st.integers(1, 4))
    def play_slowly(self, count: int) -> None:
        before = len(self.leases)
        self.lease(count)
        slow = self.leases[before:]
        self.clock.now += 6
        self.lease(count)
        for lease, payload in slow:
            self.hand_in(lease, payload)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), gives_up=st.booleans())
    def renew_or_fail(self, data: st.DataObject, gives_up: bool) -> None:
        lease, _ = data.draw(st.sampled_from(self.leases[-12:]))
        if gives_up:
            self.manager.fail("w", held(lease), "tired")
        else:
            ended = self.manager.renew("w", [held(lease)]) == [held(lease)]
            assert ended == (self.ledger.slots.leased(lease.slot.id, lease.attempt) is None)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        lease, _ = data.draw(st.sampled_from(self.leases[-12:]))
        failures = sum(entry.failures for entry in self.ledger.entries.values())
        for _ in range(2):
            self.manager.give_back("w", [held(lease)])
        assert self.ledger.slots.leased(lease.slot.id, lease.attempt) is None
        assert sum(entry.failures for entry in self.ledger.entries.values()) == failures, "to leave is not to fail"

    @rule(seconds=st.integers(1, 6))
    def time_passes(self, seconds: int) -> None:
        self.clock.now += seconds

    # ---------------------------------------------------------------- the manager
    @rule()
    def kill_manager(self) -> None:
        before, slots = self.ledger.snapshot(), self.ledger.slots
        self.manager.close()
        self.manager = self.start()
        assert self.ledger.snapshot() == before
        counted = Ledger.restore(before).slots
        for name in ("unused", "played_with", "leased_with", "waiting", "_inside", "_numbers", "_batches"):
            assert getattr(slots, name) == getattr(self.ledger.slots, name) == getattr(counted, name), name

    @invariant()
    def all_slots_are_accounted_for(self) -> None:
        states, entries = self.ledger.slots.states(), self.ledger.entries
        assert sum(states.values()) == self.ledger.counts["admitted"]
        found = Counter(entry.state for entry in entries.values())
        assert all(states[state] == found[state] for state in SlotState)

    @invariant()
    def the_journal_has_the_episodes_that_count_and_no_others(self) -> None:
        rows = self.manager._book._journal._file.execute("SELECT number FROM payloads ORDER BY number")
        numbers = sorted(entry.number for entry in self.ledger.entries.values() if entry.digest)
        assert [row[0] for row in rows] == [journal_module._STREAM + number for number in numbers]

    @invariant()
    def each_slot_is_used_once_and_not_too_old(self) -> None:
        for trainer in self.trainers:
            slots = [slot for batch in trainer.batches for slot in batch]
            assert len(slots) == len({*slots})
            ages = self.ledger.progress[trainer.policy].ages
            assert ages.total() == len(slots)
            assert all(0 <= age <= self.staleness for age in +ages)

    @invariant()
    def episodes_are_played_with_weights_of_this_run(self) -> None:
        """With other policies: these may have learnt from episodes of a trainer that has gone back since."""
        for trainer in self.trainers if len(self.trainers) == 1 else []:
            for payload in (payload for batch in trainer.batches for payload in batch.values()):
                assert any(repr(weights) in payload for weights in trainer.history)

    @invariant()
    def fixed_order_is_that_of_one_loop(self) -> None:
        if self.order == FIXED:
            for trainer in self.trainers:
                assert trainer.batches == self.reference[: len(trainer.batches)]

    def teardown(self) -> None:
        if not hasattr(self, "manager"):
            return
        try:
            self.finish()
        finally:
            self.manager.close()
            self.folder.cleanup()

    def finish(self) -> None:
        """One worker that lives is enough for three more batches of each."""
        goal = 3 + max(len(trainer.batches) for trainer in self.trainers)
        for _ in range(20 * goal):
            self.clock.now += 6
            for lease in self.manager.lease("last", 3):
                weights = {p: self.store.get(p, version, None).decode() for p, version in lease.weights.items()}
                self.manager.commit("last", [self.sent(lease, episode(lease.slot, weights))])
            for trainer in self.trainers:
                if len(trainer.batches) < goal:
                    trainer.step(self.manager, self.order, self.staleness, repeat=False)
        assert [len(trainer.batches) for trainer in self.trainers] == [goal] * len(self.trainers)
        self.fixed_order_is_that_of_one_loop()
        self.each_slot_is_used_once_and_not_too_old()


@pytest.fixture(scope="module", autouse=True)
def short_journals() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_module, "MOST_BYTES", 900)
        yield


TestFlow = Flow.TestCase
TestFlow.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


# -------------------------------------------------------------------- each rule alone
def ledger_with(batches: int, policies: str = "a", **options: Any) -> Ledger:
    ledger = Ledger([*policies], **options)
    for policy in policies:
        ledger.publish(policy, PublishedWeights(1, 0, 0))
    ledger.admit(slot for batch in range(batches) for slot in planned(batch))
    return ledger


def play(ledger: Ledger, count: int = 100) -> list[Attempt]:
    entries = ledger.lease("w", count, 5.0)
    assert {ledger.commit(entry.slot.id, entry.attempt, "digest") for entry in entries} <= {CommitVerdict.ACCEPTED}
    return [Attempt(entry.slot.id, entry.attempt) for entry in entries]


def first_of(slots: list[Slot]) -> list[Attempt]:
    return [Attempt(slot.id, 1) for slot in slots]


@pytest.mark.parametrize(
    "options",
    [{"staleness": -1}, {"staleness": True}, {"max_attempts": 0}, {"policies": []}],
)
def test_settings_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        Ledger(**{"policies": ["a"], **options})


def test_orders_and_policies_are_checked() -> None:
    with pytest.raises(UnknownOption):
        Ledger(["a"], order="any")
    with pytest.raises(UnknownName):
        Ledger(["a"]).ack("b", 0, [])


def test_a_plan_is_taken_whole_or_not_at_all() -> None:
    ledger = ledger_with(1, staleness=0)
    other = planned(0)[0]._replace(seed=99)
    with pytest.raises(BadSetting, match="planned with task 0 and seed 0, and again with task 0 and seed 99"):
        ledger.admit([*planned(1), other])
    with pytest.raises(BadSetting, match="same settings"):
        ledger.admit([Slot(2, 0, 0, 0, 0), Slot(2, 0, 0, 0, 1)])
    assert len(ledger.entries) == SIZE


def test_an_ack_is_noted_whole_or_not_at_all() -> None:
    ledger = ledger_with(2, staleness=1)
    used = play(ledger)
    before = ledger.snapshot()
    with pytest.raises(BadData, match="has trained on 1 batches, of which the manager knows 0"):
        ledger.ack("a", 1, used[2:])
    with pytest.raises(BadSetting, match=r"slot \(7, 0, 0\), which was never planned"):
        ledger.ack("a", 0, [*used[:2], Attempt((7, 0, 0), 1)])
    assert ledger.snapshot() == before
    ledger.ack("a", 0, used[:2])
    with pytest.raises(BadSetting, match="has already used slot"):
        ledger.ack("a", 1, used[1:])
    with pytest.raises(BadSetting, match="has already used slot"):
        ledger.ack("a", 0, used[:1], used[1:2])
    assert ledger.ack("a", 0, used[:2]) == []


def test_episodes_that_are_too_old_cannot_be_trained_on() -> None:
    ledger = ledger_with(2, order=READY, staleness=1)
    used = play(ledger)
    ledger.ack("a", 0, used[:1])
    ledger.ack("a", 1, used[1:2])
    with pytest.raises(BadSetting, match="too old for batch 2"):
        ledger.ack("a", 2, used[2:])
    ledger.ack("a", 2, [], used[2:])
    assert dict(ledger.progress["a"].ages) == {0: 1, 1: 1}


def test_a_withdrawn_slot_cannot_be_committed_when_it_is_planned_again() -> None:
    ledger = ledger_with(1, staleness=0)
    ledger.ack("a", 0, play(ledger))
    ledger.publish("a", PublishedWeights(2, 1, 1))
    ledger.admit(planned(1))
    [first] = ledger.lease("early", 1, 5.0)
    ledger.rewind("a", 0)
    assert first.slot.id not in ledger.entries
    ledger.ack("a", 0, first_of(planned(0)))
    ledger.publish("a", PublishedWeights(3, 1, 1))
    ledger.admit(planned(1))
    [second] = ledger.lease("late", 1, 5.0)
    assert (second.slot, second.attempt) == (first.slot, 2)
    assert ledger.commit(first.slot.id, 1, "played with weights that never were") is CommitVerdict.LATE


def test_slots_that_were_withdrawn_before_a_worker_had_them_are_leased_once_when_they_are_planned_again() -> None:
    ledger = ledger_with(1, staleness=0)
    ledger.ack("a", 0, play(ledger))
    ledger.publish("a", PublishedWeights(2, 1, 1))
    ledger.admit(planned(1))
    ledger.rewind("a", 0)
    assert [*ledger.entries] == [slot.id for slot in planned(0)]
    ledger.ack("a", 0, first_of(planned(0)))
    ledger.publish("a", PublishedWeights(3, 1, 1))
    ledger.admit(planned(1))
    assert [entry.played for entry in ledger.lease("w", 9, 5.0)] == first_of(planned(1))
    assert ledger.slots.states()["queued"] == 0


def test_an_episode_that_is_rejected_once_too_often_is_not_counted_as_unused() -> None:
    ledger = ledger_with(1, max_attempts=1)
    [entry] = ledger.lease("w", 1, 5.0)
    ledger.commit(*entry.played, "digest", 2000)
    assert ledger.slots.unused == {"w": 2000}
    assert ledger.reject(*entry.played, "no")
    assert not entry.digest, "the slot is lost"
    assert ledger.slots.unused == {}


def test_what_was_played_with_an_update_published_twice_is_void_once_it_is_gone_back_behind() -> None:
    ledger = ledger_with(2, staleness=0)
    ledger.ack("a", 0, play(ledger))
    ledger.publish("a", PublishedWeights(2, 1, 1))
    played = play(ledger)
    ledger.rewind("a", 1)
    ledger.publish("a", PublishedWeights(3, 1, 1))
    [entry, _] = ledger.arrived("a", SIZE)
    assert ledger.played_with(entry) == {"a": PublishedWeights(2, 1, 1)}, "the old version is known"
    ledger.rewind("a", 0)
    assert {one.slot for one in played}.isdisjoint(ledger.entries)
    assert ledger.slots.gone == [SIZE + 1, SIZE + 2]
    ledger.ack("a", 0, first_of(planned(0)))
    assert ledger.lease("w", 1, 5.0) == [], "update 1 is not there"


def test_a_slot_that_was_used_before_its_turn_is_not_planned_twice() -> None:
    ledger = ledger_with(2, order=READY, staleness=1)
    used = play(ledger)
    ledger.ack("a", 0, used[1:3])  # a slot of batch 1 was faster than one of batch 0
    ledger.keep("a", 1)
    assert (used[1].slot in ledger.entries, ledger.slots.gone) == (False, [2])
    ledger.rewind("a", 1)
    ledger.admit([*planned(0), *planned(1)])
    assert ledger.lease("w", 9, 5.0) == []
    assert ledger.counts["admitted"] == 2 * SIZE


def test_checkpoints_are_of_what_was_acknowledged() -> None:
    ledger = ledger_with(1)
    with pytest.raises(BadData, match="resume from a checkpoint that the journal knows"):
        ledger.keep("a", 1)
    ledger.ack("a", 0, play(ledger))
    ledger.keep("a", 1)
    assert ledger.slots.gone == [1, 2]
    with pytest.raises(BadSetting, match="cannot continue from before batch 0"):
        ledger.rewind("a", 0)
    ledger.admit(planned(0))
    assert ledger.entries == {}, "a plan that comes late brings nothing back"


def test_what_one_policy_has_used_is_not_refused_by_another() -> None:
    ledger = ledger_with(1, "ab", staleness=0)
    one, _ = play(ledger)
    ledger.ack("b", 0, [one])
    assert not ledger.reject(*one, "forged")
    assert [entry.slot.id for entry in ledger.arrived("a", 0)] == [(0, 0, 0), (0, 1, 0)]
    assert [entry.slot.id for entry in ledger.arrived("b", 0)] == [(0, 1, 0)]


def test_leases_end_in_the_order_of_their_deadlines() -> None:
    ledger = ledger_with(2)
    for deadline in (3.0, 1.0, 2.0):
        ledger.lease("w", 1, deadline)
    ledger.renew((0, 1, 0), 1, 9.0)
    assert [entry.slot.id for entry, _ in ledger.expire(2.5)] == [(1, 0, 0)]
    assert ledger.expire(2.5) == []
    ledger.slots.renew_all(5.0, inf)
    assert ledger.expire(5.0) == []
    assert len(ledger.expire(5.1)) == 2
    assert ledger.counts["expired"] == 3


def test_the_write_ahead_log_stays_small_also_if_calls_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It gets whole pages, some 14 KB for an episode of 500 bytes."""
    monkeypatch.setattr(journal_module, "MOST_AHEAD", 1 << 20)
    monkeypatch.setattr(journal_module, "MOST_BYTES", 8 << 20)
    journal = ManagerJournal(tmp_path / "journal")
    journal.load()
    streams: dict[str, tuple[dict[str, Any], Ledger]] = {"s": ({}, Ledger(["a"]))}
    journal.compact(streams)
    for batch in range(500):
        journal.write({"s": [("commit", (batch, 0, 0), 1, "digest", 500)]}, [("s", batch, b"x" * 500)])
        if journal.is_due:
            journal.tidy(streams)
    size = (tmp_path / "journal-wal").stat().st_size
    assert size < 2 << 20
    shutil.copytree(tmp_path, tmp_path / "killed")
    monkeypatch.setattr(journal_module, "MOST_AHEAD", size)
    again = ManagerJournal(tmp_path / "killed" / "journal")
    again.load()
    assert again.is_due, "what a killed manager left counts"
    again.tidy(streams)
    assert not again.is_due
    for one in (journal, again):
        one.close()


@pytest.mark.parametrize("kept", [False, True])
def test_the_cost_of_a_batch_does_not_grow_with_what_is_retained(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of bookkeeping that a batch executes, after few batches and after many."""
    monkeypatch.setattr(journal_module, "MOST_BYTES", 1 << 30)
    manager, lines = Manager(store=Messages(), clock=Clock()), 0
    claim = opened(manager, "s", "a", 0, {"policies": ["a"], "staleness": 1})

    def count(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count if "bookkeeping" in frame.f_code.co_filename else None

    def one_batch(batch: int) -> int:
        manager.publish(claim, batch, batch, f"{batch}".encode())
        manager.admit(claim, planned(batch))
        manager.commit("w", [commit_of(lease, "x") for lease in manager.lease("w", SIZE)])
        arrivals = manager.arrivals(claim, SIZE * batch)
        assert manager.ack(claim, batch, [one.played for one in arrivals], []) == []
        manager.keep(claim, batch if kept else min(batch, 1))
        return len(manager._book.ledgers["s"].entries)

    costs = []
    for batch in range(150):
        before, measured = lines, batch in (20, 149)
        sys.settrace(count if measured else None)
        retained = one_batch(batch)
        sys.settrace(None)
        costs += [lines - before] if measured else []
    assert retained == (SIZE if kept else 149 * SIZE)
    assert costs[1] <= 1.05 * costs[0]
    journal = manager._book._journal
    for expected in (retained // SIZE, 1):  # batches that compaction writes, beside the stream and what it deletes
        before, calls = journal._file.total_changes, journal._file.execute("SELECT count(*) FROM calls").fetchone()[0]
        journal.compact(manager._book._streams())
        assert journal._file.total_changes - before <= calls + expected + 2
        manager.give_back("w", [])
        manager._book.ledgers["s"].slots.changed.add(149)


def test_a_snapshot_goes_through_json() -> None:
    ledger = ledger_with(3, "ab", staleness=1)
    used = play(ledger, 2)
    ledger.ack("a", 0, used[:1], used[1:])
    ledger.lease("w", 1, 5.0)
    ledger.rewind("b", 0)
    again = Ledger.restore(json.loads(json.dumps(ledger.snapshot())))
    assert again.snapshot() == ledger.snapshot()
    assert again.lease("v", 9, 5.0) == ledger.lease("v", 9, 5.0)
    assert again.slots.states() == ledger.slots.states()


# -------------------------------------------------------------------- partial rollouts
def test_an_episode_is_as_old_as_its_oldest_turn() -> None:
    ledger = ledger_with(3, order=READY, staleness=1)
    attempts = [Attempt(entry.slot.id, entry.attempt) for entry in ledger.lease("w", 3, 5.0)]
    for version in (2, 3):
        ledger.ack("a", version - 2, [])
        ledger.publish("a", PublishedWeights(version, version - 1, version - 1))
    for attempt, used in zip(attempts, ([1, 2, 3], [3, 2], [2]), strict=True):
        ledger.commit(*attempt, "digest", 0, [("a", version) for version in used])
    with pytest.raises(BadSetting, match="too old for batch 2"):
        ledger.ack("a", 2, attempts[:1])
    assert ledger.ack("a", 2, attempts[1:]) == []
    assert ledger.progress["a"].ages == {1: 2}, "its lease named older weights, but no turn was of them"
    assert [ledger.entries[one.slot].versions() for one in attempts] == [
        [("a", 1), ("a", 2), ("a", 3)], [("a", 2), ("a", 3)], [("a", 2)]
    ]  # fmt: skip
    assert Ledger.restore(json.loads(json.dumps(ledger.snapshot()))).snapshot() == ledger.snapshot()


def test_what_was_played_with_later_weights_of_a_trainer_that_went_back_is_void() -> None:
    ledger = ledger_with(1, order=READY)
    [(kept, _), (void, _)] = [(entry.slot.id, entry.attempt) for entry in ledger.lease("w", 2, 5.0)]
    ledger.ack("a", 0, [])
    ledger.publish("a", PublishedWeights(2, 1, 1))
    ledger.commit(kept, 1, "digest")
    ledger.commit(void, 1, "digest", 0, [("a", 1), ("a", 2)])
    ledger.rewind("a", 0)
    assert (ledger.slots.gone, ledger.entries[void].state) == ([2], SlotState.QUEUED)
    assert ledger.entries[void].versions() == [("a", 1)], "the lease is all that is left of the attempt"
    assert ledger.counts["rewound"] == 1
