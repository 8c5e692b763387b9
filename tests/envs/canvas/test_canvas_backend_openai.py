"""The OpenAI-compatible backend against a server that fails in every way: results say so, and nothing hangs."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import pytest
from backend_calls import CUSTOM, Handler, backend_at, call_of, chat_server, completion, says
from fault_server import Step, cut_off, dripping, endless, hanging_up, saying, silent, status

from agentgym_flow._util import endpoint, openai_access
from agentgym_flow._util.endpoint import Gate
from agentgym_flow._util.http import Call
from agentgym_flow._util.openai_access import PROBE
from agentgym_flow.envs.canvas.backends.openai_compatible import OpenAIBackend, Price, Usage
from agentgym_flow.envs.canvas.operators.calls import Execution, ExecutionResult, Value
from agentgym_flow.errors import BadSetting, ExecutorFailed


def test_a_call_is_one_request_with_all_that_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sesame")
    with chat_server() as server:
        backend = backend_at(
            server, key_variable="SOME_KEY", temperature=0.5, max_tokens=77, request={"top_k": 3, "top_p": None}
        )
        result = backend.run(call_of("Custom", "say it in one word"))
    assert (result.status, result.value, result.text, result.tokens) == ("ok", Value(text="four"), "four", 15)
    assert result.latency > 0
    (asked,) = server.asked
    assert server.paths == ["/v1/chat/completions"]
    assert server.tokens == ["Bearer sesame"]
    seed, messages = asked.pop("seed"), asked.pop("messages")
    assert asked == {"model": "tiny", "temperature": 0.5, "max_tokens": 77, "top_k": 3}
    assert 0 <= seed < 2**31
    assert [message["role"] for message in messages] == ["system", "user"]
    assert "say it in one word" in messages[1]["content"]
    assert "How many apples" in messages[1]["content"]


def test_fields_that_are_none_are_not_sent() -> None:
    with chat_server() as server:
        backend_at(server, temperature=None, max_tokens=None, request={"seed": None}).run(CUSTOM)
    assert set(server.asked[0]) == {"model", "messages"}


def test_the_longest_completion_is_named_as_the_server_wants() -> None:
    refused = b'{"error": {"message": "Unsupported parameter: max_tokens. Use max_completion_tokens."}}'
    with chat_server(lambda handler: handler.reply(400, refused, Content_Type="application/json")) as server:
        backend = backend_at(server, max_tokens=77)
        assert [backend.run(CUSTOM).status for _ in range(2)] == ["ok", "ok"]
    limits = [{name: asked[name] for name in asked if name.startswith("max")} for asked in server.asked]
    assert limits == [{"max_tokens": 77}, {"max_completion_tokens": 77}, {"max_completion_tokens": 77}]


def test_seeds_belong_to_calls() -> None:
    with chat_server() as server:
        backend = backend_at(server)
        for call in (CUSTOM, CUSTOM, call_of("Custom", seed=1), call_of("Custom", place="2")):
            assert backend.run(call).status == "ok"
    first, again, *others = [asked["seed"] for asked in server.asked]
    assert first == again == 335975863  # for ever: a server that keeps to seeds repeats itself
    assert len({first, *others}) == 3


def test_votes_have_seeds_of_their_own() -> None:
    with chat_server(*[says(f"Choice: {number}") for number in (1, 1, 2, 3, 1)], default=says("Choice: 1")) as server:
        assert backend_at(server).run(call_of("MdEnsemble")).status == "ok"
    seeds = [asked["seed"] for asked in server.asked]
    assert len(set(seeds)) == len(seeds) >= 3


PASSING: dict[str, Step] = {
    "status 429": status(429),
    "status 500": status(500),
    "status 503": status(503),
    "status 408": status(408),
    "connection failed": cut_off,
    "connection failed ": hanging_up,
    "not JSON": saying(b'{"choices": [{"mess'),
    "not JSON ": saying(b"[" * 100_000),
    "no choices": saying({"choices": []}),
    "not a chat completion": saying({"object": "list", "data": []}),
    "not a chat completion ": saying([1, 2]),
    "not a chat completion  ": saying({"choices": [{"message": {"content": 7}}]}),
    "not a chat completion   ": saying({"choices": "four", "usage": {}}),
    "not a chat completion    ": saying({"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": "9"}}),
}


@pytest.mark.parametrize("what", PASSING)
def test_what_may_pass_is_tried_again(what: str) -> None:
    with chat_server(PASSING[what], PASSING[what]) as server:
        backend = backend_at(server)
        result = backend.run(CUSTOM)
    assert (result.status, result.value) == ("ok", Value(text="four"))
    assert backend.usage == Usage(1, 0, 3, 10, 5, None)


@pytest.mark.parametrize("what", PASSING)
def test_what_does_not_pass_is_an_error(what: str) -> None:
    with chat_server(default=PASSING[what]) as server:
        backend = backend_at(server)
        result = backend.run(CUSTOM)
    assert (result.status, result.value, result.tokens) == ("error", None, 0)
    assert "after 3 tries" in result.text
    assert what.strip() in result.text
    assert "SECRET" not in result.text  # nothing that the server sent
    assert (backend.usage.failures, backend.usage.requests, len(server.asked)) == (1, 3, 3)


@pytest.mark.parametrize("number", [400, 422])
def test_a_refusal_is_not_tried_again(number: int) -> None:
    with chat_server(default=status(number)) as server:
        result = backend_at(server).run(CUSTOM)
    assert (result.status, len(server.asked)) == ("error", 1)
    assert f"1 try within 20 s; last: status {number}, " in result.text
    assert "SECRET" not in result.text


@pytest.mark.parametrize("number", [401, 403, 404])
def test_a_refusal_of_the_key_or_the_model_is_no_fault_of_the_call(number: int) -> None:
    with chat_server(default=status(number)) as server:
        backend = backend_at(server)
        with pytest.raises(ExecutorFailed, match=rf"'tiny': .*1 try within 20 s; last: status {number}, ") as raised:
            backend.run(CUSTOM)
    assert "SECRET" not in str(raised.value)
    assert backend.usage == Usage(1, 1, 1)


def test_a_server_that_fails_request_after_request_is_at_fault_itself() -> None:
    """Otherwise every workflow would score 0, as if its design were wrong."""
    with chat_server(default=status(500)) as server:
        backends = [backend_at(server, retries=0), OpenAIBackend("other", f"{server.url}/v1", retries=0)]
        results = [backends[number % 2].run(call_of("Custom", seed=number)) for number in range(9)]
        assert {result.status for result in results} == {"error"}
        for _ in range(2):
            with pytest.raises(ExecutorFailed, match="last: status 500"):
                backends[0].run(CUSTOM)
        server.script.default = says("four")
        assert backends[1].run(CUSTOM).status == "ok", "it is asked all the same"


def test_a_server_that_had_answered_is_waited_for() -> None:
    """However many requests fail at once: what counts is how long nobody was answered."""
    with chat_server(says("four"), *[status(500)] * 60) as server:
        backend = backend_at(server, retries=0)
        assert backend.run(CUSTOM).status == "ok"
        with ThreadPoolExecutor(16) as pool:
            results = list(pool.map(backend.run, [call_of("Custom", seed=number) for number in range(16)]))
        assert {result.status for result in results} == {"ok"}
        assert len(server.asked) >= 77


def test_a_server_of_these_tests_is_new_at_a_port_that_another_had() -> None:
    """Or else its first failure would be an outage of the server before, to be waited for."""
    with chat_server() as server:
        assert backend_at(server).run(CUSTOM).status == "ok"
    with chat_server(status(500), port=server.server_address[1]) as other:
        assert backend_at(other, retries=0).run(CUSTOM).status == "error"


def test_when_patience_is_over_the_server_is_at_fault() -> None:
    with chat_server(says("four"), default=status(500)) as server:
        backend = backend_at(server, retries=0)
        backend.wait_for(0.4)
        assert backend.run(CUSTOM).status == "ok"
        with pytest.raises(ExecutorFailed, match="answered no request for the whole of --patience"):
            backend.run(CUSTOM)
        with pytest.raises(BadSetting, match="patience"):
            backend.wait_for(-1)


def test_a_request_that_fails_while_the_server_answers_others_is_no_outage() -> None:
    def only_probes(handler: Handler) -> None:
        (says("yes") if handler.asked["messages"][0]["content"] == PROBE else status(500))(handler)

    with chat_server(says("four"), default=only_probes) as server:
        backend = backend_at(server, retries=0)
        assert [backend.run(CUSTOM).status for _ in range(2)] == ["ok", "error"]
        assert backend.run(call_of("Custom", seed=3)).status == "error"


def test_retry_after_is_kept_to() -> None:
    with chat_server(status(429, Retry_After="1")) as server:
        started = time.monotonic()
        assert backend_at(server).run(CUSTOM).status == "ok"
    assert time.monotonic() - started >= 1


def test_a_pause_beyond_the_deadline_is_not_waited_for() -> None:
    with chat_server(status(429, Retry_After="9999")) as server:
        result = backend_at(server, deadline=3600.0).run(CUSTOM)
    assert (result.status, len(server.asked)) == ("error", 1)
    assert "status 429" in result.text


@pytest.mark.parametrize("slow", [silent, dripping, endless])
def test_a_slow_server_is_a_timeout(slow: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_access, "MOST_ANSWER", 1 << 60)
    with chat_server(default=slow) as server:
        result = backend_at(server, timeout=0.2, retries=1).run(CUSTOM)
    assert (result.status, result.value) == ("timeout", None)
    assert "2 tries within 20 s; last: no answer in 0.2 s" in result.text


def test_the_deadline_holds_over_all_tries() -> None:
    with chat_server(default=silent) as server:
        result = backend_at(server, timeout=0.3, deadline=0.5, retries=50).run(CUSTOM)
    assert result.status == "timeout"
    assert len(server.asked) <= 2


def test_the_deadline_holds_over_all_requests_of_a_call() -> None:
    def slow(order: Execution) -> ExecutionResult:
        time.sleep(0.7)
        return ExecutionResult("failed", problem="division by zero")

    with chat_server(default=says("```python\ndef solve(): return 1/0\n```")) as server:
        result = backend_at(server, deadline=0.6, run_code=slow).run(call_of("Programmer"))
    assert (result.status, len(server.asked)) == ("timeout", 1)
    assert "before the last request" in result.text


def test_an_answer_that_never_ends_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_access, "MOST_ANSWER", 1 << 16)
    with chat_server(default=endless) as server:
        result = backend_at(server, retries=0).run(CUSTOM)
    assert result.status == "error"
    assert "too large" in result.text


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    backend = OpenAIBackend("tiny", f"http://127.0.0.1:{port}/v1", retries=1, backoff=0.01)
    with pytest.raises(ExecutorFailed, match=r"after 2 tries.* the connection failed"):
        backend.run(CUSTOM)
    assert backend.usage == Usage(1, 1, 2)


def test_an_address_where_nothing_has_ever_answered_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "CONTACT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    backend = OpenAIBackend("tiny", f"http://127.0.0.1:{port}/v1", retries=50, backoff=0.05)
    started = time.monotonic()
    with pytest.raises(ExecutorFailed, match="check that the server runs, its URL"):
        backend.run(CUSTOM)
    assert time.monotonic() - started < 10


def test_a_server_that_refuses_temperature_gets_none() -> None:
    refused = b'{"error": {"message": "temperature must be 1"}}'
    with chat_server(
        lambda handler: handler.reply(400, refused, Content_Type="application/json"), default=says("four")
    ) as server:
        assert backend_at(server).run(CUSTOM).status == "ok"
    assert ["temperature" in asked for asked in server.asked] == [True, False]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (completion(""), "empty"),
        (completion(None), "empty"),
        (completion("<think>hm"), "without an end"),
        (completion("<think>hm</think> \n"), "empty"),
        (completion("four and", ended="length"), "cut off"),
        (completion("four", ended="content_filter"), "filter"),
    ],
)
def test_half_a_reply_is_none(body: bytes, said: str) -> None:
    with chat_server(default=saying(body)) as server:
        result = backend_at(server).run(CUSTOM)
    assert (result.status, result.value, result.tokens) == ("error", None, 15)  # it was paid for
    assert said in result.text
    assert len(server.asked) == 1


def test_thoughts_are_left_out() -> None:
    with chat_server(default=says("<think>2 + 2</think>\nfour")) as server:
        assert backend_at(server).run(CUSTOM).value == Value(text="four")


def test_tokens_and_costs_are_counted() -> None:
    with chat_server(default=says("Choice: 1", read=100, written=20)) as server:
        backend = backend_at(server, price=Price(2.0, 30.0))
        voted = backend.run(call_of("MdEnsemble", candidates=(Value(text="a"), Value(text="a"))))
        votes = len(server.asked)
        told = backend.run(CUSTOM)
    assert 3 <= votes <= 5
    assert voted.tokens == votes * 120
    assert voted.cost == pytest.approx(votes * (100 * 2 + 20 * 30) / 1e6)
    assert told.cost == pytest.approx((100 * 2 + 20 * 30) / 1e6)
    used = backend.usage
    assert (used.calls, used.requests) == (2, votes + 1)
    assert (used.read, used.written) == ((votes + 1) * 100, (votes + 1) * 20)
    assert used.cost == pytest.approx(voted.cost + told.cost)


def test_without_prices_there_is_no_cost() -> None:
    with chat_server() as server:
        backend = backend_at(server)
        assert backend.run(CUSTOM).cost == 0
    assert backend.usage.cost is None


class Crowd:
    """Counts how many requests are under way; each is answered when `size` are, or after a while."""

    def __init__(self, size: int) -> None:
        self.size, self.now, self.most = size, 0, 0
        self.changed = threading.Condition()

    def __call__(self, handler: Handler) -> None:
        with self.changed:
            self.now += 1
            self.most = max(self.most, self.now)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.most >= self.size, timeout=1)
        time.sleep(0.02)
        with self.changed:
            self.now -= 1
        says("four")(handler)


def test_the_limit_is_shared_by_threads_and_backends() -> None:
    crowd = Crowd(3)
    with chat_server(default=crowd) as server, ThreadPoolExecutor(16) as pool:
        backends = [backend_at(server, concurrency=3), OpenAIBackend("other", f"{server.url}/v1/", concurrency=3)]
        calls = [(backends[number % 2], call_of("Custom", seed=number)) for number in range(16)]
        results = list(pool.map(lambda pair: pair[0].run(pair[1]), calls))
    assert {result.status for result in results} == {"ok"}
    assert crowd.most == 3


def test_a_call_that_gives_up_its_place_in_the_queue_keeps_nobody_waiting() -> None:
    with chat_server(silent) as server, ThreadPoolExecutor(4) as pool:
        backend = backend_at(server, concurrency=1, timeout=1.0, retries=0)
        backend.wait_for(0)  # otherwise the first is repeated if the third is answered at once
        first = pool.submit(backend.run, CUSTOM)
        while not server.asked:
            time.sleep(0.01)
        second = pool.submit(backend_at(server, concurrency=1, deadline=0.2).run, CUSTOM)
        third = pool.submit(backend_at(server, concurrency=1).run, CUSTOM)
        assert second.result().status == "timeout"
        assert "others are under way" in second.result().text
        assert (first.result().status, third.result().status) == ("timeout", "ok")


def test_a_place_that_is_given_to_somebody_who_just_left_goes_on_to_the_next() -> None:
    gate, entered, calls = Gate(), [], [Call() for _ in range(4)]
    threads = []

    def enter(number: int, most: int) -> None:
        with contextlib.suppress(CancelledError), gate.place(most, math.inf, calls[number]):
            entered.append(number)

    with gate.place(1, math.inf, Call()):
        for number, most in enumerate([1, 1, 1, 2]):
            threads.append(threading.Thread(target=enter, args=(number, most)))
            threads[-1].start()
            while len(gate._queue) == number:
                time.sleep(0.001)
        calls[1].cancel()
        with gate._lock:  # its turn comes, and it does not know yet
            calls[0]._cancelled = True
    for thread in threads:
        thread.join(10)
    assert gate.under_way == 0
    assert sorted(entered) == [2, 3]


def test_many_threads_get_their_answers_and_every_call_counts() -> None:
    with chat_server() as server, ThreadPoolExecutor(24) as pool:
        backend = backend_at(server, concurrency=8)
        results = list(pool.map(backend.run, [call_of("Custom", seed=number) for number in range(120)]))
    assert all(result.value == Value(text="four") for result in results)
    assert backend.usage == Usage(120, 0, 120, 1200, 600, None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork with threads, which is the point
def test_a_forked_child_asks_by_itself() -> None:
    with chat_server() as server:
        backend = backend_at(server)
        assert backend.run(CUSTOM).status == "ok"
        child = os.fork()
        if not child:
            os._exit(0 if backend.run(CUSTOM).status == "ok" and backend.usage.calls == 2 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert backend.run(CUSTOM).status == "ok"
    assert len(server.asked) == 3


_INTERRUPTED = """
import sys
sys.path[:0] = sys.argv[2:]
from agentgym_flow.envs.canvas.backends.openai_compatible import OpenAIBackend
from backend_calls import CUSTOM
backend = OpenAIBackend("tiny", sys.argv[1], timeout=500, deadline=600, concurrency=1)
try:
    backend.run(CUSTOM)
