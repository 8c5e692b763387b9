"""A client for a retriever in another process that implements Search-R1's `POST /retrieve`.

Requests are retried with exponential back-off until a deadline, and a circuit breaker blocks requests to a server that
keeps failing. A search returns the complete answer or raises `RetrieverFailed`. Error messages of a server never become
part of an observation.
"""

from __future__ import annotations

import http.client
import itertools
import os
import time
from collections.abc import Sequence
from typing import Any

from agentgym_flow._util.loopback import server_address
from agentgym_flow._util.sharing import Shared
from agentgym_flow.core import Stream
from agentgym_flow.errors import BadSetting, RetrieverFailed
from agentgym_flow.retrieval import protocol
from agentgym_flow.retrieval.breaker import Breaker, Permit
from agentgym_flow.retrieval.exchange import Answer, Exchange, TooLarge
from agentgym_flow.retrieval.passage import Hit
from agentgym_flow.retrieval.protocol import BadAnswer
from agentgym_flow.retrieval.query_cache import QueryCache

LONGEST_PAUSE = 8.0
"""The longest pause between attempts, in seconds."""

CONTACT = 4.5
"""Seconds in which a server that was never reached must accept a connection: its address may be wrong."""

BUSY = frozenset({429, 503})
"""Statuses of an overloaded server. It is alive, so they do not open the breaker."""

AGAIN = BUSY | {408, 500, 502, 504}
"""Statuses after which a request is retried."""


