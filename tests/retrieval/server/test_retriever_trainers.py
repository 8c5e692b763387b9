"""What trainers outside send: Search-R1's one request for a whole batch, beside which small requests stay fast."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from retriever_running import Echo, health, running, said, wait_until, waiting

from agentgym_flow.core import Stream
from agentgym_flow.retrieval.corpus import MemoryCorpus, Passage
from agentgym_flow.retrieval.remote import RemoteRetriever
from agentgym_flow.retrieval.retrievers import LexicalRetriever

TRAINER = 512 * 5
"""Rollouts of a step in Search-R1's v0.2 recipe: 512 questions, 5 answers to each."""


class SearchR1:
    """Asks as Search-R1's generation does: one request a turn for all rollouts that search, each on a new connection.

    It does not look at the status, has no time-out, and reads `result` of whatever comes.
    """

    def __init__(self, address: str, topk: int = 3) -> None:
        self._host, self._topk = address.removeprefix("http://"), topk

    def batch_search(self, queries: Sequence[str]) -> list[str]:
        payload = {"queries": list(queries), "topk": self._topk, "return_scores": True}
        return [self._text(documents) for documents in self._post(payload)["result"]]

    def _post(self, payload: dict[str, Any]) -> Any:
        connection = http.client.HTTPConnection(self._host)
        headers = {"Accept": "*/*", "Accept-Encoding": "gzip, deflate", "Content-Type": "application/json"}
        connection.request("POST", "/retrieve", json.dumps(payload), {**headers, "Connection": "keep-alive"})
        with connection.getresponse() as answer:
            told = json.load(answer)
        connection.close()
        return told

    @staticmethod
    def _text(documents: list[Any]) -> str:
        lines = [document["document"]["contents"].split("\n") for document in documents]
        return "".join(
            f"Doc {number}(Title: {title}) {chr(10).join(rest)}\n" for number, (title, *rest) in enumerate(lines, 1)
        )


def word(draws: Stream) -> str:
    return f"w{int(2000 ** draws.uniform())}"


@pytest.fixture(scope="module")
def index() -> LexicalRetriever:
    draws = Stream("passages of the trainer's test")
    texts = [" ".join(word(draws) for _ in range(30)) for _ in range(500)]
    return LexicalRetriever(MemoryCorpus([Passage(f"{n}", f"Passage {n}", text) for n, text in enumerate(texts)]))


def test_search_r1_trains_with_a_whole_batch_in_one_request(index) -> None:
    draws = Stream("queries of the trainer's test")
    queries = [" ".join(word(draws) for _ in range(5)) for _ in range(TRAINER)]
    with running(index) as address:
        trainer = SearchR1(address)
        for active in (TRAINER, 400, 1):  # fewer rollouts go on at each turn; 400 is what retrieval_request.py sends
            shown = trainer.batch_search(queries[:active])
            expected = index.search(queries[:active], 3)
            assert shown == [
                "".join(f'Doc {n}(Title: "{hit.passage.title}") {hit.passage.text}\n' for n, hit in enumerate(hits, 1))
                for hits in expected
            ]


def test_a_group_asks_the_same_and_is_answered_each() -> None:
    retriever = Echo()
    with running(retriever) as address:
        shown = SearchR1(address).batch_search(["a", "b", "a", "nothing"] * 900)
    a, b = (
        SearchR1._text([{"document": {"contents": said(name, n).passage.contents}} for n in range(3)]) for name in "ab"
    )
    assert shown == [a, b, a, ""] * 900
    assert sorted(query for batch in retriever.batches for query in batch) == ["a", "b", "nothing"]


def test_small_requests_do_not_wait_for_large_ones() -> None:
    retriever = Echo()
    with running(retriever) as address, ThreadPoolExecutor(8) as clients:
        retriever.gate.clear()
        large = []
        for name in ("large", "other"):
            large.append(clients.submit(SearchR1(address).batch_search, [f"{name} {n}" for n in range(4096)]))
            wait_until(lambda: waiting(address) == 4096 * len(large) - 64)
        small = clients.submit(RemoteRetriever(address, retries=0).search, ["small"], 3)
        wait_until(lambda: waiting(address) == 4096 * 2 - 64 + 1)
        retriever.gate.set()
        assert small.result() == [[said("small", n) for n in range(3)]]
        assert [len(answer.result()) for answer in large] == [4096, 4096]
    assert "small" in retriever.batches[1], "it is in the batch after the one that was searched for when it came"
    assert max(map(len, retriever.batches)) == 64
    shares = [{query.split()[0] for query in batch} for batch in retriever.batches[2:-2]]
    assert all(share == {"large", "other"} for share in shares), "the large ones share what is left"


def test_a_trainer_that_is_killed_leaves_no_work_behind() -> None:
    retriever = Echo()
    with running(retriever) as address:
        retriever.gate.clear()
        connection = http.client.HTTPConnection(address.removeprefix("http://"))
        connection.request("POST", "/retrieve", json.dumps({"queries": [f"{n}" for n in range(4096)]}))
        wait_until(lambda: waiting(address) == 4096 - 64)
        connection.close()
        wait_until(lambda: health(address)["statuses"] == {"499": 1})
        retriever.gate.set()
        assert RemoteRetriever(address).search(["after"], 1) == [[said("after", 0)]]
        assert waiting(address) == 0
    assert [len(batch) for batch in retriever.batches] == [64, 1]
