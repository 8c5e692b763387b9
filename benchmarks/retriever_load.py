"""The retriever server under the load of many rollouts: queries per second and response times.

Launch: `python benchmarks/retriever_load.py [--rollouts 64] [--seconds 10]`; it needs the extra `serve`.

The server runs in its own process on a BM25 index of generated passages, 100 words each. Rollouts are threads of this
process that share one `RemoteRetriever`: each sends a query of 7 words, waits for 3 passages, and sends the next query
at once. So a rollout is always waiting, and response time x queries per second = rollouts. Times are wall times of the
rollouts, whose work shares the cores with the server, after a warm-up of a second; use an idle machine. The server's
CPU time per query is measured on Linux only, and other jobs affect it little.

In the rows "beside", a trainer also sends requests of 4,096 queries, one after the other, as Search-R1 does per batch.
Their times are those of the small requests; the row after them has those of the trainer's requests.
The last row has no server: it queries the index directly, one query per call, in this process.
"""

from __future__ import annotations

import http.client
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import fmean

from _timing import arguments, print_header, print_row

from agentgym_flow.core import Stream
from agentgym_flow.retrieval.building import build_index
from agentgym_flow.retrieval.corpus import Passage, Retriever
from agentgym_flow.retrieval.remote import RemoteRetriever
from agentgym_flow.retrieval.server import percentile

PASSAGES, WORDS_OF_PASSAGE, WORDS_OF_QUERY, VOCABULARY, TOPK = 10_000, 100, 7, 20_000, 3
QUERIES = 200
TRAINER = 4096
WARM_UP = 1.0
PROGRAM = """
import sys
from agentgym_flow.retrieval.building import open_index
from agentgym_flow.retrieval.server import serve
serve(open_index(sys.argv[1]), port=0, on_ready=lambda address: print(address, flush=True))
"""


def word(draws: Stream) -> str:
    """Return a random word; a few are frequent and most are rare."""
    return f"w{int(VOCABULARY ** draws.uniform())}"


def write_corpus(path: Path) -> None:
    """Write the generated passages as JSON lines."""
    with path.open("w", encoding="ascii") as file:
        for number in range(PASSAGES):
            draws = Stream("retriever load", number)
            text = " ".join(word(draws) for _ in range(WORDS_OF_PASSAGE))
            passage = Passage(str(number), f"Passage {number}", text)
            file.write(json.dumps({"id": passage.id, "contents": passage.contents}) + "\n")


def queries_of(rollout: int) -> list[str]:
    """Return the queries of a rollout, which repeats them in a cycle."""
    draws = Stream("retriever load", "rollout", rollout)
    return [" ".join(word(draws) for _ in range(WORDS_OF_QUERY)) for _ in range(QUERIES)]


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process so far; NaN without /proc."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Rollouts:
    """Threads that send one query after the other.

    `times` has the response times in seconds after the warm-up; `asked` counts all queries.
    """

    def __init__(self, retriever: Retriever, count: int, seconds: float) -> None:
        self.times: list[float] = []
        self.asked = 0
        self._lock = threading.Lock()
        self._retriever = retriever
        self._queries = [queries_of(number) for number in range(count)]
        self._start = time.perf_counter() + WARM_UP
        self._end = self._start + seconds
        self._seconds = seconds
        threads = [threading.Thread(target=self._roll_out, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _roll_out(self, number: int) -> None:
        asked = 0
        for query in itertools.cycle(self._queries[number]):
            before = time.perf_counter()
            if before >= self._end:
                break
            (found,) = self._retriever.search([query], TOPK)
            assert len(found) == TOPK
            asked += 1
            after = time.perf_counter()
            if before >= self._start and after < self._end:
                self.times.append(after - before)
        with self._lock:
            self.asked += asked

    def row(self, name: str, count: int, cpu: float) -> None:
        """Print the results; `cpu` is the CPU seconds of the searching process, NaN if unknown."""
        times = sorted(self.times)
        middle, slow = (f"{percentile(times, share):.1f}" for share in (0.5, 0.99))
        cost = "" if math.isnan(cpu) else f"{1000 * cpu / self.asked:.2f}"
        print_row(name, count, f"{len(times) / self._seconds:,.0f}", middle, slow, cost)


class Trainer(threading.Thread):
    """Sends requests of `TRAINER` queries in sequence, each on a new connection; `times` has the seconds of each."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.times: list[float] = []
        self._address = address.removeprefix("http://")
        self._asked = {"queries": [query for n in range(21) for query in queries_of(1000 + n)][:TRAINER], "topk": TOPK}
        self._over = threading.Event()
        self.start()

    def run(self) -> None:
        """Send requests until `stop`."""
        body = json.dumps({**self._asked, "return_scores": True})
        while not self._over.is_set():
            before = time.perf_counter()
            connection = http.client.HTTPConnection(self._address)
            connection.request("POST", "/retrieve", body)
            answer = connection.getresponse().read()  # not parsed, which would slow down the clients
            connection.close()
            assert answer.count(b'"score"') == TRAINER * TOPK
            self.times.append(time.perf_counter() - before)

    def stop(self) -> None:
        """Stop after the current request."""
        self._over.set()
        self.join()


def main() -> None:
    """Build the index, start the server, and print the table."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--rollouts", type=int, default=64, help="concurrent rollouts (default 64)")
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds per row (default 10)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder) / "corpus.jsonl")
        index = build_index(Path(folder) / "corpus.jsonl", Path(folder) / "index")
        command = [sys.executable, "-c", PROGRAM, str(Path(folder) / "index")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                address = server.stdout.readline().strip()
                print_header("", "rollouts", "queries/s", "p50 ms", "p99 ms", "CPU ms/query")
                for count in (1, asked.rollouts):
                    before = cpu_seconds(server.pid)
                    rollouts = Rollouts(RemoteRetriever(address), count, asked.seconds)
                    rollouts.row("server", count, cpu_seconds(server.pid) - before)
                for count in (1, asked.rollouts):
                    trainer = Trainer(address)
                    rollouts = Rollouts(RemoteRetriever(address), count, asked.seconds)
                    trainer.stop()
                    rollouts.row(f"beside {TRAINER:,}", count, float("nan"))
                    middle, slow = (percentile(sorted(trainer.times), share) for share in (0.5, 0.99))
                    print_row(
                        "the trainer", 1, f"{TRAINER / fmean(trainer.times):,.0f}", f"{middle:.0f}", f"{slow:.0f}", ""
                    )
            finally:
                server.terminate()
        start = time.process_time()
        alone = Rollouts(index, 1, asked.seconds)
        alone.row("index alone", 1, time.process_time() - start)


if __name__ == "__main__":
    main()
