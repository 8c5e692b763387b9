"""The messages of Search-R1's `POST /retrieve`, shared by our client and our server.

A request has `queries`, and its answer one list for each of them; or it has one `query` (SkyRL). Existing servers
format documents differently, so parsing is tolerant: documents may have a score, `contents` or `title` and `text` (the
latter have precedence, as in a corpus), and an id or a URL.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from agentgym_flow.core import stable_hash
from agentgym_flow.retrieval.corpus import Hit, Passage

PATH = "/retrieve"
"""The path of requests."""

MAX_QUERY = 4096
"""Queries are cut to this number of characters, because a model may write endlessly."""

MAX_QUERIES = 64
"""The largest number of queries in a request of our client."""

NO_SCORE = 0.0
"""The score of a document without one."""

_ID_DIGITS = 16


class BadAnswer(Exception):
    """A malformed message; the text gives the reason. This package never raises it to callers."""


def request_of(queries: Sequence[str], topk: int, *, single: bool = False) -> bytes:
    """Return the body of a request; with `single`, for one query in SkyRL's format."""
    cut = [query[:MAX_QUERY] for query in queries]
    asked = {"query": cut[0]} if single else {"queries": cut}
    return json.dumps({**asked, "topk": topk, "return_scores": True}).encode("ascii")


def answer_of(found: Sequence[Sequence[Hit]], scores: bool) -> bytes:
    """Return the body of an answer: one list for each query, best first."""
    return b"".join((ANSWER_START, b", ".join(result_of(some, scores) for some in found), ANSWER_END))


ANSWER_START, ANSWER_END = b'{"result": [', b"]}"
"""The beginning and end of an answer; the results between them are separated by a comma and a space."""


def result_of(found: Sequence[Hit], scores: bool) -> bytes:
    """Return the results of one query in an answer: its documents, best first."""
    documents = [
        {"id": passage.id, "contents": passage.contents, "title": passage.title, "text": passage.text}
        for passage, _ in found
    ]
    scored = [{"document": document, "score": one.score} for document, one in zip(documents, found, strict=True)]
    return json.dumps(scored if scores else documents).encode("ascii")


def read_json(body: bytes) -> Any:
    """Return the content of a body. Raises `BadAnswer` if it is not JSON, or has a NaN or an infinity."""
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"it is not JSON: {error}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def read_answer(body: bytes, queries: int, topk: int) -> list[list[Hit]]:
    """Parse the answer to `queries` queries: return a list for each, cut to `topk`.

    Raises `BadAnswer` if the body has another format; the message does not quote the body.
    """
    message = read_json(body)
    if not isinstance(message, Mapping) or not isinstance(message.get("result"), list):
        raise BadAnswer('it is not an object with a list "result"')
    result = message["result"]
    if queries == 1 and all(isinstance(one, Mapping) for one in result):
        result = [result]  # the answer to a single query may lack the outer list
    if len(result) != queries:
        raise BadAnswer(f"it has {len(result)} lists of documents for {queries} queries")
    if not all(isinstance(some, list) for some in result):
        raise BadAnswer('"result" is not a list of lists')
    return [[_read_found(one) for one in some[:topk]] for some in result]


def _read_found(one: Any) -> Hit:
    if not isinstance(one, Mapping):
        raise BadAnswer("a document is not an object")
    document = one.get("document", one)
    if isinstance(document, str):
        document = {"contents": document}
    if not isinstance(document, Mapping):
        raise BadAnswer("a document is not an object")
    return Hit(_read_passage(document), _read_score(one.get("score")))


def _read_score(score: Any) -> float:
    if score is None:
        return NO_SCORE
    if isinstance(score, bool) or not isinstance(score, (int, float)):
        raise BadAnswer("a score is not a number")
    try:
        number = float(score)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadAnswer("a score is not a finite number")
    return number


def _read_passage(document: Mapping[str, Any]) -> Passage:
    passage = Passage.of_fields("", document)
    if passage is None:
        raise BadAnswer('a document has neither "contents" nor "text"')
    return passage._replace(id=_read_id(document, passage))


def _read_id(document: Mapping[str, Any], passage: Passage) -> str:
    for key in ("id", "_id", "url"):
        name = document.get(key)
        if isinstance(name, (str, int)) and not isinstance(name, bool) and name != "":
            return str(name)
    return stable_hash([passage.title, passage.text])[:_ID_DIGITS]
