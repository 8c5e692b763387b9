"""The remote retriever against a server that fails in every way: an answer or `RetrieverFailed`, and in time."""

from __future__ import annotations

import copy
import json
import os
import pickle
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fault_server import (
    chunked,
    closing,
    cut_off,
    documents,
    dripping,
    endless,
    faults,
    good,
    hanging_up,
    huge,
    saying,
    silent,
    status,
)
from hypothesis import example, given
from hypothesis import strategies as st

from agentgym_flow._util import endpoint
from agentgym_flow.errors import BadData, BadSetting, RetrieverFailed
from agentgym_flow.retrieval import protocol
from agentgym_flow.retrieval.corpus import Hit, Passage, passage_of_record
from agentgym_flow.retrieval.remote import QueryCache, RemoteRetriever

QUICK: dict[str, Any] = {"backoff": 0.002, "read_timeout": 0.3, "deadline": 5.0, "breaker_rest": 0.02}


def expected(query: str, topk: int) -> list[Hit]:
    return [Hit(Passage(f"{query}-{n}", f"Title {n}", f"about {query}"), 9.5 - n) for n in range(topk)]


def test_queries_go_in_one_request_and_answers_come_in_their_order() -> None:
    with faults() as server:
        retriever = RemoteRetriever(server.url + "/", token="t0ken", **QUICK)
        found = retriever.search(["b", "a", "b"], 2)
        assert retriever.search([], 2) == []
    assert found == [expected("b", 2), expected("a", 2), expected("b", 2)]
    assert server.asked == [{"queries": ["b", "a"], "topk": 2, "return_scores": True}]
    assert server.tokens == ["Bearer t0ken"]
    assert server.paths == ["/retrieve"]
    assert "t0ken" not in repr(retriever)


def test_the_single_form_asks_one_query_a_request() -> None:
    with faults(saying({"result": documents("a", 3)})) as server:  # even without the outer list
        found = RemoteRetriever(f"{server.url}/retrieve", single=True, **QUICK).search(["a", "b"], 3)
    assert found == [expected("a", 3), expected("b", 3)]
    assert server.asked == [{"query": query, "topk": 3, "return_scores": True} for query in "ab"]


def test_many_queries_are_asked_in_parts_and_long_ones_are_cut() -> None:
    queries = [f"q{n}" for n in range(protocol.MAX_QUERIES + 1)] + ["x" * 10_000, "\ud800 \U0001f600 \x00"]
    with faults() as server:
        found = RemoteRetriever(server.url, **QUICK).search(queries, 1)
    assert [len(asked["queries"]) for asked in server.asked] == [protocol.MAX_QUERIES, 3]
    assert found[-2] == expected("x" * protocol.MAX_QUERY, 1)
    assert [some[0].passage.id for some in found[:-2]] == [f"{query}-0" for query in queries[:-2]]