except KeyboardInterrupt:
    print("interrupted,", backend.run(CUSTOM).status)  # its place at the server is free
"""


def test_an_interrupt_ends_it() -> None:
    with chat_server(silent) as server:
        process = subprocess.Popen(
            [sys.executable, "-c", _INTERRUPTED, f"{server.url}/v1", *sys.path], stdout=subprocess.PIPE, text=True
        )
        while not server.asked:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=10)  # the server stays silent for longer
    assert (said, process.returncode) == ("interrupted, ok\n", 0)


def test_what_is_under_way_can_be_given_up() -> None:
    with chat_server(silent, silent, silent) as server, ThreadPoolExecutor(3) as pool:
        backend = backend_at(server, timeout=15.0)
        calls = [pool.submit(backend.run, call_of("Custom", seed=number)) for number in range(3)]
        while len(server.asked) < 3:
            time.sleep(0.01)
        backend.cancel()
        for call in calls:
            with pytest.raises(CancelledError):
                call.result(10)
        assert backend.run(CUSTOM).status == "ok"
    assert (backend.usage.calls, backend.usage.failures) == (4, 3)


def test_a_pause_leaves_the_place_to_others() -> None:
    with chat_server(status(429, Retry_After="2")) as server, ThreadPoolExecutor(1) as pool:
        backend = backend_at(server, concurrency=1)
        pausing = pool.submit(backend.run, CUSTOM)
        while not server.asked:
            time.sleep(0.01)
        assert backend.run(call_of("Custom", seed=1)).status == "ok"
        assert not pausing.done()
        assert pausing.result().status == "ok"


def test_no_model_and_no_server_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Published: a missing setting meant a certain hosted model."""
    for missing in ({"model": "m"}, {"url": "http://127.0.0.1:9/v1"}):
        with pytest.raises(TypeError, match="missing"):
            OpenAIBackend(**missing)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with chat_server() as server:
        assert backend_at(server).run(CUSTOM).status == "ok"
    assert server.tokens == ["Bearer none"]


