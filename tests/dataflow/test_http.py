"""A manager over HTTP: the same answers, hostile requests, and a server that dies."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import mmap
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from flow_trace import SETUP, WEIGHTS, manager, opened, slots, trace
from hypothesis import given
from hypothesis import strategies as st
from little_worker import played

from agentgym_flow._util.fast_http import HttpReply, _LargeBody
from agentgym_flow._util.serving import needing_extra
from agentgym_flow.dataflow import network
from agentgym_flow.dataflow.bookkeeping.journal import ManagerJournal
from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.network import client
from agentgym_flow.dataflow.network.client import HttpFlow
from agentgym_flow.dataflow.network.server import CallApplication
from agentgym_flow.dataflow.network.server import serving as http_serving
from agentgym_flow.dataflow.records import Arrival, Attempt, Commit, CommitVerdict, Lease, LeaseKey, Slot
from agentgym_flow.errors import BadSetting, DiskFull, FlowDown, MissingExtra

TOKEN = "a-token-for-tests"
EMPTY = network.dumped({})


class Served:
    """A manager, its address, and requests that no client of ours makes."""

    def __init__(self, url: str, there: Manager) -> None:
        self.url, self.manager = url, there
        self.flow = HttpFlow(url, TOKEN, deadline=5.0)
        self.port = urlsplit(url).port or 0

    def ask(self, path: str, body: bytes = EMPTY, *, method: str = "POST", **headers: str | None) -> tuple[int, Any]:
        """Return status and answer of a request, whose token and digest are right unless given."""
        usual: dict[str, str | None] = {"Authorization": f"Bearer {TOKEN}"}
        usual["Content-CRC32"] = network.checksum_of(body)
        usual |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, {name: value for name, value in usual.items() if value is not None})
            response = connection.getresponse()
            text = response.read()
            if response.status == 200:
                return 200, network.loaded(text)
            return response.status, json.loads(text) if text else None
        finally:
            connection.close()


@pytest.fixture
def served() -> Iterator[Served]:
    there = manager()
    with http_serving(there, TOKEN) as url:
        yield Served(url, there)


def test_calls_are_answered_where_uvloop_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is beside vLLM. Uvicorn would choose it, and connections of its loop are not those of asyncio."""

    def new_event_loop() -> Any:
        raise AssertionError("the server chose another loop")

    monkeypatch.setitem(sys.modules, "uvloop", SimpleNamespace(new_event_loop=new_event_loop))
    monkeypatch.delitem(sys.modules, "uvicorn.loops.uvloop", raising=False)
    with http_serving(manager(), TOKEN) as url, closing(HttpFlow(url, TOKEN, deadline=5.0)) as flow:
        assert flow.status()["streams"] == {}


@pytest.fixture(scope="module")
def refusing() -> Iterator[Served]:
    """One server for all requests that are refused: none of them leaves anything behind."""
    there = manager()
    with http_serving(there, TOKEN) as url:
        yield Served(url, there)
    assert there.status()["streams"] == {}


def test_answers_are_those_of_the_manager_itself(served: Served) -> None:
    there, here = trace(manager()), trace(served.flow)
    assert there == here
    types = [[bytes if isinstance(one, memoryview) else type(one) for one in answers] for answers in (there, here)]
    assert types[0] == types[1]


def test_records_keep_their_types(served: Served) -> None:
    claim = opened(served.flow)
    (lease, *_) = served.flow.lease("w", 4)
    assert (type(lease), type(lease.slot)) == (Lease, Slot)
    (verdict,) = served.flow.commit("w", [played(lease)])
    assert verdict is CommitVerdict.ACCEPTED
    (arrival,) = served.flow.arrivals(claim, 0)
    assert type(arrival) is Arrival
    assert arrival.payload == played(lease).payload


RECORDS = st.one_of(
    st.builds(Slot, *[st.integers(-(2**63), 2**63 - 1)] * 5),
    st.builds(LeaseKey, st.text(), st.tuples(*[st.integers(0, 2**40)] * 3), st.integers(0, 99)),
    st.sampled_from(CommitVerdict),
)


