"""One call commits episodes and brings new leases; a repeated one neither loses leases nor gives them twice."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flow_trace import SETUP, WEIGHTS, manager, opened, slots
from little_worker import held, played

from agentgym_flow.dataflow.bookkeeping import journal as journals
from agentgym_flow.dataflow.bookkeeping.journal import ManagerJournal
from agentgym_flow.dataflow.network.client import HttpFlow
from agentgym_flow.dataflow.network.server import serving
from agentgym_flow.dataflow.records import CommitVerdict, Exchanged, Flow, Lease
from agentgym_flow.dataflow.residents import check_generators
from agentgym_flow.dataflow.rollout import RolloutService
from agentgym_flow.dataflow.trace import TracedFlow, TraceWriter, read_trace
from agentgym_flow.errors import PutAside, RunsFinished, UnknownName

ACCEPTED, REPEATED, LATE = CommitVerdict.ACCEPTED, CommitVerdict.REPEATED, CommitVerdict.LATE


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=["in process", "over HTTP"])
def flow(request: pytest.FixtureRequest) -> Iterator[Flow]:
    there = manager()
    if request.param == "in process":
        yield there
        return
    with serving(there, "token") as url, closing(HttpFlow(url, "token", deadline=5.0)) as http:
        yield http


def test_episodes_are_committed_and_their_places_filled(flow: Flow) -> None:
    opened(flow)
    first = flow.exchange("w", [], [], 2)
    assert first.verdicts == []
    assert [one.slot for one in first.leases] == slots(0)[:2]
    one, other = first.leases
    found = flow.exchange("w", [played(one)], [held(other)], 1)
    assert type(found) is Exchanged
    assert found.verdicts == [ACCEPTED]
    assert [lease.slot for lease in found.leases] == slots(0)[2:3], "the one that is played is not returned again"
    states = flow.status()["streams"]["s"]["states"]
    assert (states["committed"], states["leased"], states["queued"]) == (1, 2, 1)


def test_a_lost_answer_is_given_again(flow: Flow) -> None:
    opened(flow)
    (one,) = flow.exchange("w", [], [], 1).leases
    lost = flow.exchange("w", [played(one)], [], 2)
    again = flow.exchange("w", [played(one)], [], 2)
    assert (lost.verdicts, again.verdicts) == ([ACCEPTED], [REPEATED])
    assert again.leases == lost.leases, "the same attempts, and no others"
    more = flow.exchange("w", [], [], 3).leases
    assert [lease.slot for lease in more] == slots(0)[1:], "lost ones come first and count"
    assert [lease.slot for lease in flow.exchange("w", [], [held(more[1])], 1).leases] == slots(0)[1:2], "not too many"
    assert flow.status()["streams"]["s"]["counts"]["leased"] == 4


def test_workers_of_one_name_do_not_share_their_leases(flow: Flow) -> None:
    """Two that were given the same name, or one that is started again while the old one still plays."""
    opened(flow)
    first, second = (RolloutService(flow, name="w") for _ in range(2))
    (one,) = flow.exchange(first.name, [], [], 1).leases
    (other,) = flow.exchange(second.name, [], [], 1).leases
    assert one.slot != other.slot
    assert flow.exchange(first.name, [], [], 1).leases == [one], "its own, whose answer was lost"
    assert {name[:2] for name in flow.status()["workers"]} == {"w-"}


def test_a_lease_that_has_ended_is_not_given_again() -> None:
    clock = Clock()
    there = manager(clock=clock, lease_seconds=10.0)
    opened(there)
    lost = there.exchange("w", [], [], 2).leases
    clock.now = 8.0
    assert there.exchange("w", [], [], 2).leases == lost
    clock.now = 16.0
    assert there.exchange("w", [], [], 2).leases == lost, "to give it again renews it"
    clock.now = 30.0
    others = there.exchange("v", [], [], 2).leases
    assert [one.attempt for one in others] == [2, 2]
    assert [one.slot for one in there.exchange("w", [], [], 4).leases] == slots(0)[2:]
    assert there.exchange("w", [played(one) for one in lost], [], 4).verdicts == [LATE, LATE]
    assert there.commit("v", [played(one) for one in others]) == [ACCEPTED, ACCEPTED]


def test_lost_leases_that_a_worker_has_no_place_for_end() -> None:
    """Such as those of a greater worker of the same name before it: others play them."""
    clock = Clock()
    there = manager(clock=clock, lease_seconds=10.0)
    opened(there)
    (first, *others) = there.exchange("w", [], [], 4).leases
    clock.now = 8.0
    assert there.exchange("w", [], [], 1).leases == [first]
    clock.now = 12.0
    assert [one.slot for one in there.exchange("v", [], [], 4).leases] == [one.slot for one in others]


def test_a_manager_that_was_killed_before_it_answered_gives_the_same_leases(tmp_path: Path) -> None:
    there = manager(journal=ManagerJournal(tmp_path / "journal"))
    opened(there)
    (one,) = there.exchange("w", [], [], 1).leases
    lost = there.exchange("w", [played(one)], [], 2)
    there.close()  # the answer was never sent
    there = manager(store=there._store, journal=ManagerJournal(tmp_path / "journal"))
    again = there.exchange("w", [played(one)], [], 2)
    assert again.verdicts == [REPEATED]
    assert again.leases == lost.leases
    assert there.exchange("w", [played(lease) for lease in again.leases], [], 1).verdicts == [ACCEPTED] * 2


@pytest.mark.parametrize("seed", range(8))
def test_no_lease_is_lost_or_played_twice_whatever_answers_are_lost(seed: int) -> None:
    """Three workers, of whose calls a third are repeated, play each slot once, under its first lease."""
    chance, there = random.Random(seed), manager(clock=Clock())
    claim = opened(there)
    there.admit(claim, slots(0, groups=30, samples=4))
    playing: dict[str, list[Lease]] = {"a": [], "b": [], "c": []}
    done: list[Lease] = []
    for _ in range(2000):  # about 150 are enough
        name = chance.choice([*playing])
        mine = playing[name]
        ready = [mine.pop() for _ in range(chance.randint(0, len(mine)))]
        sent = [played(one) for one in ready], [held(one) for one in mine], chance.randint(1, 6)
        while chance.random() < 1 / 3:
            there.exchange(name, *sent)
        mine += there.exchange(name, *sent).leases
        done += ready
        if len(done) == 120:
            break
    assert sorted(one.slot for one in done) == sorted(slots(0, groups=30, samples=4))
    assert {one.attempt for one in done} == {1}
    assert there.status()["streams"]["s"]["states"]["committed"] == 120


def test_episodes_are_committed_also_if_there_is_no_lease(flow: Flow) -> None:
    claim = opened(flow)
    leases = flow.lease("w", 4)
    flow.finish(claim)
    with pytest.raises(RunsFinished):
        flow.exchange("w", [played(one) for one in leases], [], 4)
    assert len(flow.arrivals(claim, 0)) == 4


def test_a_worker_that_is_put_aside_gets_no_lost_lease(flow: Flow) -> None:
    claim = opened(flow)
    flow.admit(claim, slots(0, groups=40))
    leases = flow.lease("w", 30)
    for one in leases[:20]:
        flow.fail("w", held(one), "it broke")
    with pytest.raises(PutAside):
        flow.exchange("w", [], [], 1)


def test_a_worker_waits_for_leases_after_its_episodes_are_committed() -> None:
    there = manager()
    with serving(there, "token") as url, ThreadPoolExecutor(1) as pool:
        flow = HttpFlow(url, "token", deadline=60.0)
        claim = opened(flow)
        leases = flow.lease("w", 4)
        waiting = pool.submit(flow.exchange, "w", [played(one) for one in leases], [], 2, 60.0)
        arrivals = flow.arrivals(claim, 0, 60.0)
        while len(arrivals) < 4:
            arrivals += flow.arrivals(claim, arrivals[-1].number, 60.0)
        assert not waiting.done()
        flow.ack(claim, 0, [one.played for one in arrivals], [])
        flow.publish(claim, 1, 1, WEIGHTS)
        flow.admit(claim, slots(1))
        found = waiting.result()
    assert found.verdicts == [ACCEPTED] * 4
    assert [one.slot for one in found.leases] == slots(1)[:2]


def test_a_call_that_holds_the_lock_blocks_no_other() -> None:
    """Such as one that writes to a slow disk: a quick call of another worker then waits in a thread."""
    there = manager()
    claim = opened(there)
    with serving(there, "token") as url, ThreadPoolExecutor(2) as pool, closing(HttpFlow(url, "token")) as flow:
        begun, ended = threading.Event(), threading.Event()

        def hold() -> None:
            with there._book.changed:
                begun.set()
                ended.wait(60)

        holding = pool.submit(hold)
        begun.wait()
        beat = pool.submit(flow.beat, claim)
        try:
            for _ in range(20):
                assert flow.fetch("a", 1, None) == WEIGHTS
            assert not beat.done()
        finally:
            ended.set()
        beat.result()
        holding.result()


@pytest.mark.parametrize("is_traced", [False, True])
def test_the_journal_is_not_compacted_in_the_event_loop(is_traced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    compact = ManagerJournal.compact

    def noted(journal: ManagerJournal, streams: Any) -> None:
        threads.append(threading.current_thread().name)
        compact(journal, streams)

    monkeypatch.setattr(journals, "MOST_BYTES", 1)
    monkeypatch.setattr(ManagerJournal, "compact", noted)
    there = manager()
    claim = opened(there)
    flow = TracedFlow(there, TraceWriter(os.devnull)) if is_traced else there
    with serving(flow, "token") as url, closing(HttpFlow(url, "token")) as client:
        threads.clear()
        leases = client.lease("w", 4)
        for lease in leases[:2]:
            assert client.commit("w", [played(lease)]) == [ACCEPTED]
        client.beat(claim)
        several = [*threads]
        journal = there._book._journal
        monkeypatch.setattr(journals, "MOST_BYTES", journal._bytes + 1)  # due as soon as the commits are noted
        exchanged = client.exchange("w", [played(one) for one in leases[2:]], [], 4)
        assert journal.is_due == (threads == several), "at once, or by the next call"
        client.beat(claim)
        assert not journal.is_due
    assert exchanged.verdicts == [ACCEPTED] * 2
    assert len(threads) > len(several) > 0
    assert all(name.startswith("flow") for name in threads)


def test_the_trace_has_what_was_committed_and_leased(tmp_path: Path) -> None:
    there = manager()
    opened(there)
    flow = TracedFlow(there, TraceWriter(tmp_path / "trace.jsonl"))
    first = flow.exchange("w", [], [], 2).leases
    assert flow.exchange("w", [played(one) for one in first], [], 1).verdicts == [ACCEPTED] * 2
    seen: list[tuple[Any, Any]] = [(one["what"], one.get("slots")) for one in read_trace(tmp_path / "trace.jsonl")]
    places = [[*slot.id, 1] for slot in slots(0)]
    wanted = [("lease", places[:2]), ("commit", places[:2]), ("lease", places[2:3])]
    assert [one for one in seen if one[0] in ("lease", "commit")] == wanted


def test_newest_weights_are_told_without_a_whole_status(flow: Flow) -> None:
    claim = flow.open("s", "a", 0, SETUP, "trainer")
    assert flow.newest() == {}
    flow.publish(claim, 0, 0, WEIGHTS)
    flow.admit(claim, slots(0))
    (lease,) = flow.lease("w", 1)
    assert flow.newest() == {"s": {"a": (1, lease.digests["a"])}}


def test_generators_for_policies_that_do_not_exist_are_named() -> None:
    check_generators(
        {"solver": "vllm", "verifier": "vllm", "later": "vllm"}, ["solver", "verifier"], {"solver", "verifier"}
    )
    check_generators("vllm", ["solver"], {"solver"})
    check_generators(None, ["solver"], {"solver"})
    with pytest.raises(UnknownName, match=r"'verifer'.*Did you mean 'verifier'.*Known: solver, verifier"):
        check_generators({"solver": "vllm", "verifer": "vllm"}, ["solver", "verifier"], {"solver", "verifier"})
    with pytest.raises(UnknownName, match=r"'other'.*Known: policy"):
        check_generators({"other": "vllm"}, ["policy"], {"policy"})
