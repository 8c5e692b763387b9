"""Many clients at once, and a server that is killed and started again: every request ends once, right or as failed."""

from __future__ import annotations

import signal
import threading
import time
from collections import defaultdict

import pytest
from retriever_running import Echo, running, said

from agentgym_flow.errors import RetrieverFailed
from agentgym_flow.retrieval.remote import RemoteRetriever

CLIENTS = 64


class Clients:
    """So many rollouts, each with its own queries one after the other; `outcomes` has what came of each query."""

    def __init__(self, retriever: RemoteRetriever, turns: int) -> None:
        self.outcomes: dict[str, list[str]] = defaultdict(list)
        self.turns = turns
        self._retriever = retriever
        self._threads = [threading.Thread(target=self._roll_out, args=(n,), daemon=True) for n in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _roll_out(self, number: int) -> None:
        for turn in range(self.turns):
            query = f"{number}.{turn}"
            try:
                found = self._retriever.search([query], 3)
            except RetrieverFailed:
                self.outcomes[query].append("failed")
                continue
            right = found == [[said(query, n) for n in range(3)]]
            self.outcomes[query].append("right" if right else "wrong")

    def done(self) -> int:
        return len(self.outcomes)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in self._threads)
        asked = {f"{number}.{turn}" for number in range(CLIENTS) for turn in range(self.turns)}
        assert set(self.outcomes) == asked
        assert all(len(came) == 1 for came in self.outcomes.values()), "nothing is answered twice"
        assert all(came != ["wrong"] for came in self.outcomes.values())

    def failed(self) -> int:
        return sum(came == ["failed"] for came in self.outcomes.values())


def test_64_clients_get_their_own_answers_in_batches() -> None:
    retriever = Echo(0.002)
    with running(retriever) as address:
        clients = Clients(RemoteRetriever(address), turns=6)
        clients.join()
        assert clients.failed() == 0
    sizes = [len(batch) for batch in retriever.batches]
    assert sum(sizes) == CLIENTS * 6
    assert len(sizes) < sum(sizes) / 2, "they are searched for together"
    assert max(sizes) <= 64


def test_64_clients_get_through_a_short_queue() -> None:
    with running(Echo(0.001), max_waiting=16, max_batch=16) as address:
        clients = Clients(RemoteRetriever(address, retries=50), turns=2)
        clients.join()
        assert clients.failed() == 0


def wait_for(clients: Clients, count: int) -> None:
    end = time.monotonic() + 60
    while clients.done() < count:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_asked_to_end_answers_what_is_under_way(program, how) -> None:
    program.start()
    clients = Clients(RemoteRetriever(program.address, retries=0, deadline=10.0, breaker_failures=10**6), turns=30)
    wait_for(clients, 64)
    assert program.stop(how) == -how
    clients.join()
    assert 64 <= CLIENTS * 30 - clients.failed() < CLIENTS * 30


@pytest.mark.heavy
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_is_killed_and_started_again_loses_nothing(program, how) -> None:
    program.start()
    clients = Clients(RemoteRetriever(program.address), turns=100)
    for part in (1, 2, 3):
        wait_for(clients, CLIENTS * 25 * part)
        program.stop(how)
        time.sleep(0.5)
        program.start()
    clients.join()
    assert clients.failed() == 0
    assert program.stop(signal.SIGTERM) == -signal.SIGTERM


@pytest.mark.heavy
def test_what_an_impatient_client_loses_is_marked(program) -> None:
    program.start()
    impatient = RemoteRetriever(program.address, retries=1, deadline=0.5, breaker_failures=3, breaker_rest=0.2)
    clients = Clients(impatient, turns=200)
    wait_for(clients, CLIENTS * 20)
    program.stop(signal.SIGKILL)
    time.sleep(2.0)  # longer than any client waits
    program.start()
    clients.join()
    assert clients.failed() > 0
    assert impatient.search(["after"], 1) == [[said("after", 0)]]


@pytest.mark.nightly
def test_a_long_run_searches_once_for_each_query() -> None:
    retriever = Echo(0.001)
    with running(retriever) as address:
        clients = Clients(RemoteRetriever(address), turns=200)
        clients.join()
        assert clients.failed() == 0
    assert sum(map(len, retriever.batches)) == CLIENTS * 200