@given(RECORDS)
def test_messages_bring_records_back(record: Any) -> None:
    back = network.loaded(network.dumped(record), msgspec.msgpack.Decoder(type(record)))
    assert (type(back), back) == (type(record), record)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


NAMES = st.sampled_from(sorted({name for call in network.CALLS.values() for name in call.arguments.__struct_fields__}))


@given(st.sampled_from(sorted(network.CALLS)), PLAIN | st.dictionaries(NAMES, PLAIN))
def test_arguments_are_read_or_refused(name: str, values: Any) -> None:
    call = network.CALLS[name]
    with contextlib.suppress(network.Malformed):
        arguments = network.arguments_of(call, network.dumped(values), {})
        assert tuple(arguments) == call.arguments.__struct_fields__ + ((call.raw,) if call.raw else ())


@pytest.mark.parametrize("token", ["Bearer wrong", "Bearer", "Basic " + TOKEN, "", None, "Bearer \xe9"])
@pytest.mark.parametrize("path", ["/v4/status", "/v4/nothing"])
def test_a_wrong_token_learns_nothing(refusing: Served, token: str | None, path: str) -> None:
    status, answer = refusing.ask(path, Authorization=token)
    assert (status, answer["message"]) == (401, "the token is missing or wrong")


def test_the_token_of_workers_is_good_for_their_calls_alone() -> None:
    there = manager()
    claim = opened(there)
    with http_serving(there, TOKEN, "a-worker's-token") as url:
        worker = HttpFlow(url, "a-worker's-token", deadline=5.0)
        assert "s" in worker.describe()
        leases = worker.lease("w", 3)
        assert worker.fetch("a", leases[0].weights["a"], None) == WEIGHTS
        assert worker.renew("w", [played(leases[0]).held]) == []
        assert worker.commit("w", [played(leases[0])]) == [CommitVerdict.ACCEPTED]
        worker.fail("w", played(leases[1]).held, "it broke")
        worker.give_back("w", [played(leases[2]).held])
        before = there._book.ledgers["s"].snapshot()
        for call in (
            partial(worker.open, "s", "a", 0, SETUP, "a worker"),
            partial(worker.publish, claim, 0, 0, b"others"),
            partial(worker.admit, claim, slots(1)),
            partial(worker.arrivals, claim, 0),
            partial(worker.reject, claim, Attempt((0, 0, 0), 1), "no"),
            partial(worker.ack, claim, 0, [], []),
            partial(worker.keep, claim, 0),
            partial(worker.finish, claim),
            partial(worker.beat, claim),
        ):
            with pytest.raises(BadSetting, match=r"HTTP 403: \w+ needs the trainers' token"):
                call()
        assert there._book.ledgers["s"].snapshot() == before
    assert network.CALLS.keys() > network.WORKER_CALLS


def test_a_wrong_token_is_named_by_the_client_at_once(served: Served) -> None:
    with pytest.raises(BadSetting, match=r"401.*the token of this manager"):
        HttpFlow(served.url, "another").status()


@pytest.mark.parametrize(
    "path",
    ["/", "/v4", "/v4/", "/v4/status/", "/v3/status", "/v4/../v4/status", "/v4/%73tatus/x", "/v4/_stream", "/v4/close",
     "/v4/__init__", "//v4/status", "/v4/status%00", "/etc/passwd", "/v4/Manager.status"],
)  # fmt: skip
def test_other_paths_are_not_there(refusing: Served, path: str) -> None:
    assert refusing.ask(path)[0] == 404


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_calls_are_posted(refusing: Served, method: str) -> None:
    assert refusing.ask("/v4/status", method=method)[0] == 405