FAULTS = {
    "429": status(429),
    "500": status(500),
    "502": status(502),
    "503": status(503, Retry_After="0"),
    "a date to come back": status(503, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT"),
    "silent": silent,
    "hanging up": hanging_up,
    "cut off": cut_off,
    "no JSON": saying(b"<html>SECRET</html>"),
    "no text": saying(b"\xff\xfe\xff"),
    "deep": saying(b"[" * 100_000),
    "huge": huge,
    "endless": endless,
    "an error as a result": saying({"result": "SECRET: no index"}),
    "a list": saying([]),
    "too few lists": saying({"result": [[]]}),
    "no lists": saying({"result": [1, 2]}),
    "no documents": saying({"result": [["SECRET"], []]}),
    "a document of nothing": saying({"result": [[{"document": {"id": "1"}, "score": 1.0}], []]}),
    "a score of text": saying({"result": [[{"document": {"contents": "a"}, "score": "SECRET"}], []]}),
    "a score of nan": saying(b'{"result": [[{"document": {"contents": "a"}, "score": NaN}], []]}'),
    "a score beyond numbers": saying(b'{"result": [[{"document": {"contents": "a"}, "score": 1e999}], []]}'),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_after_any_fault_it_is_tried_again(fault) -> None:
    with faults(FAULTS[fault]) as server:
        retriever = RemoteRetriever(server.url, max_answer=1 << 20, **QUICK)
        assert retriever.search(["a", "b"], 1) == [expected("a", 1), expected("b", 1)]
        assert len(server.asked) == 2


@pytest.mark.parametrize("fault", [cut_off, hanging_up])
def test_a_server_that_accepts_a_connection_is_there(fault) -> None:
    """Only a wrong address has a few seconds; a slow first answer that fails is no sign of one."""
    with faults(fault) as server:
        retriever = RemoteRetriever(server.url, **QUICK, connect_timeout=endpoint.CONTACT)
        assert retriever.search(["a"], 1) == [expected("a", 1)]


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - {"silent"}))
def test_when_all_tries_fail_one_clear_error_is_raised(fault) -> None:
    with faults(*[FAULTS[fault]] * 5) as server:
        retriever = RemoteRetriever(server.url, max_answer=1 << 20, retries=2, **QUICK)
        with pytest.raises(RetrieverFailed) as caught:
            retriever.search(["a", "b"], 1)
        assert "after 3 tries" in str(caught.value)
        assert server.url not in str(caught.value), "the message stands in logs of episodes, which others read"
        assert "SECRET" not in str(caught.value), "nothing of what a server says gets into our text"


@pytest.mark.parametrize("number", [301, 400, 401, 403, 404, 413, 422])
def test_a_refusal_is_told_at_once(number) -> None:
    with faults(status(number)) as server:
        with pytest.raises(RetrieverFailed, match=f"after 1 try .* status {number}"):
            RemoteRetriever(server.url, **QUICK).search(["a"], 1)
        assert len(server.asked) == 1


@pytest.mark.parametrize("slow", [dripping, silent])
def test_the_deadline_holds_whatever_the_server_sends(slow) -> None:
    with faults(*[slow] * 9) as server:
        retriever = RemoteRetriever(server.url, **QUICK | {"deadline": 0.4, "read_timeout": 9.0})
        start = time.monotonic()
        with pytest.raises(RetrieverFailed, match="no answer in"):
            retriever.search(["a"], 1)
        assert time.monotonic() - start < 4  # without it: 9 s and more, for ever


def test_a_server_that_says_when_to_come_back_is_waited_for() -> None:
    with faults(status(503, Retry_After="1")) as server:
        start = time.monotonic()
        assert RemoteRetriever(server.url, **QUICK).search(["a"], 1) == [expected("a", 1)]
        assert time.monotonic() - start >= 1
    with faults(status(429, Retry_After="99")) as server:
        start = time.monotonic()
        with pytest.raises(RetrieverFailed, match=r"after 1 try .* status 429"):
            RemoteRetriever(server.url, **QUICK).search(["a"], 1)
        assert time.monotonic() - start < 4, "it would be too late, so nobody waits"


def test_a_connection_that_was_closed_meanwhile_is_no_failure() -> None:
    with faults() as server:
        retriever = RemoteRetriever(server.url, retries=0, **QUICK)
        retriever.search(["a"], 1)
        server.hang_up()
        assert retriever.search(["b"], 1) == [expected("b", 1)]
        retriever.search(["c"], 1)
        assert len(server.connections) == 1, "connections are used again"
        retriever.close()
        assert retriever.search(["d"], 1) == [expected("d", 1)]


def test_answers_end_in_every_way_that_http_has() -> None:
    with faults(closing, chunked, good, closing) as server:
        retriever = RemoteRetriever(server.url, retries=0, **QUICK)
        for query in "abcd":
            assert retriever.search([query], 1) == [expected(query, 1)]
        assert len(server.connections) == 2, "only the first answer ends a connection that is asked again"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_a_server_that_is_not_there_fails_after_all_tries() -> None:
    retriever = RemoteRetriever(f"http://127.0.0.1:{free_port()}", retries=1, **QUICK)
    with pytest.raises(RetrieverFailed, match=r"after 2 tries .*ConnectionRefusedError"):
        retriever.search(["a"], 1)


