"""Vector indexes of this package and of plain faiss: build time, search time, recall and memory.

Launch: `OMP_NUM_THREADS=1 python benchmarks/retrieval_faiss.py [--folder FOLDER --questions FILE] [--vectors N]`; it
needs the extra `search`.

FOLDER is the output of `agentgym-flow retriever build --kind dense`. FILE has JSON lines with a `question`. Vectors of
the questions are the queries, vectors of the passages are searched. Without these options, N vectors are generated (384
dimensions, see `Generated`). Nothing is written to FOLDER.

- Plain faiss is used as documented. It has the same index type (named in `vector_index`), trains on all vectors, is
  written to a file, read back into memory, and searches the same number of lists or nodes. Its flat index is
  `IndexFlatIP`. Our index trains on a sample, also writes its file's digest, is memory-mapped, and re-ranks extra
  candidates by their exact vectors. Our `flat` index is the vectors themselves, so there is nothing to build.
- Times are CPU time on one thread, medians of alternating repetitions, for 10 hits per query. `one` is the time of a
  query with one query per call, `batch` with 64. Recall is the fraction of the exact 10 nearest among the 10 hits.
- Memory is measured in a fresh process for each figure, on Linux only: how much private memory opening the index and
  all queries add (`own`), and the resident pages of the mapped files of index and vectors (`mapped`). The system can
  evict mapped pages, and all processes share them.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _timing import arguments, in_turns, print_header, print_row, seconds

from agentgym_flow.retrieval.building import VECTORS
from agentgym_flow.retrieval.corpus import MemoryCorpus, Passage
from agentgym_flow.retrieval.encoder import Floats, MiniLMEncoder
from agentgym_flow.retrieval.vectors import KINDS, Embeddings, FaissIndex, FlatIndex, VectorIndex, build_faiss

HITS, BATCH, QUERIES = 10, 64, 500
MEGABYTE = 1e6


class Generated:
    """Random vectors that resemble those of texts: points near a subspace of `INNER` dimensions.

    Random vectors over all dimensions have no distinct nearest neighbours that approximate indexes could find.
    """

    INNER = 32
    name, dimension, digest = "generated", 384, "generated 1"

    def encode(self, texts: Sequence[str], progress: Callable[[int], object] | None = None) -> Floats:
        """Return a vector per text; the first text, a number, seeds all of them."""
        axes = np.random.default_rng(0).standard_normal((self.INNER, self.dimension), np.float32)
        draws = np.random.default_rng([1, int(texts[0])])
        vectors = draws.standard_normal((len(texts), self.INNER), np.float32) @ axes
        vectors += draws.standard_normal(vectors.shape, np.float32)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


class Data(NamedTuple):
    """The vectors to search, and queries: an array (queries, dimensions)."""

    embeddings: Embeddings
    queries: Floats


def generated(count: int, folder: Path) -> Data:
    """Return `count` generated vectors, mapped from a new folder, and queries."""
    corpus = MemoryCorpus(Passage(str(number), "", str(number)) for number in range(count))
    encoder = Generated()
    return Data(Embeddings.build(corpus, encoder, folder), encoder.encode([str(count)] * QUERIES))


def of_texts(source: str, questions: str, folder: Path) -> Data:
    """Return the vectors in `source`, copied to `folder`, and those of the questions."""
    shutil.copytree(Path(source) / VECTORS, folder, ignore=shutil.ignore_patterns("*.faiss"))
    with open(questions, encoding="utf-8") as lines:
        texts = [json.loads(line)["question"] for line in lines if line.strip()][:QUERIES]
    return Data(Embeddings.mapped(folder), MiniLMEncoder().encode(texts))


def faiss_alone() -> Any:
    """Return faiss, limited to one thread."""
    import faiss

    faiss.omp_set_num_threads(1)
    return faiss


def build_plain(vectors: Floats, recipe: str, file: Path) -> None:
    """Build a plain faiss index and write it."""
    faiss = faiss_alone()
    index = faiss.index_factory(vectors.shape[1], recipe, faiss.METRIC_INNER_PRODUCT)
    if hasattr(index, "pq"):
        index.pq.cp.min_points_per_centroid = 1  # only avoids warnings
    index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, str(file))


def recipe_of(ours: FaissIndex) -> str:
    """Return the faiss factory string of our index."""
    index = ours._index
    if hasattr(index, "hnsw"):
        return "HNSW32,SQ8"
    return f"IVF{index.nlist},PQ{index.pq.M}np" if hasattr(index, "pq") else f"IVF{index.nlist},SQ8"


def open_ours(embeddings: Embeddings, kind: str, effort: int | None = None) -> VectorIndex:
    """Return our memory-mapped index of a kind."""
    return FlatIndex(embeddings) if kind == "flat" else FaissIndex(embeddings, kind, effort=effort, verify=False)


def open_plain(ours: VectorIndex, file: Path) -> Any:
    """Return the plain index, in memory, which searches as many lists or nodes as ours."""
    index = faiss_alone().read_index(str(file))
    if isinstance(ours, FaissIndex):
        if hasattr(index, "hnsw"):
            index.hnsw.efSearch = ours._index.hnsw.efSearch
        else:
            index.nprobe = ours._index.nprobe
    return index


def effort_of(ours: VectorIndex) -> str:
    """Return how many lists or nodes a query searches."""
    if isinstance(ours, FaissIndex):
        return str(ours._index.hnsw.efSearch if hasattr(ours._index, "hnsw") else ours._index.nprobe)
    return "all"


def ask_ours(index: VectorIndex, queries: Floats) -> list[list[int]]:
    """Return the document numbers of the hits."""
    return [[hit.document for hit in hits] for hits in index.search(queries, HITS)]


def ask_plain(index: Any, queries: Floats) -> list[list[int]]:
    """Return the document numbers of the hits."""
    found: list[list[int]] = index.search(queries, HITS)[1].tolist()
    return found


Ask = Callable[[Floats], list[list[int]]]


def milliseconds(ask: Ask, queries: Floats, at_once: int) -> float:
    """Return the CPU time per query, with `at_once` queries per call."""
    spent = seconds(lambda: [ask(queries[start : start + at_once]) for start in range(0, len(queries), at_once)])
    return 1000 * spent / len(queries)


def recall(found: list[list[int]], exact: list[list[int]]) -> float:
    """Return the mean fraction of the exact hits that were found."""
    return float(np.mean([len(set(some) & set(all_)) / len(all_) for some, all_ in zip(found, exact, strict=True)]))


def own_megabytes() -> float:
    """Return the private memory of this process."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024 / MEGABYTE


