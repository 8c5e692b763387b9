"""A client for a retriever in another process that implements Search-R1's `POST /retrieve`.

Requests are retried with exponential back-off until a deadline, and a circuit breaker blocks requests to a server that
keeps failing. A search returns the complete answer or raises `RetrieverFailed`. Error messages of a server never become
part of an observation.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from agentgym_flow._util import endpoint
from agentgym_flow._util.endpoint import Breaker, Endpoint, Tries, Unanswered
from agentgym_flow._util.http import TryFailed, check_seconds, check_token, server_address
from agentgym_flow._util.sharing import Shared
from agentgym_flow.core import check_integer
from agentgym_flow.errors import BadSetting, RetrieverFailed
from agentgym_flow.retrieval import protocol
from agentgym_flow.retrieval.passage import Hit
from agentgym_flow.retrieval.protocol import BadAnswer
from agentgym_flow.retrieval.query_cache import QueryCache

_HINTS = {
    401: "it requires another token",
    403: "it rejects this client",
    404: "there is no retriever at this address",
    413: "the request is too large for it",
    429: "it is overloaded",
    503: "it is overloaded",
}


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
            connection, no attempt starts that may end more than 4.5 seconds after the first.
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
            check_seconds(setting, seconds)
        for setting, number, least in (
            ("topk_limit", topk_limit, 1),
            ("retries", retries, 0),
            ("breaker_failures", breaker_failures, 1),
            ("max_answer", max_answer, 1),
        ):
            check_integer(setting, number, least)
        if not isinstance(single, bool):
            raise BadSetting(f"single must be true or false, not {single!r:.60}")
        if not isinstance(identity, str | None):
            raise BadSetting(f"identity is a text, not {identity!r:.60}")
        address = server_address(url, "http://127.0.0.1:8000", "pass the token as a separate setting")
        if not address.path.endswith(protocol.PATH):
            address = address._replace(path=address.path + protocol.PATH)
        self.url = f"{address.scheme}://{address.host}:{address.port}{address.path}"
        self._single, self.topk_limit = single, topk_limit
        self._tries = Tries(retries, deadline, backoff)
        self._cache, self._identity = cache, identity or self.url
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {check_token(token)}"
        self._endpoint = Endpoint(
            address,
            breaker=Breaker(breaker_failures, breaker_rest),
            headers=headers,
            connect=connect_timeout,
            idle=read_timeout,
            most=max_answer,
        )

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
                if not self._endpoint.accepted or time.monotonic() - begun > self._tries.deadline / 2:
                    break
                continue
            known.update(answers)
            if self._cache is not None:
                self._cache.put(self._identity, topk, answers)
        return failure

    def check_contact(self) -> None:
        """Raise `RetrieverFailed`, with the address, unless the server accepts a connection in a few seconds.

        Does nothing if the server has been reached before, because searches wait for it, or if there is a cache, which
        may have all answers.
        """
        until, backoff = time.monotonic() + endpoint.CONTACT, self._tries.backoff
        while self._cache is None and not self._endpoint.accepted:
            try:
                self._endpoint.connect(until)
            except TryFailed as error:
                if time.monotonic() + backoff + self._endpoint.connect_seconds >= until:
                    raise RetrieverFailed(
                        f"nothing answers at {self.url} ({error.__cause__ or error}): start the retriever there, or "
                        "correct the address in retriever"
                    ) from None
                time.sleep(backoff)

    def close(self) -> None:
        """Close the idle connections; the next search opens new ones."""
        self._endpoint.close()

    def _ask(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        body = protocol.request_of(queries, topk, single=self._single)

        def attempt(until: float) -> list[list[Hit]]:
            answer = self._endpoint.send("", body, until=until)
            if answer.status != 200:
                raise TryFailed.of_status(answer, _HINTS)
            try:
                return protocol.read_answer(answer.body, len(queries), topk)
            except BadAnswer as error:
                raise TryFailed(f"the answer cannot be read: {error}") from None

        try:
            return self._endpoint.ask(attempt, self._tries)[0]
        except Unanswered as error:
            # Without the address, because the message goes into the episode's log, which may be published.
            advice = ". It has never answered: start it, or correct its address in retriever"
            raise RetrieverFailed(f"the retriever {error}{'' if self._endpoint.accepted else advice}") from None
