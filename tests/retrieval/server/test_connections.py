"""Clients that send nothing, half a request or read no answer cannot lock a server, and one that leaves is no error."""

from __future__ import annotations

import http.client
import json
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from retriever_running import Echo, health, running, said, wait_until

from agentgym_flow._util import serving
from agentgym_flow.retrieval.remote import RemoteRetriever

HALF = b"POST /retrieve HTTP/1.1\r\nHost: 127.0.0.1\r\n"
WHOLE = HALF + b"Content-Length: 1000\r\n\r\n"


@contextmanager
def opened(address: str, number: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Open connections that stay where they are after `sent`."""
    host, _, port = address.removeprefix("http://").partition(":")
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection((host, int(port)), 20)) for _ in range(number)]
        for one in sockets:
            one.sendall(sent)
        yield sockets


def closed(sockets: list[socket.socket]) -> bool:
    try:
        return all(one.recv(1 << 16) == b"" for one in sockets)
    except ConnectionResetError:
        return True


@contextmanager
def files(number: int) -> Iterator[None]:
    """Let this process have `number` open files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, before[1]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("sent", [b"", HALF, WHOLE], ids=["nothing", "half a header", "half a body"])
def test_half_open_connections_do_not_lock_the_server(sent) -> None:
    with files(4096), running(Echo(), most=200) as address, opened(address, 1100, sent):
        assert RemoteRetriever(address, retries=0).search(["a"], 1) == [[said("a", 0)]]
        assert health(address)["statuses"]["200"] == 1


def test_the_bound_keeps_within_the_open_files_of_the_process() -> None:
    with files(400), running(Echo()) as address, opened(address, 20):
        server = serving.server(None, patience=1, connections=1024)
        assert server.config.limit_concurrency == 301
        assert server.config.backlog == 50
        assert RemoteRetriever(address, retries=0).search(["a"], 1)


def test_with_all_connections_busy_one_more_is_told_to_come_back() -> None:
    retriever = Echo()
    body = json.dumps({"query": "a"}).encode()
    request = HALF + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    with running(retriever, most=3) as address:
        retriever.gate.clear()
        with opened(address, 3, request) as busy:
            retriever.begun.acquire()
            connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
            connection.request("GET", "/health")
            assert connection.getresponse().status == 503
            connection.close()
            retriever.gate.set()
            for one in busy:
                assert one.recv(1 << 16).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("sent", "clock"), [(b"", "HEADERS"), (HALF, "HEADERS"), (WHOLE, "BODY")], ids=["nothing", "header", "body"]
)
def test_a_client_that_sends_no_more_is_left(monkeypatch, capsys, sent, clock) -> None:
    monkeypatch.setattr(serving, clock, 0.2)
    with running(Echo()) as address, opened(address, 3, sent) as sockets:
        assert closed(sockets)
        assert RemoteRetriever(address, retries=0).search(["a"], 1)
    assert capsys.readouterr().err == ""  # where uvicorn tells of errors; its log does not reach `caplog`


def test_a_slow_client_is_not_left_while_it_has_time() -> None:
    body = json.dumps({"query": "a", "topk": 1}).encode()
    request = HALF + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    with running(Echo()) as address, opened(address, 1) as (slow,):
        for _ in range(2):  # on one connection
            for start in range(0, len(request), 7):
                slow.sendall(request[start : start + 7])
            answer = b""
            while not answer.endswith(b"]}"):  # head and body may come apart
                part = slow.recv(1 << 16)
                assert part
                answer += part
            assert answer.startswith(b"HTTP/1.1 200")


def test_a_client_that_does_not_read_is_left(monkeypatch) -> None:
    monkeypatch.setattr(serving, "READING", 0.2)
    body = json.dumps({"queries": ["x" * 4000] * 2000}).encode()
    with ExitStack() as client:
        with running(Echo()) as address:
            (deaf,) = client.enter_context(opened(address, 1))
            deaf.sendall(HALF + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            wait_until(lambda: health(address)["statuses"].get("200") == 1)
        received = 0  # the server has ended, so it waits for nobody
        while part := deaf.recv(1 << 20):
            received += len(part)
    assert 0 < received < 2000 * 3 * 8000


def test_a_client_that_leaves_in_the_middle_is_no_error(capsys) -> None:
    retriever = Echo()
    with running(retriever) as address:
        with opened(address, 5, WHOLE + b"{"):
            pass
        wait_until(lambda: health(address)["statuses"] == {"499": 5})
    assert retriever.batches == []
    assert capsys.readouterr().err == ""  # where uvicorn tells of errors; its log does not reach `caplog`
