"""What the tests of the retriever's server share: a retriever without an index, a server in a thread or a process."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentgym_flow._util import serving
from agentgym_flow.retrieval.corpus import Hit, Passage
from agentgym_flow.retrieval.server import create_app

PROGRAM = """
import sys
from retriever_running import Noting
from agentgym_flow.retrieval.server import serve
serve(Noting(sys.argv[2]), port=int(sys.argv[1]), on_ready=lambda address: print(address, flush=True))
"""


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

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        self.batches.append(list(queries))
        self.topks.append(topk)
        self.begun.release()
        assert self.gate.wait(20)
        time.sleep(self.seconds)
        if "raise" in queries:
            raise RuntimeError("SECRET of the retriever")
        return [[] if query == "nothing" else [said(query, n) for n in range(topk)] for query in queries]


def said(query: str, number: int) -> Hit:
    return Hit(Passage(f"{number}", f"Title {number}", f"about {query}"), 9.5 - number)


@contextmanager
def running(retriever: Any, *, most: int = 1024, **settings: Any) -> Iterator[str]:
    """Serve from a thread; give the address. It is stopped gracefully at the end."""
    server = serving.server(create_app(retriever, **settings), patience=20, connections=most)
    with serving.in_thread(server) as address:
        yield address


def wait_until(reached: Callable[[], bool]) -> None:
    for _ in range(1000):
        if reached():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


def health(address: str) -> Any:
    connection = http.client.HTTPConnection(address.removeprefix("http://"))
    connection.request("GET", "/health")
    with connection.getresponse() as answer:
        told = json.load(answer)
    connection.close()
    return told


def waiting(address: str) -> int:
    return int(health(address)["waiting"])


class Noting(Echo):
    """Takes two milliseconds for a search, and appends every query to a file."""

    def __init__(self, notes: str) -> None:
        super().__init__(0.002)
        self.notes = Path(notes)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        with self.notes.open("a", encoding="utf-8") as file:
            file.write("".join(f"{query}\n" for query in queries))
        return super().search(queries, topk)


class Program:
    """The server as a process of its own, on one port however often it is started; `notes` has what it searched for."""

    def __init__(self, notes: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.notes = notes
        self.process: Any = None

    def start(self) -> None:
        command = [sys.executable, "-c", PROGRAM, str(self.port), str(self.notes)]
        self.process = subprocess.Popen(
            command,
            cwd=Path(__file__).parent,
            stdout=subprocess.PIPE,
            text=True,
            # A test in the background inherits it ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert self.process.stdout.readline().strip() == self.address

    def stop(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        self.process.communicate(timeout=60)
        return int(self.process.returncode)