def test_an_unknown_method_is_no_request(refusing: Served) -> None:
    assert refusing.ask("/v4/status", method="BREW")[0] == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("lease", b""),
        ("lease", b"\xff\xfe"),
        ("lease", b'{"worker": "w", "count": 1}'),
        ("lease", []),
        ("lease", None),
        ("lease", b"\x91" * 100_000),
        ("lease", {"worker": "w"}),
        ("lease", {"worker": "w", "count": True}),
        ("lease", {"worker": "w", "count": 1.5}),
        ("lease", {"worker": "w", "count": 1, "wait": math.nan}),
        ("lease", {"worker": "w", "count": 1, "wait": math.inf}),
        ("lease", b"\x82\xa6worker\xa3\xed\xa0\x80\xa5count\x01"),
        ("lease", {"worker": "w", "count": 1, "self": 1}),
        ("renew", {"worker": "w", "held": [["s", [0, 0], 1]]}),
        ("renew", {"worker": "w", "held": [["s", {"0": 0}, 1]]}),
        ("commit", {"worker": "w", "commits": [["s", "payload"]]}),
        ("admit", {"claim": ["s", "a", 1], "slots": [[0, 0, 0, 0]]}),
        ("admit", {"claim": ["s", "a", 1], "slots": [[2**63, 0, 0, 0, 0]]}),
        ("admit", {"claim": ["s", "a"], "slots": []}),
        ("open", {"stream": "s", "policy": "a", "batch": 0, "trainer": "t", "setup": []}),
        ("publish", b"weights"),
        ("publish?claim=a&update=1&step=1", b"weights"),
        ('publish?claim=["s","a",1]&update=x&step=1', b"weights"),
        ('publish?claim=["s","a",1]&update=1&step=1&message=1', b"weights"),
        ('publish?claim=["s","a",1]&update=[1]&step=1', b"weights"),
    ],
)
def test_garbage_is_refused_with_a_sentence(refusing: Served, path: str, body: Any) -> None:
    status, answer = refusing.ask(f"/v4/{path}", body if isinstance(body, bytes) else network.dumped(body))
    assert status == 400
    assert answer["message"]
    assert "Traceback" not in answer["message"]
    assert refusing.ask("/v4/status")[0] == 200


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("open", {"stream": "s", "policy": "a", "batch": 0, "trainer": "t", "setup": {}}),
        ("open", {"stream": "s", "policy": "a", "batch": 0, "trainer": "t", "setup": {"policies": [[]]}}),
        ("open", {"stream": "s", "policy": "a", "batch": -5, "trainer": "t", "setup": SETUP}),
        ("open", {"stream": "s", "policy": "a", "batch": 0, "trainer": "t", "setup": {**SETUP, "more": math.nan}}),
        ("open", {"stream": "s", "policy": "a", "batch": 0, "trainer": "t", "setup": {**SETUP, "more": b"bytes"}}),
        ("lease", {"worker": "w", "count": -1}),
        ("keep", {"claim": ["other", "a", 1], "batch": 2**62}),
    ],
)
def test_what_the_manager_refuses_has_a_name(refusing: Served, path: str, arguments: dict[str, Any]) -> None:
    status, answer = refusing.ask(f"/v4/{path}", network.dumped(arguments))
    assert (status, answer["error"] in network.ERRORS) == (422, True)


def test_bodies_are_bounded(served: Served) -> None:
    status, answer = served.ask("/v4/lease", b"x", Content_Length=str(network.SMALL_BODY + 1))
    assert status == 413
    assert "1,048,576 bytes" in answer["message"]


def test_a_body_without_a_length_is_refused(served: Served) -> None:
    head = f"POST /v4/lease HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert raw(served, head.encode()).startswith(b"HTTP/1.1 411")


