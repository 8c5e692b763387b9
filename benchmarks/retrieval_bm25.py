"""BM25: the time to build an index, the time of a query, and the memory of both.

Launch: `python benchmarks/retrieval_bm25.py [--repetitions 3]`.

Documents are generated: 124 words each, as in WebShop's catalogue, drawn from 20,000 words so that a few are in nearly
every document and most are rare. Queries have 7 words and return 50 hits. Every build and every memory figure comes
from a fresh process. Build time is CPU time, the median of the repetitions. Query time is the wall time of one call on
the memory-mapped index, over 500 distinct queries after 50 to warm up, so use an idle machine. Memory is the increase
of the process's peak memory while building and, in another process, while searching.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from _timing import arguments, peak_megabytes, print_header, print_row, seconds

from agentgym_flow.core import Stream
from agentgym_flow.retrieval import BM25

SIZES = (1_000, 10_000)
WORDS_OF_DOCUMENT, WORDS_OF_QUERY, VOCABULARY = 124, 7, 20_000
WARM_UP, QUERIES, HITS = 50, 500, 50


class Built(NamedTuple):
    """CPU seconds and megabytes of memory of `BM25.build`."""

    seconds: float
    megabytes: float


class Searched(NamedTuple):
    """Milliseconds of a query (median, 99th percentile), and megabytes of memory of all queries."""

    median: float
    slow: float
    megabytes: float


def text(stream: Stream, words: int) -> str:
    """Return a text in which the frequency of word n falls as 1/n."""
    return " ".join(f"word{int(VOCABULARY ** stream.uniform())}x" for _ in range(words))


def build(size: int, folder: str) -> Built:
    """Build an index of `size` documents and save it."""
    documents = [text(Stream("document", number), WORDS_OF_DOCUMENT) for number in range(size)]
    before = peak_megabytes()
    made: list[BM25] = []
    spent = seconds(lambda: made.append(BM25.build(documents)))
    after = peak_megabytes()
    if not Path(folder).exists():
        made[0].save(folder)
    return Built(spent, after - before)


def search(folder: str) -> Searched:
    """Open the index and time queries one by one."""
    queries = [text(Stream("query", number), WORDS_OF_QUERY) for number in range(WARM_UP + QUERIES)]
    before = peak_megabytes()
    index = BM25.open(folder, verify=False)
    times = []
    for query in queries:
        start = time.perf_counter()
        index.search(query, HITS)
        times.append((time.perf_counter() - start) * 1000)
    times = times[WARM_UP:]
    return Searched(statistics.median(times), statistics.quantiles(times, n=100)[-1], peak_megabytes() - before)


def main() -> None:
    """Print the table."""
    repetitions = arguments(__doc__, repetitions=3).parse_args().repetitions
    print_header("documents", "build", "its memory", "on disk", "query p50", "query p99", "its memory", numeric=True)
    # A fresh process for every figure, because peak memory never decreases.
    with (
        multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool,
        tempfile.TemporaryDirectory() as home,
    ):
        for size in SIZES:
            folder = str(Path(home, str(size)))
            builds = [pool.apply(build, (size, folder)) for _ in range(repetitions)]
            searches = [pool.apply(search, (folder,)) for _ in range(repetitions)]
            built = Built(*map(statistics.median, zip(*builds, strict=True)))
            searched = Searched(*map(statistics.median, zip(*searches, strict=True)))
            disk = sum(file.stat().st_size for file in Path(folder).iterdir()) / 2**20
            print_row(
                f"{size:,}",
                f"{built.seconds:.2f} s",
                f"{built.megabytes:.0f} MB",
                f"{disk:.1f} MB",
                f"{searched.median:.2f} ms",
                f"{searched.slow:.2f} ms",
                f"{searched.megabytes:.0f} MB",
            )


if __name__ == "__main__":
    main()