def test_copies_share_the_backend_and_pickles_hold_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    with chat_server() as server:
        backend = backend_at(server, price=(1, 2), request={"top_p": 0.9})
        assert copy.deepcopy(backend) is backend
        sent = pickle.dumps(backend)
        assert b"sesame" not in sent
        again = pickle.loads(sent)
        assert again.run(CUSTOM).value == backend.run(CUSTOM).value
    assert again.usage == backend.usage
    assert "sesame" not in repr(backend)
    mine, theirs = server.asked
    assert mine == theirs


def test_half_characters_are_replaced_in_a_request() -> None:
    with chat_server() as server:
        assert backend_at(server).run(call_of("Custom", problem="half \ud83d a pair", previous=None)).status == "ok"
    assert "half ? a pair" in json.dumps(server.asked[0]["messages"])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": ""}, "model must be a text"),
        ({"url": "localhost:8000"}, "not the address"),
        ({"url": "http://me:sesame@host/v1"}, "must not contain a name or a password"),
        ({"key_variable": ""}, "key_variable"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"timeout": 0}, "timeout"),
        ({"deadline": float("inf")}, "deadline"),
        ({"backoff": "1"}, "backoff"),
        ({"retries": -1}, "retries"),
        ({"repairs": True}, "repairs"),
        ({"concurrency": 0}, "concurrency"),
        ({"price": 3}, "price is two numbers"),
        ({"price": (1, -1)}, "price is two numbers"),
        ({"request": {"messages": []}}, "cannot hold 'messages'"),
        ({"request": {"x": object()}}, "plain data"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadSetting, match=said):
        OpenAIBackend(**{"model": "m", "url": "http://127.0.0.1:9/v1", **settings})