def raw(served: Served, sent: bytes) -> bytes:
    """Return all that the server answers until it closes the connection."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as client:
        client.sendall(sent)
        return b"".join(iter(partial(client.recv, 1 << 16), b""))


GOOD = f"POST /v4/status HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-CRC32: {network.checksum_of(EMPTY)}\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("POST /v4/status\r\n", 400),
        ("POST /v4/status HTTP/2\r\n", 400),
        ("POST /v4/sta tus HTTP/1.1\r\n", 400),
        (GOOD + "a : b\r\n", 400),
        (GOOD + " folded\r\n", 400),
        (GOOD + "a: b\nTransfer-Encoding: chunked\r\n", 400),
        (GOOD + "Content-Length: 1\r\nContent-Length: 1\r\n", 400),
        (GOOD + "Content-Length: -1\r\n", 400),
        (GOOD + "Content-Length: 0x1\r\n", 400),
        (GOOD + f"a: {'b' * 70_000}\r\n", 431),
    ],
)
def test_malformed_requests_are_refused_and_their_connections_closed(refusing: Served, head: str, status: int) -> None:
    """What two servers could read in two ways is refused: a proxy may stand before this one."""
    assert raw(refusing, f"{head}\r\n".encode()).startswith(f"HTTP/1.1 {status} ".encode())


def test_large_bodies_arrive_whole_and_their_connections_go_on(served: Served) -> None:
    """They are read by another protocol than the head and the next request."""
    claim = opened(served.flow)
    message = bytes(range(256)) * 40_000  # 10 MB
    served.flow.ack(claim, 0, [], [])
    served.flow.ack(claim, 1, [], [])
    assert served.flow.publish(claim, 1, 1, message) == 2
    assert served.flow.fetch("a", 2, None) == message
    leases = served.flow.lease("w", 2)
    sent = [played(one)._replace(payload=bytes([48 + number]) * (3 << 20)) for number, one in enumerate(leases)]
    assert served.flow.commit("w", sent) == [CommitVerdict.ACCEPTED] * 2
    assert [one.payload for one in served.flow.arrivals(claim, 0)] == [one.payload for one in sent]
    call = f"publish?claim={json.dumps(claim)}&update=2&step=2".replace(" ", "")
    cut = f"POST /v4/{call} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 5000000\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as client:
        client.sendall(cut + bytes(2 << 20))
    assert served.flow.publish(claim, 2, 2, WEIGHTS) == 3, "half of a body is no call"


def test_a_missing_parser_is_named_with_its_extra() -> None:
    with pytest.raises(MissingExtra, match=r"httptools is not installed.*agentgym_flow\[serve\]"), needing_extra():
        raise ModuleNotFoundError("No module named 'httptools'", name="httptools")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_body_that_is_only_announced_takes_no_memory() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    before = resident()
    body = _LargeBody(None, b"begun", 1 << 28)  # type: ignore[arg-type]
    body.get_buffer(-1)[:3] = b"..."
    body.buffer_updated(3)
    assert len(body.get_buffer(-1)) == (1 << 28) - 3
    assert resident() - before < 1 << 25


def test_requests_may_come_in_pieces_and_many_at_once(served: Served) -> None:
    one = f"{GOOD}Content-Length: {len(EMPTY)}\r\n\r\n".encode() + EMPTY
    last = one.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert raw(served, one * 4 + last).count(b"HTTP/1.1 200 OK") == 5
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as client:
        for number in range(len(last)):
            client.sendall(last[number : number + 1])
        assert client.recv(4096).startswith(b"HTTP/1.1 200 OK")
    asks = last.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as client:
        client.sendall(asks[: -len(EMPTY)])
        assert client.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(EMPTY)
        assert client.recv(4096).startswith(b"HTTP/1.1 200 OK")


def test_a_damaged_request_is_refused(served: Served) -> None:
    status, answer = served.ask("/v4/status", EMPTY, Content_CRC32=network.checksum_of(b"{}"))
    assert (status, answer["error"]) == (400, "Corrupted")
    assert served.ask("/v4/status", Content_CRC32=None)[0] == 400


def test_slow_bodies_keep_nobody_waiting(served: Served) -> None:
    head = f"POST /v4/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 100\r\n\r\n{{"
    slow = [socket.create_connection(("127.0.0.1", served.port), timeout=20) for _ in range(50)]
    try:
        for one in slow:
            one.sendall(head.encode())
        assert served.flow.status()["streams"] == {}
    finally:
        for one in slow:
            one.close()


def test_who_sends_half_a_request_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("serving", "fast_http"):
        monkeypatch.setattr(f"agentgym_flow._util.{place}.HEADERS", 0.2)
    monkeypatch.setattr("agentgym_flow.dataflow.network.server.UPLOAD", 0.3)
    there = manager()
    with http_serving(there, TOKEN) as url:
        half = Served(url, there)
        assert raw(half, b"") == b"", "who sends nothing"
        assert raw(half, b"POST /v4/status HT") == b""
        assert raw(half, f"{GOOD}Content-Length: 100\r\n\r\n{{".encode()) == b""
        assert raw(half, f"{GOOD}Content-Length: 2000000\r\n\r\n{{".encode()).startswith(b"HTTP/1.1 413")
        assert raw(half, f"{GOOD.replace('status', 'publish')}Content-Length: 2000000\r\n\r\n{{".encode()) == b""


def test_silent_clients_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_flow.dataflow.network.server.CONNECTIONS", 3)
    there = manager()
    with http_serving(there, TOKEN) as url, contextlib.ExitStack() as stack:
        served = Served(url, there)
        address = ("127.0.0.1", served.port)
        silent = [stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(5)]
        assert [one.recv(1) for one in silent[:2]] == [b"", b""], "the longest silent ones"
        assert served.flow.status()["streams"] == {}
        for number in range(3):
            body = network.dumped({"worker": f"w{number}", "count": 1, "wait": 30})
            head = f"POST /v4/lease HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n"
            sent = f"{head}Content-CRC32: {network.checksum_of(body)}\r\n\r\n".encode() + body
            stack.enter_context(socket.create_connection(address, timeout=20)).sendall(sent)
            while f"w{number}" not in there.status()["workers"]:
                time.sleep(0.01)
        assert served.ask("/v4/status")[0] == 503, "all have requests under way"
        opened(there)


def test_nothing_is_read_of_who_has_no_token(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as client:
        client.sendall(b"POST /v4/publish HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 401")


def test_a_defect_of_the_manager_shows_no_details(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(served.manager, "status", fail)
    assert served.ask("/v4/status") == (500, {"error": "Failed", "message": "RuntimeError"})
    served.flow.deadline = 0.3
    with pytest.raises(FlowDown, match=r"gave no answer for 0\.3 seconds \(HTTP 500\)"):
        served.flow.status()


def test_a_manager_of_another_version_is_named_at_once(served: Served) -> None:
    """Refusals are JSON in every version, so each side understands the other's."""
    with pytest.raises(BadSetting, match=r"HTTP 404: there is no such call; is this another version of agentgym_flow"):
        served.flow._answer(network.CALLS["status"], "/v3/status", EMPTY, 5.0)
    assert json.loads(network.refusal("NotFound", "\ud800")) == {"error": "NotFound", "message": "\ud800"}


