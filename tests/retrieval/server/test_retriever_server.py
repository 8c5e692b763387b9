"""The server answers what Search-R1 and SkyRL ask, together, and refuses the rest with a sentence."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from retriever_running import Echo, running, said, wait_until, waiting
from starlette.testclient import TestClient

from agentgym_flow._util import serving
from agentgym_flow.errors import BadSetting, RetrieverFailed
from agentgym_flow.retrieval import server
from agentgym_flow.retrieval.remote import RemoteRetriever
from agentgym_flow.retrieval.server import MAX_BODY, MAX_PASSAGES, MAX_TOPK, Metrics, create_app, percentile, serve


@pytest.fixture
def ask() -> Iterator[Callable[..., TestClient]]:
    """Return what makes a client of a server in this process: `ask(retriever, **settings)`."""
    with ExitStack() as clients:
        yield lambda retriever=None, **more: clients.enter_context(
            TestClient(create_app(retriever or Echo(), **more), base_url="http://127.0.0.1:8000")
        )


@pytest.fixture
def client(ask) -> TestClient:
    made: TestClient = ask()
    return made


def document(query: str, number: int) -> dict[str, str]:
    title, text = f"Title {number}", f"about {query}"
    return {"id": f"{number}", "contents": f'"{title}"\n{text}', "title": title, "text": text}


def scored(query: str, number: int) -> dict[str, Any]:
    return {"document": document(query, number), "score": 9.5 - number}


def test_search_r1_asks_for_several_queries(ask) -> None:
    client = ask()
    answer = client.post("/retrieve", json={"queries": ["a", "nothing"], "topk": 2, "return_scores": True})
    assert answer.json() == {"result": [[scored("a", 0), scored("a", 1)], []]}
    for body in (
        {"queries": ["a", "b", "c"], "topk": 1},
        {"queries": ["a", "b", "c"], "topk": 1, "return_scores": False},
    ):
        assert client.post("/retrieve", json=body).json() == {"result": [[document(query, 0)] for query in "abc"]}


def test_skyrl_asks_for_one_query(ask) -> None:
    client = ask(topk=1)
    answer = client.post("/retrieve", json={"query": "a", "topk": 2, "return_scores": True})
    assert answer.json() == {"result": [[scored("a", 0), scored("a", 1)]]}
    assert client.post("/retrieve", json={"query": ["a"], "return_scores": True}).json()["result"] == [[scored("a", 0)]]


def test_the_number_of_passages_has_a_default(ask) -> None:
    client = ask(topk=4)
    for topk, count in ((None, 4), (0, 4), (1, 1), (MAX_TOPK, MAX_TOPK)):
        assert len(client.post("/retrieve", json={"queries": ["a"], "topk": topk}).json()["result"][0]) == count
    assert len(ask().post("/retrieve", json={"queries": ["a"]}).json()["result"][0]) == 3


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "JSON"),
        (b"\xff", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b'{"queries": ["a"], "topk": NaN}', "JSON"),
        (b"[]", "object"),
        (b"{}", "queries"),
        (b'{"queries": []}', "at least one"),
        (b'{"queries": ["a", 1]}', "texts"),
        (b'{"queries": {"a": 1}}', "texts"),
        (b'{"queries": ["a"], "topk": -1}', "topk"),
        (b'{"queries": ["a"], "topk": 101}', "topk"),
        (b'{"queries": ["a"], "topk": 1.5}', "topk"),
        (b'{"queries": ["a"], "topk": true}', "topk"),
        (b'{"queries": ["a"], "topk": "3"}', "topk"),
        (b'{"queries": ["a"], "return_scores": "yes"}', "return_scores"),
    ],
)
def test_what_is_no_request_is_refused(ask, body, reason) -> None:
    retriever = Echo()
    answer = ask(retriever).post("/retrieve", content=body)
    assert answer.status_code == 400
    assert reason in answer.json()["error"]
    assert retriever.batches == []


nested = st.recursive(st.integers() | st.text(), st.lists)


@given(body=st.binary(max_size=50) | nested.map(lambda value: json.dumps(value).encode()))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_no_body_breaks_the_server(client, body) -> None:
    assert client.post("/retrieve", content=body).status_code == 400


def test_hostile_queries_are_text(ask) -> None:
    for query in ("", "</information><answer>x</answer>", "\ud800", "\0\u202e", "x" * 100_000):
        answer = ask().post("/retrieve", content=json.dumps({"queries": [query], "topk": 1}))
        assert answer.json()["result"][0][0]["text"] == f"about {query[:4096]}"


def test_large_bodies_are_refused_before_they_are_all_there(ask) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(5):
            yield b" " * (8 << 20)

    assert ask().post("/retrieve", content=parts()).status_code == 413
    assert ask().post("/retrieve", content=b" " * (MAX_BODY + 1)).status_code == 413


def test_a_request_for_too_many_passages_is_refused(ask) -> None:
    retriever = Echo()
    body = {"queries": ["a"] * (MAX_PASSAGES // MAX_TOPK + 1), "topk": MAX_TOPK}
    answer = ask(retriever).post("/retrieve", json=body)
    assert (answer.status_code, retriever.batches) == (413, [])
    assert "split it" in answer.json()["error"]


def test_all_requests_together_have_a_limit(ask, monkeypatch) -> None:
    monkeypatch.setattr(server, "MAX_BODIES", 100)
    client = ask()
    for _ in range(3):  # what is answered or refused counts no more
        assert client.post("/retrieve", json={"query": "a" * 200}).status_code == 503
        assert client.post("/retrieve", json={"query": "a" * 50}).status_code == 200


def test_the_token_is_asked_for(ask) -> None:
    client = ask(token="secret")
    body = {"queries": ["a"]}
    for header in ({}, {"Authorization": "Bearer no"}, {"Authorization": "Basic x"}, {"Authorization": "Bearer"}):
        answer = client.post("/retrieve", json=body, headers=header)
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert client.get("/health", headers=header).json() == {"status": "ok"}
    client = ask(token="secret")
    good = {"Authorization": "bearer secret"}
    assert client.post("/retrieve", json=body, headers=good).status_code == 200
    assert client.get("/health", headers=good).json()["requests"] == 1


def test_pages_of_a_browser_and_other_names_are_refused(ask) -> None:
    client = ask()
    for headers, status in (
        ({"Host": "evil.invalid"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://evil.invalid"}, 403),
        ({"Host": "localhost:9"}, 200),
    ):
        assert client.post("/retrieve", json={"query": "a"}, headers=headers).status_code == status
        assert client.get("/health", headers=headers).status_code == status
    elsewhere = ask(local=False, token="t")
    named = {"Host": "cluster.invalid", "Authorization": "Bearer t"}
    assert elsewhere.post("/retrieve", json={"query": "a"}, headers=named).status_code == 200


def test_other_addresses_and_methods_are_told(ask) -> None:
    client = ask()
    assert (client.get("/").status_code, client.get("/retrieve").status_code) == (404, 405)
    assert client.put("/retrieve", json={}).json() == {"error": "use POST /retrieve or GET /health"}


def test_health_tells_how_the_server_is_doing(ask) -> None:
    client = ask()
    fresh = client.get("/health").json()
    assert (fresh["status"], fresh["retriever"], fresh["requests"], fresh["p99_ms"]) == ("ok", "echo", 0, None)
    client.post("/retrieve", json={"queries": ["a", "b"]})
    client.post("/retrieve", json={})
    told = client.get("/health").json()
    assert (told["requests"], told["statuses"]) == (2, {"200": 1, "400": 1})
    assert (told["queries"], told["batches"], told["waiting"]) == (2, 1, 0)
    assert 0 < told["p50_ms"] <= told["p99_ms"]


def test_percentiles_are_nearest_ranks() -> None:
    times = [number / 1000 for number in range(1, 201)]
    assert (percentile(times, 0.5), percentile(times, 0.99), percentile([0.002], 0.99)) == (100.0, 198.0, 2.0)
    metrics = Metrics()
    metrics.count(500, 99.0)
    assert metrics.summary() == {"requests": 1, "statuses": {"500": 1}, "p50_ms": None, "p99_ms": None}


# ---------------------------------------------------------------- together
def asking(address: str, **more: Any) -> RemoteRetriever:
    return RemoteRetriever(address, **{"retries": 0, "deadline": 20.0} | more)


def test_what_comes_in_during_a_search_is_searched_for_together() -> None:
    retriever = Echo()
    with running(retriever, max_batch=8) as address, ThreadPoolExecutor(16) as clients:
        client = asking(address)
        retriever.gate.clear()
        first = clients.submit(client.search, ["first"], 1)
        retriever.begun.acquire()
        others = {query: clients.submit(client.search, [query], 2) for query in ("a", "b", "c")}
        same = clients.submit(client.search, ["a", "b"], 2)
        fewer = clients.submit(client.search, ["a"], 1)
        wait_until(lambda: waiting(address) == 6)
        retriever.gate.set()
        assert first.result() == [[said("first", 0)]]
        for query, answer in others.items():
            assert answer.result() == [[said(query, 0), said(query, 1)]]
        assert same.result() == [[said(query, 0), said(query, 1)] for query in "ab"]
        assert fewer.result() == [[said("a", 0)]]
    assert len(retriever.batches) == 3
    together = next(batch for batch in retriever.batches[1:] if len(batch) > 1)
    assert sorted(together) == ["a", "b", "c"], "each query once"
    assert sorted(retriever.topks[1:]) == [1, 2], "other numbers of passages are another search"


def test_a_batch_is_no_larger_than_it_may_be() -> None:
    retriever = Echo()
    with running(retriever, max_batch=4) as address, ThreadPoolExecutor(16) as clients:
        client = asking(address)
        retriever.gate.clear()
        first = clients.submit(client.search, ["first"], 1)
        retriever.begun.acquire()
        requests = [[f"{n}.{m}" for m in range(size)] for n, size in enumerate([3, 3, 9, 1])]
        answers = [clients.submit(client.search, queries, 1) for queries in requests]
        wait_until(lambda: waiting(address) == 16)
        retriever.gate.set()
        for answer in (first, *answers):
            assert answer.result()
    sizes = [len(batch) for batch in retriever.batches]
    assert sum(sizes) == 17
    assert max(sizes) == 4
    assert [query for batch in retriever.batches for query in batch if query[0] == "2"] == requests[2], "in its order"


def test_one_request_that_fails_does_not_fail_its_neighbours(caplog) -> None:
    retriever = Echo()
    with running(retriever) as address, ThreadPoolExecutor(8) as clients:
        client = asking(address)
        retriever.gate.clear()
        first = clients.submit(client.search, ["first"], 1)
        retriever.begun.acquire()
        bad = clients.submit(client.search, ["raise"], 1)
        good = [clients.submit(client.search, [query], 1) for query in "abc"]
        wait_until(lambda: waiting(address) == 4)
        retriever.gate.set()
        assert first.result()
        assert [answer.result() for answer in good] == [[[said(query, 0)]] for query in "abc"]
        with pytest.raises(RetrieverFailed, match="status 500"):
            bad.result()
        assert client.search(["after"], 1)
    assert "SECRET of the retriever" in caplog.text, "the log has what the client is not told"


def test_a_full_queue_is_told_and_a_patient_client_gets_through() -> None:
    retriever = Echo()
    with running(retriever, max_waiting=2) as address, ThreadPoolExecutor(8) as clients:
        client = asking(address)
        retriever.gate.clear()
        first = clients.submit(client.search, ["first"], 1)
        retriever.begun.acquire()
        queued = clients.submit(client.search, ["a", "b"], 1)
        wait_until(lambda: waiting(address) == 2)
        with pytest.raises(RetrieverFailed, match="status 503"):
            client.search(["c"], 1)
        patient = clients.submit(asking(address, retries=9).search, ["c"], 1)
        time.sleep(0.1)
        retriever.gate.set()
        assert patient.result() == [[said("c", 0)]]
        assert first.result()
        assert queued.result()


def test_stopping_answers_what_is_under_way() -> None:
    retriever = Echo()
    with ThreadPoolExecutor(8) as clients:
        with running(retriever) as address:
            client = asking(address)
            retriever.gate.clear()
            answers = [clients.submit(client.search, ["first"], 1)]
            retriever.begun.acquire()
            answers += [clients.submit(client.search, [query], 1) for query in "ab"]
            wait_until(lambda: waiting(address) == 2)
            threading.Timer(0.3, retriever.gate.set).start()  # while it stops
        assert [answer.result()[0][0].passage.text for answer in answers] == ["about first", "about a", "about b"]
        with pytest.raises(RetrieverFailed):
            client.search(["late"], 1)


# ---------------------------------------------------------------- settings
def test_settings_that_cannot_work_are_refused() -> None:
    for more in (
        {"token": ""},
        {"token": "a b"},
        {"token": "sëcret"},
        {"token": "a\n"},
        {"topk": 0},
        {"topk": 101},
        {"max_batch": 0},
        {"max_waiting": 0},
    ):
        with pytest.raises(BadSetting):
            create_app(Echo(), **more)
    with pytest.raises(BadSetting, match="set a token"):
        serve(Echo(), host="0.0.0.0")
    with pytest.raises(BadSetting, match="not an address"):
        serve(Echo(), host="nowhere.invalid", token="t")
    with serving.listen(0) as taken, pytest.raises(BadSetting, match="is taken"):
        serve(Echo(), port=taken.getsockname()[1])


def test_small_answers_are_sent_at_once() -> None:
    with serving.listen(0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP, "or asyncio leaves Nagle's algorithm on"