def mapped_megabytes(folder: str) -> float:
    """Return the resident memory of this process in mapped files of a folder."""
    total, counts = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split(maxsplit=5)
        if not first.endswith(":"):  # header of a mapping: range, permissions, offset, device, inode, maybe name
            counts = rest[-1].startswith(folder)
        elif counts and first == "Rss:":
            total += int(rest[0]) * 1024
    return total / MEGABYTE


def memory(folder: str, kind: str, plain: str | None, queries: Floats) -> tuple[float, float]:
    """Open an index and run all queries; return the private megabytes that this adds, and the mapped ones."""
    embeddings = Embeddings.mapped(folder)
    faiss = faiss_alone()
    faiss.IndexFlatIP(1)  # let the library allocate its own memory first
    queries @ queries.T
    before = own_megabytes()
    index = open_ours(embeddings, kind) if plain is None else faiss.read_index(plain)
    for query in queries:
        (ask_ours if plain is None else ask_plain)(index, query[None])
    return own_megabytes() - before, mapped_megabytes(folder)


def compared(figures: Mapping[str, float], unit: str, digits: int) -> list[str]:
    """Return our figure, that of faiss, and our speed-up."""
    ours, theirs = figures["ours"], figures["faiss"]
    return [f"{ours:.{digits}f} {unit}", f"{theirs:.{digits}f} {unit}", f"{theirs / ours:.2f}x"]