@pytest.mark.parametrize("single", [False, True])
def test_a_server_that_has_never_answered_is_named_soon(single: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "CONTACT", 0.3)
    retriever = RemoteRetriever(f"http://127.0.0.1:{free_port()}", connect_timeout=0.2, backoff=0.02, single=single)
    started = time.monotonic()
    with pytest.raises(RetrieverFailed, match="It has never answered: start it, or correct its address"):
        retriever.search(["a", "b", "c"], 1)
    with pytest.raises(RetrieverFailed, match=rf"nothing answers at {retriever.url} .*: start the retriever there"):
        retriever.check_contact()
    assert time.monotonic() - started < 2


def test_a_server_that_has_answered_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "CONTACT", 0.1)
    with faults(good, *[hanging_up] * 4) as server:
        retriever = RemoteRetriever(server.url, **{**QUICK, "backoff": 0.05}, connect_timeout=0.05)
        retriever.check_contact()
        assert retriever.search(["a"], 1) == [expected("a", 1)]
        assert len(server.connections) == 1, "the connection of the check is used"
        assert retriever.search(["b"], 1) == [expected("b", 1)]
        assert len(server.asked) == 6
        server.shutdown()
        server.server_close()
        retriever.close()
        retriever.check_contact()  # it may be down for a while: searches wait for it


def test_answers_in_a_cache_need_no_server(tmp_path: Path) -> None:
    with faults() as server:
        cache = QueryCache(tmp_path / "answers.db")
        found = RemoteRetriever(server.url, cache=cache, identity="one", **QUICK).search(["a"], 2)
    gone = RemoteRetriever(f"http://127.0.0.1:{free_port()}", cache=cache, identity="one", **QUICK)
    gone.check_contact()
    assert gone.search(["a"], 2) == found


def test_an_open_breaker_sends_nothing_and_fails_at_once_when_its_rest_is_too_long() -> None:
    with faults(*[status(500)] * 3) as server:
        retriever = RemoteRetriever(server.url, **QUICK | {"breaker_failures": 3, "breaker_rest": 50.0, "retries": 2})
        for _ in range(2):
            with pytest.raises(RetrieverFailed):
                retriever.search(["a"], 1)
        assert len(server.asked) == 3
        with pytest.raises(RetrieverFailed, match="breaker is open"):
            copy.deepcopy(retriever).search(["a"], 1)


def test_an_open_breaker_is_waited_for_when_the_deadline_allows() -> None:
    with faults(*[status(500)] * 4) as server:
        retriever = RemoteRetriever(server.url, **QUICK | {"breaker_failures": 2, "breaker_rest": 0.05})
        assert retriever.search(["a"], 1) == [expected("a", 1)]
        assert len(server.asked) == 5


def test_a_busy_server_does_not_open_the_breaker() -> None:
    with faults(*[status(503, Retry_After="0")] * 4, status(404), good) as server:
        retriever = RemoteRetriever(server.url, **QUICK | {"breaker_failures": 1, "breaker_rest": 50.0})
        with pytest.raises(RetrieverFailed, match="404"):
            retriever.search(["a"], 1)
        assert retriever.search(["a"], 1) == [expected("a", 1)]


def test_threads_get_their_own_answers() -> None:
    wrong: list[str] = []
    with faults(*[cut_off, status(500), hanging_up, good] * 10) as server:
        retriever = RemoteRetriever(server.url, **QUICK | {"retries": 30, "breaker_failures": 99, "deadline": 120.0})

        def ask(number: int) -> None:
            for turn in range(5):
                query = f"{number}.{turn}"
                if retriever.search([query], 2) != [expected(query, 2)]:
                    wrong.append(query)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
    assert not wrong
    answered = [asked["queries"][0] for asked in server.asked]
    assert set(answered) == {f"{number}.{turn}" for number in range(12) for turn in range(5)}