def test_calls_that_need_no_disk_and_no_weights_need_no_thread(served: Served) -> None:
    """A worker's calls with something to answer are made where they arrive."""
    claim = opened(served.flow)
    threads: set[str] = set()
    changed = served.manager._book.changed
    names = ("lease", "renew", "commit", "give_back", "fail", "beat")
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            real = getattr(served.manager, name)

            def noted(*args: Any, real: Callable[..., Any] = real, **kwargs: Any) -> Any:
                threads.add(threading.current_thread().name)
                return real(*args, **kwargs)

            patch.setattr(served.manager, name, noted)
        leases = served.flow.lease("w", 4, 5.0)
        served.flow.renew("w", [lease.held for lease in leases])
        served.flow.commit("w", [played(leases[0])])
        served.flow.give_back("w", [leases[1].held])
        served.flow.fail("w", leases[2].held, "it broke")
        served.flow.beat(claim)
        assert threads == {"server"}
        served.flow.lease("w", 4)
        with changed:
            threads.clear()
        assert served.flow.lease("w", 4, 0.01) == []
        assert any(name.startswith("flow-waiting") for name in threads), "it waits in a thread"


def test_errors_are_those_of_the_table_and_no_other() -> None:
    with pytest.raises(network.Malformed):
        network.raise_error({"error": "SystemExit", "message": "0"})
    with pytest.raises(network.Malformed):
        network.raise_error({"error": "BadSetting", "message": ["0"]})
    with pytest.raises(FlowDown, match=r"^why$"):
        network.raise_error({"error": "FlowDown", "message": "why"})


