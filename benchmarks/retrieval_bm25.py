"""BM25: how long an index takes to build, what a query costs, and the memory both need.

Launch: `python benchmarks/retrieval_bm25.py [--repetitions 3]`.

Documents are generated: 124 words each, as in WebShop's catalogue, drawn from 20,000 so that a few are in nearly every
document and most in hardly any. Queries have 7 words, and 50 hits are asked for. Build and memory are of a fresh
process each; build time is CPU time, the median of several repetitions. A query's time is wall time of one call on the
index mapped from its folder, over 500 different queries after 50 to warm up, so trust it on an idle machine only.
Memory is the process's peak above what it held before, while building and, in another process, while searching.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from _timing import arguments, peak_megabytes, print_header, print_row, seconds

from agentgym_flow.retrieval import BM25
from agentgym_flow.seeding import Stream

SIZES = (1_000, 10_000)
WORDS_OF_DOCUMENT, WORDS_OF_QUERY, VOCABULARY = 124, 7, 20_000
WARM_UP, QUERIES, HITS = 50, 500, 50


class Built(NamedTuple):
    """CPU seconds of `BM25.build`, and the megabytes that it took."""

    seconds: float
    megabytes: float


class Searched(NamedTuple):
    """Milliseconds of a query (median, 99th percentile), and the megabytes that all queries took."""

    median: float
    slow: float
    megabytes: float


def text(stream: Stream, words: int) -> str:
    """Return a text in which word number n stands about once in n draws."""
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
    """Open the index and time its queries one by one."""
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
    # A fresh process for every figure: peaks never go down.
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