class RemoteRetriever(Shared):
    """A client of a retrieval server. Thread-safe; copies within a process share connections, breaker and cache.

    Args:
        url: the address of the server, such as `http://127.0.0.1:8000`; `/retrieve` is appended if missing.
        token: sent as `Authorization: Bearer TOKEN`; None to send no token. A pickle of this object contains the token
            in plain text, because another process needs it, so protect the pickle like the token.
        single: send one query per request, for servers that only support SkyRL's format. The requests of one search are
            sequential, so this is slower than several queries per request.
        topk_limit: the largest number of passages per query.
        connect_timeout: seconds to establish a connection.
        read_timeout: seconds to wait for more data.
        deadline: seconds for one request, including all attempts and pauses. While the server has never accepted a
            connection, no attempt starts that may end more than `CONTACT` seconds after the first.
        retries: the number of attempts after the first.
        backoff: seconds of the first pause. Each pause is twice as long as the one before, up to 8 seconds, and is
            multiplied by a random factor between 0.5 and 1, so that many clients do not return at the same time.
        breaker_failures: the number of consecutive failures after which nothing is sent for `breaker_rest` seconds.
        breaker_rest: see above. A search waits for the end of this time if its deadline allows it, else it fails.
        max_answer: the largest number of bytes in a response.
        cache: a cache of answers on disk.
        identity: the name of the server in the cache, by default its address. Change it if the server's corpus changes.

    Attributes:
        url: the address of requests.
        topk_limit: as given.

    Raises `BadSetting` for an invalid address or setting.
    """

    name = "remote"

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        single: bool = False,
        topk_limit: int = 100,
        connect_timeout: float = 3.0,
        read_timeout: float = 20.0,
        deadline: float = 60.0,
        retries: int = 12,
        backoff: float = 0.25,
        breaker_failures: int = 5,
        breaker_rest: float = 2.0,
        max_answer: int = 32 << 20,
        cache: QueryCache | None = None,
        identity: str | None = None,
    ) -> None:
        self._settings = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        for setting, seconds in {
            "connect_timeout": connect_timeout,
            "read_timeout": read_timeout,
            "deadline": deadline,
            "backoff": backoff,
            "breaker_rest": breaker_rest,
        }.items():
            _check_seconds(setting, seconds)
        for setting, number, least in (
            ("topk_limit", topk_limit, 1),
            ("retries", retries, 0),
            ("breaker_failures", breaker_failures, 1),
            ("max_answer", max_answer, 1),
        ):
            _check_whole(setting, number, least)
        if not isinstance(single, bool):
            raise BadSetting(f"single must be true or false, not {single!r:.60}")
        if not isinstance(identity, str | None):
            raise BadSetting(f"identity is a text, not {identity!r:.60}")
        address = server_address(url, "http://127.0.0.1:8000", "pass the token as a separate setting")
        if not address.path.endswith(protocol.PATH):
            address = address._replace(path=address.path + protocol.PATH)
        self.url = f"{address.scheme}://{address.host}:{address.port}{address.path}"
        self._single, self.topk_limit = single, topk_limit
        self._deadline, self._retries, self._backoff = deadline, retries, backoff
        self._cache, self._identity = cache, identity or self.url
        self._breaker = Breaker(breaker_failures, breaker_rest)
        self._exchange = Exchange(
            address,
            _headers(token),
            connect_timeout=connect_timeout,
            read_timeout=read_timeout,
            max_answer=max_answer,
        )
        self._connect_timeout = min(connect_timeout, CONTACT)
        self._numbers = itertools.count()

    def __repr__(self) -> str:
        return f"RemoteRetriever({self.url!r})"

    def __getstate__(self) -> dict[str, Any]:
        return self._settings

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return for each query the server's results, best first and at most `topk`.

        Queries are cut to 4,096 characters. A document without a score gets the score 0.

        Raises:
            BadSetting: `topk` is below 1 or above the limit.
            RetrieverFailed: there was no valid answer in time, or the server refused a request; the attribute
                `answered` has the results of the other queries.
        """
        if not 1 <= topk <= self.topk_limit:
            raise BadSetting(f"topk is 1 to {self.topk_limit}, not {topk}")
        asked = [query[: protocol.MAX_QUERY] for query in queries]
        known: dict[str, list[Hit]] = {}
        missing = list(dict.fromkeys(asked))
        if self._cache is not None:
            kept = self._cache.get(self._identity, missing, topk)
            known = {query: found for query, found in zip(missing, kept, strict=True) if found is not None}
            missing = [query for query in missing if query not in known]
        failure = self._ask_all(missing, topk, known)
        if failure is not None:
            failure.answered = known
            raise failure
        return [list(known[query]) for query in asked]

    def _ask_all(self, queries: Sequence[str], topk: int, known: dict[str, list[Hit]]) -> RetrieverFailed | None:
        """Send the queries in one or more requests, add the answers to `known`, and return the first failure.

        After a failure the other requests are still sent, unless half the deadline has passed or the server was never
        reached.
        """
        failure, begun = None, time.monotonic()
        step = 1 if self._single else protocol.MAX_QUERIES
        for start in range(0, len(queries), step):
            part = queries[start : start + step]
            try:
                answers = list(zip(part, self._ask(part, topk), strict=True))
            except RetrieverFailed as error:
                failure = failure or error
                if not self._exchange.accepted or time.monotonic() - begun > self._deadline / 2:
                    break
                continue
            known.update(answers)
            if self._cache is not None:
                self._cache.put(self._identity, topk, answers)
        return failure

    def check_contact(self) -> None:
        """Raise `RetrieverFailed`, with the address, unless the server accepts a connection within `CONTACT` seconds.

        Does nothing if the server has been reached before, because searches wait for it, or if there is a cache, which
        may have all answers.
        """
        until = time.monotonic() + CONTACT
        while self._cache is None and not self._exchange.accepted:
            try:
                self._exchange.connect(until)
            except OSError as error:
                if time.monotonic() + self._backoff + self._connect_timeout >= until:
                    raise RetrieverFailed(
                        f"nothing answers at {self.url} ({_told(error)}): start the retriever there, or correct the "
                        "address in retriever"
                    ) from None
                time.sleep(self._backoff)

    def close(self) -> None:
        """Close the idle connections; the next search opens new ones."""
        self._exchange.close()

    def _ask(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        body = protocol.request_of(queries, topk, single=self._single)
        begun = time.monotonic()
        end = begun + self._deadline
        chance = Stream("remote retriever", self.url, os.getpid(), next(self._numbers))
        what = "the breaker is open after earlier failures"
        for tried in range(self._retries + 1):
            last = end if self._exchange.accepted else min(end, begun + CONTACT - self._connect_timeout)
            given = self._enter(last, tried, what)
            try:
                answer = self._exchange.post(body, end)
                problem = _problem(answer)
                if problem is None:
                    found = protocol.read_answer(answer.body, len(queries), topk)
                    self._breaker.succeeded(given)
                    return found
            except (OSError, http.client.HTTPException, TooLarge, BadAnswer) as error:
                answer, problem = None, _told(error)
            except BaseException:  # Ctrl-C: the state of the server is unknown
                self._breaker.dropped(given)
                raise
            what = problem
            if answer is None or (answer.status >= 500 and answer.status not in BUSY):
                self._breaker.failed(given)
            else:
                self._breaker.succeeded(given)
                if answer.status not in AGAIN:
                    raise self._failed(what, tried + 1)
            if tried < self._retries:
                last = end if self._exchange.accepted else last
                least = 0.0 if answer is None or answer.retry_after is None else answer.retry_after
                self._pause(max(least, pause_after(tried, self._backoff, chance)), last, tried + 1, what)
        raise self._failed(what, self._retries + 1)

    def _enter(self, end: float, tried: int, what: str) -> Permit:
        while not isinstance(given := self._breaker.enter(), Permit):
            self._pause(given, end, tried, what)
        return given

    def _pause(self, seconds: float, end: float, tried: int, what: str) -> None:
        if time.monotonic() + seconds >= end:
            raise self._failed(what, tried)
        time.sleep(seconds)

    def _failed(self, what: str, tried: int) -> RetrieverFailed:
        # Without the address, because the message goes into the episode's log, which may be published.
        times = "1 try" if tried == 1 else f"{tried} tries"
        reached = self._exchange.accepted
        seconds = self._deadline if reached else min(self._deadline, CONTACT)
        advice = "" if reached else ". It has never answered: start it, or correct its address in retriever"
        return RetrieverFailed(
            f"the retriever gave no usable answer after {times} within {seconds:g} s; last: {what}{advice}"
        )


def pause_after(tried: int, first: float, chance: Stream) -> float:
    """Return the pause in seconds after attempt number `tried`, from 0: exponential back-off with jitter."""
    return min(LONGEST_PAUSE, first * 2.0 ** min(tried, 30)) * (0.5 + 0.5 * chance.uniform())


def _check_seconds(setting: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise BadSetting(f"{setting} is a positive number of seconds, not {value!r:.60}")


def _check_whole(setting: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadSetting(f"{setting} is an integer of {least} or more, not {value!r:.60}")


def _headers(token: str | None) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {protocol.check_token(token)}"
    return headers


def _problem(answer: Answer) -> str | None:
    """Describe the error status of an answer, without quoting its body; None for status 200."""
    if answer.status == 200:
        return None
    hints = {
        401: "it requires another token",
        403: "it rejects this client",
        404: "there is no retriever at this address",
        413: "the request is too large for it",
        429: "it is overloaded",
        503: "it is overloaded",
    }
    hint = hints.get(answer.status, "it moved" if 300 <= answer.status < 400 else "")
    return f"status {answer.status}{f', {hint}' if hint else ''}"


def _told(error: Exception) -> str:
    if isinstance(error, TooLarge):
        return "the answer is too large"
    if isinstance(error, BadAnswer):
        return f"the answer cannot be read: {error}"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer was cut off"
    return f"{type(error).__name__}: {error}".removesuffix(": ")