def megabytes(file: Path) -> str:
    """Return the size of a file."""
    return f"{file.stat().st_size / MEGABYTE:.1f} MB"


def print_builds(data: Data, kinds: Sequence[str], repetitions: int, home: Path) -> None:
    """Build every index; print build times and file sizes."""
    vectors, folder = data.embeddings.vectors, data.embeddings.folder
    assert folder is not None
    print_header("index", "recipe", "build, ours", "faiss", "ratio", "file, ours", "faiss", numeric=True)
    for kind in kinds:
        plain = home / f"{kind}.plain"
        if kind == "flat":  # ours needs no build
            build_plain(vectors, "Flat", plain)
            print_row(kind, "Flat", "", "", "", megabytes(folder / "embeddings.npy"), megabytes(plain))
            continue
        ours = partial(build_faiss, data.embeddings, kind)
        ours()
        recipe = recipe_of(FaissIndex(data.embeddings, kind))
        theirs = partial(build_plain, vectors, recipe, plain)
        contestants = {"ours": partial(seconds, ours), "faiss": partial(seconds, theirs)}
        cells = compared(in_turns(contestants, repetitions), "s", 2)
        print_row(kind, recipe, *cells, megabytes(folder / f"{kind}.faiss"), megabytes(plain))
    print()


def print_search(
    data: Data, exact: list[list[int]], kind: str, effort: int | None, repetitions: int, plain: Path
) -> None:
    """Print recall, time per query and memory of one index."""
    ours = open_ours(data.embeddings, kind, effort)
    asks: dict[str, Ask] = {"ours": partial(ask_ours, ours), "faiss": partial(ask_plain, open_plain(ours, plain))}
    cells = [f"{recall(ask(data.queries), exact):.3f}" for ask in asks.values()]
    for at_once in (1, BATCH):
        contestants = {name: partial(milliseconds, ask, data.queries, at_once) for name, ask in asks.items()}
        cells += compared(in_turns(contestants, repetitions), "ms", 3)
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        folder = str(data.embeddings.folder)
        own, mapped = pool.apply(memory, (folder, kind, None, data.queries))
        theirs, _ = pool.apply(memory, (folder, kind, str(plain), data.queries))
    print_row(kind, effort_of(ours), *cells, f"{own:.1f} MB", f"{theirs:.1f} MB", f"{mapped:.1f} MB")


def main() -> None:
    """Print the tables."""
    parser = arguments(__doc__, repetitions=3)
    parser.add_argument("--folder", help="folder with vectors (default: generate vectors)")
    parser.add_argument("--questions", help="questions about its passages")
    parser.add_argument("--vectors", type=int, default=10_000, help="number of generated vectors (default 10000)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--efforts", nargs="+", type=int, help="lists or nodes to search (default: the index's)")
    given = parser.parse_args()
    if bool(given.folder) != bool(given.questions):
        parser.error("give both --folder and --questions, or neither")
    faiss_alone()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        if given.folder:
            data = of_texts(given.folder, given.questions, home / "vectors")
        else:
            data = generated(given.vectors, home / "vectors")
        print(f"{len(data.embeddings):,} vectors, {len(data.queries)} queries\n")
        print_builds(data, given.kinds, given.repetitions, home)
        costs = [title for calls in ("one", "batch") for title in (f"{calls}, ours", "faiss", "ratio")]
        memories = ["own, ours", "faiss", "mapped, ours"]
        print_header("index", "looks at", "recall, ours", "faiss", *costs, *memories, numeric=True)
        exact = ask_ours(FlatIndex(data.embeddings), data.queries)
        for kind in given.kinds:
            for effort in (given.efforts if kind != "flat" else None) or [None]:
                print_search(data, exact, kind, effort, given.repetitions, home / f"{kind}.plain")


if __name__ == "__main__":
    main()