def test_an_interrupt_passes_and_leaves_the_breaker_as_it_was(monkeypatch) -> None:
    with faults() as server:
        retriever = RemoteRetriever(server.url, **QUICK | {"breaker_failures": 1, "breaker_rest": 50.0})
        with monkeypatch.context() as patched:

            def interrupted(*_: Any, **__: Any) -> None:
                raise KeyboardInterrupt

            patched.setattr(retriever._endpoint, "send", interrupted)
            with pytest.raises(KeyboardInterrupt):
                retriever.search(["a"], 1)
        assert retriever.search(["a"], 1) == [expected("a", 1)]


def test_copies_and_pickles_and_children_ask_the_same_server(tmp_path) -> None:
    with faults() as server:
        retriever = RemoteRetriever(server.url, cache=QueryCache(tmp_path / "cache"), **QUICK)
        assert copy.deepcopy(retriever) is retriever
        again = pickle.loads(pickle.dumps(retriever))
        assert again.search(["a"], 1) == [expected("a", 1)] == retriever.search(["a"], 1)[0:1]
        assert len(server.asked) == 1, "the copy's cache is the same file"
        child = os.fork()
        if child == 0:
            os._exit(0 if retriever.search(["b"], 1) == [expected("b", 1)] else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert retriever.search(["b", "c"], 1) == [expected("b", 1), expected("c", 1)]
        assert [asked["queries"] for asked in server.asked] == [["a"], ["b"], ["c"]]


def test_only_whole_answers_are_kept(tmp_path) -> None:
    cache = QueryCache(tmp_path / "cache")
    with faults(status(500), cut_off) as server:
        retriever = RemoteRetriever(server.url, cache=cache, retries=1, **QUICK)
        with pytest.raises(RetrieverFailed):
            retriever.search(["a"], 1)
        assert len(cache) == 0
        retriever.search(["a"], 1)
        assert len(cache) == 1
        other = RemoteRetriever(server.url, cache=cache, identity="another corpus", **QUICK)
        other.search(["a"], 1)
        retriever.search(["a"], 2)
        assert len(server.asked) == 5


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "ftp://x",
        "http://",
        "http://x:99999",
        "http://x?y=1",
        "http://x#y",
        "http://x\ny",
        "http://ü",
    ],
)
def test_addresses_that_are_none_are_refused(url) -> None:
    with pytest.raises(BadSetting, match="address"):
        RemoteRetriever(url)


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(BadSetting, match="must not contain a name or a password") as caught:
        RemoteRetriever("http://user:hidden@host")
    assert "hidden" not in str(caught.value)
    for settings in (
        {"token": ""},
        {"token": "a\r\nX: y"},
        {"token": "a b"},
        {"token": "sëcret"},
        {"deadline": 0.0},
        {"backoff": float("nan")},
        {"retries": -1},
        {"topk_limit": 0},
        {"max_answer": 0},
        {"breaker_failures": 0},
        {"breaker_rest": 0.0},
        {"deadline": "60"},
        {"read_timeout": None},
        {"connect_timeout": True},
        {"retries": 1.5},
        {"max_answer": "all"},
        {"single": "yes"},
        {"identity": 7},
    ):
        [name] = settings
        with pytest.raises(BadSetting, match=name):
            RemoteRetriever("http://host", **settings)
    for topk in (0, -1, 101):
        with pytest.raises(BadSetting, match="topk is 1 to 100"):
            RemoteRetriever("http://host").search(["a"], topk)


def test_what_was_answered_beside_a_failure_is_not_lost() -> None:
    """Of several requests one fails for good: its error has the answers of the others, and nothing is asked twice."""
    with faults(good, status(500), good) as server:
        retriever = RemoteRetriever(server.url, **QUICK, single=True, retries=0)
        with pytest.raises(RetrieverFailed, match="status 500") as caught:
            retriever.search(["a", "b", "c"], 2)
    assert caught.value.answered == {"a": expected("a", 2), "c": expected("c", 2)}
    assert [asked["query"] for asked in server.asked] == ["a", "b", "c"]
    assert RetrieverFailed("x").answered == {}
    assert not pickle.loads(pickle.dumps(caught.value)).answered.keys() ^ {"a", "c"}