def test_many_who_wait_hold_up_nobody(served: Served) -> None:
    """With nothing to play, far more workers wait than there are threads, and all of them get what comes in the end."""
    workers = 3 * (network.WAITING + network.AT_ONCE)
    claim = opened(served.flow)
    first = served.flow.lease("first", 4)
    with ThreadPoolExecutor(workers) as pool:
        waiting = [pool.submit(served.flow.lease, f"w{number}", 1, 30.0) for number in range(workers)]
        while len(served.flow.status()["workers"]) < workers + 1:
            time.sleep(0.01)
        assert served.flow.commit("first", [played(lease) for lease in first]) == [CommitVerdict.ACCEPTED] * 4
        arrivals = served.flow.arrivals(claim, 0)
        served.flow.ack(claim, 0, [one.played for one in arrivals], [])
        served.flow.publish(claim, 1, 1, WEIGHTS)
        served.flow.admit(claim, slots(1, groups=workers, samples=1))
        leases = [one.result() for one in waiting]
    assert sorted(lease.slot for (lease,) in leases) == slots(1, groups=workers, samples=1)


def test_leases_of_a_worker_that_has_gone_are_given_back(served: Served) -> None:
    body = network.dumped({"worker": "gone", "count": 4, "wait": 20})
    connection = http.client.HTTPConnection("127.0.0.1", served.port)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-CRC32": network.checksum_of(body)}
    connection.request("POST", "/v4/lease", body, headers)
    while "gone" not in served.flow.status()["workers"]:
        time.sleep(0.01)
    connection.close()
    opened(served.flow)
    found: list[Lease] = []
    while len(found) < 4:
        found += served.flow.lease("here", 4, 1.0)
    assert {lease.slot for lease in found} == set(slots(0))


def until_something(call: Callable[..., list[Any]], *args: Any) -> list[Any]:
    while not (found := call(*args, 60.0)):  # a server that stops lets nobody wait
        pass
    return found


def test_clients_wait_for_a_server_that_is_started_again_on_its_journal(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        with closing(manager(journal=ManagerJournal(tmp_path / "journal"))) as there, http_serving(there, TOKEN) as url:
            flow = HttpFlow(url, TOKEN, deadline=60.0)
            claim = opened(flow)
            first = flow.lease("w", 4)
            arrivals = pool.submit(until_something, flow.arrivals, claim, 0)
            lease = pool.submit(until_something, flow.lease, "v", 1)
            while "v" not in there.status()["workers"]:
                time.sleep(0.01)
        port = urlsplit(url).port or 0
        with (
            closing(manager(journal=ManagerJournal(tmp_path / "journal"))) as there,
            http_serving(there, TOKEN, port=port),
        ):
            flow.fail("w", played(first[0]).held, "it broke")
            assert [one.slot for one in lease.result()] == [first[0].slot]
            assert flow.commit("w", [played(first[1])]) == [CommitVerdict.ACCEPTED]
            assert [one.slot for one in arrivals.result()] == [first[1].slot]


def test_a_manager_that_does_not_come_back_is_named(unused_port: int) -> None:
    flow = HttpFlow(f"http://127.0.0.1:{unused_port}", TOKEN, deadline=0.5)
    with pytest.raises(FlowDown, match=rf"127\.0\.0\.1:{unused_port} gave no answer for 0\.5 seconds.*restart it"):
        flow.status()


def test_closing_ends_the_attempts(unused_port: int) -> None:
    flow = HttpFlow(f"http://127.0.0.1:{unused_port}", TOKEN)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(flow.status)
        flow.close()
        with pytest.raises(FlowDown, match="was closed"):
            waiting.result()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_damaged_answer_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = [1, 2, 3]

    class Tampering(CallApplication):
        async def answer(self, *given: Any) -> HttpReply:
            reply = await super().answer(*given)
            return reply._replace(body=b"x" + reply.body[1:]) if damaged and damaged.pop() else reply

    monkeypatch.setattr("agentgym_flow.dataflow.network.server.CallApplication", Tampering)
    there = manager()
    opened(there)
    with http_serving(there, TOKEN) as url:
        assert "s" in HttpFlow(url, TOKEN).describe()
    assert not damaged


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:80", "ftp://x", "http://", "http://a:b@c", "http://x/y", "http://x:99999"]
)
def test_addresses_that_cannot_be_are_refused(url: str) -> None:
    with pytest.raises(BadSetting, match=r"is not the address of a (server|manager)|must not contain a name"):
        HttpFlow(url, TOKEN)


