"""The client of all servers: deadlines, cancelled requests, proxies, and outages; its users' tests have the rest."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest
from fault_server import closing, cut_off, faults, good, saying, silent, status

from agentgym_flow._util.endpoint import Endpoint, RequestThreads, Tries, Unanswered
from agentgym_flow._util.http import Answer, Call, TryFailed, server_address
from agentgym_flow._util.openai_access import key_in
from agentgym_flow.errors import BadSetting

BODY = b'{"queries": ["a"], "topk": 1}'


def endpoint_at(url: str, **settings: object) -> Endpoint:
    return Endpoint(server_address(url, "", ""), **settings)


def test_a_slow_upload_is_no_timeout_while_it_goes_on() -> None:
    """The timeout of the standard library's `sendall` holds for all of the data, however large it is."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
        size = 32 << 20

        def read_slowly() -> None:
            connection, _ = listening.accept()
            with connection:
                left = size
                while left > 0:
                    left -= len(connection.recv(1 << 20))
                    time.sleep(0.005)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                connection.recv(1)

        thread = threading.Thread(target=read_slowly, daemon=True)
        thread.start()
        server = endpoint_at(f"http://127.0.0.1:{listening.getsockname()[1]}", idle=0.25)
        started = time.monotonic()
        assert server.send("/", bytes(size)).body == b"ok"
        assert time.monotonic() - started > 0.25
        server.close()
        thread.join(10)


def test_a_connection_imports_nothing() -> None:
    """A process that is forked while another thread imports a module can never import that module."""
    code = (
        "import sys; from agentgym_flow._util.http import Connections; import socket; before = {*sys.modules}; "
        "socket.getaddrinfo('127.0.0.1', 80); print({*sys.modules} - before)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "set()\n"


def test_a_request_is_cancelled_wherever_it_waits() -> None:
    with faults(silent, status(429, Retry_After="9"), silent) as server, ThreadPoolExecutor(3) as pool:
        there = endpoint_at(server.url)

        def attempt(call: Call) -> Answer:
            answer = there.send("/", BODY, call=call)
            if answer.status != 200:
                raise TryFailed.of_status(answer, {})
            return answer

        tries = Tries(retries=5, deadline=60.0, backoff=0.01, concurrency=1)
        calls, asked = [Call() for _ in range(3)], []
        for number, call in enumerate(calls):
            if number == 1:  # one is answered slowly, one pauses, one has no place
                calls[0].cancel()
                with pytest.raises(CancelledError):
                    asked[0].result(10)
            asked.append(pool.submit(there.ask, lambda until, call=call: attempt(call), tries, call))
            while len(server.asked) < number + 1:
                time.sleep(0.005)
        last = Call()
        waiting = pool.submit(there.ask, lambda until: attempt(last), tries, last)
        for call, one in zip([*calls[1:], last], [*asked[1:], waiting], strict=True):
            call.cancel()
            with pytest.raises(CancelledError):
                one.result(10)
        assert there._gate.under_way == 0


def test_a_coroutine_that_is_cancelled_hangs_up() -> None:
    async def give_up(there: Endpoint) -> None:
        threads = RequestThreads(2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await threads.run(lambda call: there.send("/", BODY, call=call))
        threads.close()

    with faults(silent) as server:
        started = time.monotonic()
        asyncio.run(give_up(endpoint_at(server.url)))
        assert time.monotonic() - started < 5


def test_a_proxy_is_used_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    with faults() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "http://me:pass%20word@"))
        monkeypatch.setenv("no_proxy", "here.invalid")
        assert endpoint_at("http://model.invalid:81/v1", proxies=True).send("/x", BODY).status == 200
        assert proxy.paths == ["http://model.invalid:81/v1/x"]
        for url, proxies in (("http://model.invalid", False), ("http://here.invalid", True)):
            with pytest.raises(TryFailed, match="the connection failed") as failed:
                endpoint_at(url, proxies=proxies).send("/x", BODY)
            assert failed.value.unreached


def test_an_answer_without_a_length_is_bounded_and_complete() -> None:
    with faults(closing, cut_off, saying(b"x" * 4000)) as server:
        there = endpoint_at(server.url, most=300)
        assert there.send("/", BODY).status == 200
        with pytest.raises(TryFailed, match="cut off"):
            endpoint_at(server.url, most=2000).send("/", BODY)
        with pytest.raises(TryFailed, match="too large"):
            there.send("/", BODY)


def test_an_outage_of_a_server_that_has_answered_is_waited_for_and_has_an_end() -> None:
    def probing(there: Endpoint) -> tuple[str, int, float]:
        def attempt(until: float) -> str:
            answer = there.send("/", BODY, until=until)
            if answer.status != 200:
                raise TryFailed.of_status(answer, {})
            return "answered"

        return there.ask(attempt, Tries(0, 1.0, 0.01), probe=attempt)

    with faults(good, status(500), status(502), good, *[status(503)] * 99) as server:
        there = endpoint_at(server.url, patience=0.3)
        assert probing(there) == ("answered", 1, 0.0)
        said, tries, waited = probing(there)
        assert (said, tries) == ("answered", 2)
        assert waited > 0
        assert len(server.asked) == 4, "the first request, the second, a probe, and the second again"
        with pytest.raises(Unanswered, match="status 503") as failed:
            probing(there)
        assert failed.value.down
        assert failed.value.silent >= 0.3
        server.script = [good, *[status(429, Retry_After="9999")] * 99]
        assert probing(there)[0] == "answered"
        with pytest.raises(Unanswered, match="status 429"):
            probing(there)  # nobody waits for longer than the patience


def test_a_key_that_cannot_be_sent_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "hidden\nX: y")
    with pytest.raises(BadSetting, match="the key in OPENAI_API_KEY cannot be sent") as refused:
        key_in()
    assert "hidden" not in str(refused.value)
    monkeypatch.setenv("OPENAI_API_KEY", " fine\n")
    assert key_in() == "fine"