def test_where_nobody_answers_the_other_requests_are_not_made() -> None:
    with faults(*[silent] * 9) as server:
        settings = {**QUICK, "deadline": 0.3, "read_timeout": 0.25}
        with pytest.raises(RetrieverFailed) as caught:
            RemoteRetriever(server.url, **settings, single=True, retries=0).search(["a", "b", "c"], 2)
    assert len(server.asked) == 1
    assert caught.value.answered == {}


def one(document: Any, **rest: Any) -> Hit:
    return protocol.read_answer(json.dumps({"result": [[{"document": document, **rest}]]}).encode(), 1, 3)[0][0]


def test_documents_are_read_in_every_form_of_the_field() -> None:
    assert one({"id": 7, "contents": '"A b"\nc\nd'}, score=2) == Hit(Passage("7", "A b", "c\nd"), 2.0)
    assert one({"id": "7", "title": "A", "text": "c"}) == Hit(Passage("7", "A", "c"), protocol.NO_SCORE)
    assert one({"url": "https://x", "text": "c"}).passage == Passage("https://x", "", "c")
    assert one({"id": "1", "title": "A", "text": "c", "contents": '"A"\nc'}).passage == Passage("1", "A", "c")
    assert one({"_id": "d1", "text": "c"}).passage == Passage("d1", "", "c")
    nameless = one({"contents": "A\nc"}).passage
    assert nameless == one({"title": "A", "text": "c"}).passage != one({"contents": "A\nd"}).passage
    assert len(nameless.id) == 16
    plain = {"result": [[{"id": "1", "contents": "A\nc"}] * 5]}  # no scores, and more than were asked for
    assert protocol.read_answer(json.dumps(plain).encode(), 1, 3) == [[Hit(Passage("1", "A", "c"), 0.0)] * 3]
    assert protocol.read_answer(b'{"result": []}', 1, 3) == [[]] == protocol.read_answer(b'{"result": [[]]}', 1, 3)


field = st.none() | st.integers() | st.sampled_from(["", "A", "A\nB", '"A"', '"A b"\nc\nd', "\u2028"])


@given(st.dictionaries(st.sampled_from(["title", "text", "contents"]), field))
@example({"title": "A", "text": "c", "contents": '"Another"\ncontent'})
@example({"title": "two\nlines", "text": "c"})
def test_an_answer_and_a_corpus_are_read_alike(record: dict[str, Any]) -> None:
    try:
        of_corpus = passage_of_record({"id": "d1", **record}, 0, "here")
    except BadData:
        with pytest.raises(protocol.BadAnswer):
            one({"id": "d1", **record})
    else:
        assert one({"id": "d1", **record}).passage == of_corpus


texts = st.text(st.characters(codec=None), max_size=20)
lines = texts.map(lambda text: text.replace("\n", ""))
found = st.builds(
    Hit, st.builds(Passage, texts.filter(bool), lines, texts), st.floats(allow_nan=False, allow_infinity=False)
)


@given(st.lists(st.lists(found, max_size=4), min_size=2, max_size=4))
def test_what_our_server_writes_our_client_reads(answers) -> None:
    assert protocol.read_answer(protocol.answer_of(answers, scores=True), len(answers), 9) == answers
    without = protocol.read_answer(protocol.answer_of(answers, scores=False), len(answers), 9)
    assert without == [[one._replace(score=protocol.NO_SCORE) for one in some] for some in answers]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["result", "document", "score", "id", "contents", "title", "text", "x"]), inner, max_size=4
        )
    ),
)


@given(json_values, st.integers(1, 3))
def test_no_answer_makes_reading_fail_in_another_way(value, queries) -> None:
    for body in (value, {"result": value}, {"result": [value] * queries}, {"result": [[value]] * queries}):
        try:
            answer = protocol.read_answer(json.dumps(body).encode(), queries, 2)
        except protocol.BadAnswer:
            continue
        assert len(answer) == queries
        assert all(len(some) <= 2 and all(isinstance(each, Hit) for each in some) for some in answer)