def test_a_token_is_kept_and_refused_where_others_can_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = client.token_in(tmp_path / "token")
    assert len(token) > 40
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert client.token_in(tmp_path / "token") == client.read_token(tmp_path / "token") == token
    trainers, workers = client.tokens_in(tmp_path / "token")
    assert trainers == token != workers == client.read_token(tmp_path / "token.worker")
    (tmp_path / "token").chmod(0o640)
    with pytest.raises(BadSetting, match="chmod 600"):
        client.read_token(tmp_path / "token")
    monkeypatch.delenv(client.VARIABLE, raising=False)
    with pytest.raises(BadSetting, match=client.VARIABLE):
        client.read_token()
    monkeypatch.setenv(client.VARIABLE, token)
    assert client.read_token() == token


def test_one_client_serves_many_threads(served: Served) -> None:
    opened(served.flow)
    barrier = threading.Barrier(8)

    def fetch(_: int) -> bytes:
        barrier.wait()
        return served.flow.fetch("a", 1, None)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(fetch, range(8))) == [WEIGHTS] * 8


def test_a_call_is_repeated_while_the_disk_is_full(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    left, real = [1, 2], served.manager.status

    def status() -> Any:
        if left:
            raise DiskFull(f"no space {left.pop()}")
        return real()

    monkeypatch.setattr(served.manager, "status", status)
    monkeypatch.setattr("agentgym_flow.dataflow.network.client.FIRST_PAUSE", 0.01)
    assert served.flow.status()["streams"] == {}
    left.append(3)
    served.flow.deadline = 0.0
    with pytest.raises(DiskFull, match="no space 3"):
        served.flow.status()


def test_a_worker_that_commits_too_much_is_answered_and_counted(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in (("LONGEST", 70_000), ("QUOTA", 100_000)):
        monkeypatch.setattr(f"agentgym_flow.dataflow.bookkeeping.book.{name}", limit)
    opened(served.flow)
    both = zip(served.flow.lease("w", 3), (60_000, 60_000, 80_000), strict=True)
    commits = [played(lease)._replace(payload=b"x" * size) for lease, size in both]
    assert served.flow.commit("w", commits) == ["accepted", "over_quota", "too_long"]
    figures = served.flow.status()["workers"]["w"]
    assert {name: figures[name] for name in ("accepted", "failed", "unused")} == {
        "accepted": 1,
        "failed": 2,
        "unused": 60_000,
    }


def test_a_commit_of_an_unknown_stream_is_late(served: Served) -> None:
    assert served.flow.commit("w", [Commit(LeaseKey("none", (0, 0, 0), 1), b"x", {})]) == [CommitVerdict.LATE]


def test_the_text_of_any_error_can_be_a_reason(served: Served) -> None:
    claim = opened(served.flow)
    first, second = served.flow.lease("w", 2)
    served.flow.fail("w", first.held, "no file \ud800")
    served.flow.commit("w", [played(second)])
    (arrival,) = served.flow.arrivals(claim, 0)
    served.flow.reject(claim, arrival.played, "another action, \udfff")
    served.manager.fail("w", served.flow.lease("w", 1)[0].held, "no file \ud800")  # beside the manager
    entries = served.manager._book.ledgers["s"].entries
    assert "no file \\ud800" in [one.reason for one in entries.values()]
    assert "another action, \\udfff" in [one.reason for one in entries.values()]
    assert served.flow.status()["workers"]["w"]["failed"] == 2
