"""The messages of Search-R1's `POST /retrieve`, written and read the same way by our client and our server.

A request has `queries` and is answered by one list for each of them; or it has one `query` (SkyRL). Servers in the
field differ in how they write documents, so reading is tolerant: with a score or without, as `contents` or as `title`
and `text` (which count where all are there, as in a corpus), with an id, a URL or neither.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from agentgym_flow.errors import BadSetting
from agentgym_flow.retrieval.passage import Hit, Passage
from agentgym_flow.seeding import stable_hash

PATH = "/retrieve"
"""Where requests go."""

MAX_QUERY = 4096
"""Characters of a query that are sent and searched for; a model may write without end, which is not an error."""

MAX_QUERIES = 64
"""The most queries of one request of ours."""

NO_SCORE = 0.0
"""The score of a document that came without one."""

_ID_DIGITS = 16


def check_token(token: str) -> str:
    """Return a token that `Authorization: Bearer TOKEN` can carry. Raises `BadSetting`, without it, for another one."""
    if not token:
        raise BadSetting("the token is empty; leave it out, or take some letters that nobody guesses")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise BadSetting("a token has one or more ASCII characters and no blanks")
    return token


class BadAnswer(Exception):
    """A message cannot be read; the text says why. It never leaves this package."""


def request_of(queries: Sequence[str], topk: int) -> bytes:
    """Return the body that asks for several queries at once."""
    body = {"queries": [query[:MAX_QUERY] for query in queries], "topk": topk, "return_scores": True}
    return json.dumps(body).encode("ascii")


def single_request_of(query: str, topk: int) -> bytes:
    """Return the body that asks for one query, as SkyRL does."""
    return json.dumps({"query": query[:MAX_QUERY], "topk": topk, "return_scores": True}).encode("ascii")


def answer_of(found: Sequence[Sequence[Hit]], scores: bool) -> bytes:
    """Return the body of an answer: one list for each query, best first."""
    return b"".join((ANSWER_START, b", ".join(result_of(some, scores) for some in found), ANSWER_END))


ANSWER_START, ANSWER_END = b'{"result": [', b"]}"
"""What stands around the results of an answer, which a comma and a blank separate."""


def result_of(found: Sequence[Hit], scores: bool) -> bytes:
    """Return the part of an answer that one query has: its documents, best first."""
    return json.dumps([_scored(one) if scores else _document(one.passage) for one in found]).encode("ascii")


def _scored(one: Hit) -> dict[str, Any]:
    return {"document": _document(one.passage), "score": one.score}


def _document(passage: Passage) -> dict[str, str]:
    return {"id": passage.id, "contents": passage.contents, "title": passage.title, "text": passage.text}


def read_json(body: bytes) -> Any:
    """Return what a body holds. Raises `BadAnswer` when it is not JSON, or holds a NaN or an infinity."""
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"it is not JSON: {error}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def read_answer(body: bytes, queries: int, topk: int) -> list[list[Hit]]:
    """Return what an answer to so many queries found: a list for each, cut to `topk`.

    Raises `BadAnswer` when the body has another shape; the message has nothing of what it says.
    """
    message = read_json(body)
    if not isinstance(message, Mapping) or not isinstance(message.get("result"), list):
        raise BadAnswer('it is not an object with a list "result"')
    result = message["result"]
    if queries == 1 and all(isinstance(one, Mapping) for one in result):
        result = [result]  # one query, answered without the outer list; or with an empty one
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
    return stable_hash([passage.title, passage.text])[:_ID_DIGITS]  # equal passages have equal names
