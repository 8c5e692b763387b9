"""Measure our BM25 and Lucene in turns on the same texts and queries; needs pyserini and Java."""

from __future__ import annotations

import importlib.util
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from _timing import in_turns, seconds

from agentgym_flow.retrieval import BM25

FIRST = 10
"""Number of hits to compare."""


class Compared(NamedTuple):
    """Wall times and agreement; mappings have the keys `ours` and `Lucene`.

    Attributes:
        build: seconds from texts to an index on disk.
        query: mean milliseconds of a query.
        slow: 99th percentile of milliseconds of a query.
        agreeing: number of queries with the same first hits in the same order.
    """

    build: dict[str, float]
    query: dict[str, float]
    slow: dict[str, float]
    agreeing: int


def lucene_is_here() -> bool:
    """Return whether pyserini and Java are installed; print a message if not."""
    here = importlib.util.find_spec("pyserini") is not None and shutil.which("java") is not None
    if not here:
        print("Lucene: pyserini or Java is not installed here, so it was not measured.\n")
    return here


def against_lucene(texts: Sequence[str], queries: Sequence[str], hits: int, repetitions: int) -> Compared:
    """Build and search both, `repetitions` times each, in turns."""
    from agentgym_flow.retrieval.lucene import LuceneIndex

    with tempfile.TemporaryDirectory() as home:
        made: list[Path] = []

        def build(write: Callable[[Path], object]) -> float:
            made.append(Path(home, str(len(made))))
            return seconds(lambda: write(made[-1]), time.perf_counter)

        builders: dict[str, Callable[[Path], object]] = {
            "ours": lambda folder: BM25.build(texts).save(folder),
            "Lucene": lambda folder: LuceneIndex.build(
                ((f"{number:010d}", text) for number, text in enumerate(texts)), folder
            ),
        }
        builds = in_turns({name: partial(build, write) for name, write in builders.items()}, repetitions)
        index, lucene = BM25.open(made[0]), LuceneIndex(made[1])
        finders: dict[str, Callable[[str], list[int]]] = {
            "ours": lambda query: [hit.document for hit in index.search(query, hits)],
            "Lucene": lambda query: list(map(int, lucene.find(query, hits))),
        }
        ours, theirs = finders.values()
        agreeing = sum(ours(query)[:FIRST] == theirs(query)[:FIRST] for query in queries)  # which also warms up
        times: dict[str, list[float]] = {name: [] for name in finders}

        def search(name: str) -> float:
            spent = [1e3 * seconds(partial(finders[name], query), time.perf_counter) for query in queries]
            times[name] += spent
            return statistics.mean(spent)

        means = in_turns({name: partial(search, name) for name in finders}, repetitions)
    slow = {name: statistics.quantiles(values, n=100)[-1] for name, values in times.items()}
    return Compared(builds, means, slow, agreeing)
