"""What the tests of the retriever's server share: a retriever without an index, and a server in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn

from agentgym_flow import loopback
from agentgym_flow.retrieval.passage import Found, Passage
from agentgym_flow.retriever.app import create_app


class Echo:
    """Finds passages that say what was asked, and notes what it searched for at once.

    While `gate` is not set a search waits. The query `raise` makes it fail.
    """

    name = "echo"

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.batches: list[list[str]] = []
        self.topks: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Semaphore(0)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Found]]:
        self.batches.append(list(queries))
        self.topks.append(topk)
        self.begun.release()
        assert self.gate.wait(20)
        time.sleep(self.seconds)
        if "raise" in queries:
            raise RuntimeError("SECRET of the retriever")
        return [[] if query == "nothing" else [said(query, n) for n in range(topk)] for query in queries]


def said(query: str, number: int) -> Found:
    return Found(Passage(f"{number}", f"Title {number}", f"about {query}"), 9.5 - number)


@contextmanager
def running(retriever: Any, **settings: Any) -> Iterator[str]:
    """Serve from a thread; give the address. It is stopped gracefully at the end."""
    listening = loopback.listen(0)
    config = uvicorn.Config(
        create_app(retriever, **settings), log_level="error", ws="none", lifespan="on", timeout_graceful_shutdown=20
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
        assert not thread.is_alive()
