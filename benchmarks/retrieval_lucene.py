"""BM25 of this package and of Lucene: time to build an index, time of a query, and whether both find the same hits.

Launch: `python benchmarks/retrieval_lucene.py [CORPUS QUESTIONS] [--documents 10000] [--repetitions 3]`; it needs the
extra `pyserini` and Java.

CORPUS and QUESTIONS are as in `search_recall.py` (default: the test samples), but all questions are used, even if they
name no passage. The other documents and queries are generated as in `retrieval_bm25.py`. Times are wall time, because
parts of Lucene run in its own threads; both take turns, and the machine should be idle. Lucene is called through
pyserini, as Python programs do, and indexes with one thread. Its first build also warms up Java, so use several
repetitions. Queries return 10 hits from indexes on disk.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from _lucene import FIRST, against_lucene, lucene_is_here
from _timing import arguments, print_header, print_row
from retrieval_bm25 import QUERIES, WORDS_OF_DOCUMENT, WORDS_OF_QUERY, text
from search_recall import sources

from agentgym_flow.core import Stream
from agentgym_flow.retrieval.corpus import stream_passages


def generated(documents: int) -> tuple[list[str], list[str]]:
    """Return generated documents and queries."""
    texts = [text(Stream("document", number), WORDS_OF_DOCUMENT) for number in range(documents)]
    return texts, [text(Stream("query", number), WORDS_OF_QUERY) for number in range(QUERIES)]


def read(corpus: str, questions: str) -> tuple[list[str], list[str]]:
    """Return the texts of the passages and the questions."""
    with open(questions, encoding="utf-8") as lines:
        asked = [json.loads(line)["question"] for line in lines if line.strip()]
    return [passage.index_text for passage, _ in stream_passages(corpus)], asked


def print_compared(name: str, texts: Sequence[str], queries: Sequence[str], repetitions: int) -> None:
    """Measure one corpus and print its row."""
    compared = against_lucene(texts, queries, FIRST, repetitions)
    cells = []
    for figures, unit in ((compared.build, "s"), (compared.query, "ms"), (compared.slow, "ms")):
        ours, theirs = figures["ours"], figures["Lucene"]
        cells += [f"{ours:.2f} {unit}", f"{theirs:.2f} {unit}", f"{theirs / ours:.1f}x"]
    print_row(f"{name}, {len(texts):,}", *cells, f"{compared.agreeing} of {len(queries)}")


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__, repetitions=3)
    parser.add_argument("files", nargs="*", metavar="CORPUS QUESTIONS", help="both or neither (default: the samples)")
    parser.add_argument("--documents", type=int, default=10_000, help="generated documents (default 10000; 0: none)")
    given = parser.parse_args()
    if len(given.files) not in (0, 2):
        parser.error("give a corpus and a file of questions, or neither")
    if not lucene_is_here():
        return
    costs = [f"{what}, {whose}" for what in ("build", "query", "query 99 %") for whose in ("ours", "Lucene", "ratio")]
    print_header("documents", *costs, f"same first {FIRST}", numeric=True)
    files = sources(given.files)
    if files:
        print_compared("passages", *read(*files), given.repetitions)
    if given.documents:
        print_compared("generated", *generated(given.documents), given.repetitions)


if __name__ == "__main__":
    main()
