"""Vector indexes: ours against plain faiss, in building, searching, recall and memory.

Launch: `OMP_NUM_THREADS=1 python benchmarks/retrieval_faiss.py [--folder FOLDER --questions FILE] [--vectors N]`; it
needs the extra `search`.

FOLDER is what `agentgym-flow retriever build --kind dense` makes, FILE has JSON lines with a `question`: the passages'
vectors are searched with those of the questions. Without them, N vectors are generated (384 dimensions, see
`Generated`). Nothing is written to FOLDER.

- Plain faiss is used as its documentation shows: the same recipe (`vector_index` names it), trained with all vectors,
  written to a file, read back into memory, and searched with the same number of lists or nodes. The flat index is
  `IndexFlatIP`. Ours trains with a sample, writes the digest of its file too, is mapped, and ranks more candidates than
  are asked for by their exact vectors. Ours for `flat` are the vectors themselves, so there is nothing to build.
- Times are CPU time on one thread, in turns, the median of the repetitions. 10 hits are asked for; `one` is a query a
  call, `batch` is a query in calls of 64. Recall is the share of the exact 10 nearest that is among the 10.
- Memory is of a fresh process for each figure, on Linux only: what opening the index and all queries add to the pages
  of its own (`own`), and the pages of the index's and the vectors' files that are mapped and were touched (`mapped`).
  Those the system can drop, and all processes share them.
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

from agentgym_flow.retrieval.corpus import MemoryCorpus
from agentgym_flow.retrieval.embeddings import Embeddings
from agentgym_flow.retrieval.encoder import Floats, MiniLMEncoder
from agentgym_flow.retrieval.kinds import VECTORS
from agentgym_flow.retrieval.passage import Passage
from agentgym_flow.retrieval.vector_index import KINDS, FaissIndex, FlatIndex, VectorIndex, build_faiss

HITS, BATCH, QUERIES = 10, 64, 500
MEGABYTE = 1e6


class Generated:
    """Vectors that are as if of texts: points near a space of `INNER` dimensions, drawn at random.

    Vectors drawn over all dimensions alike have no neighbours to speak of, and no approximate index finds them.
    """

    INNER = 32
    name, dimension, digest = "generated", 384, "generated 1"

    def encode(self, texts: Sequence[str], progress: Callable[[int], object] | None = None) -> Floats:
        """Return a vector a text; the first text, a number, is the seed of them all."""
        axes = np.random.default_rng(0).standard_normal((self.INNER, self.dimension), np.float32)
        draws = np.random.default_rng([1, int(texts[0])])
        vectors = draws.standard_normal((len(texts), self.INNER), np.float32) @ axes
        vectors += draws.standard_normal(vectors.shape, np.float32)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


class Data(NamedTuple):
    """What is searched, and what for: an array (queries, dimensions)."""

    embeddings: Embeddings
    queries: Floats


def generated(count: int, folder: Path) -> Data:
    """Return `count` generated vectors, mapped from a new folder."""
    corpus = MemoryCorpus(Passage(str(number), "", str(number)) for number in range(count))
    encoder = Generated()
    return Data(Embeddings.build(corpus, encoder, folder), encoder.encode([str(count)] * QUERIES))


def of_texts(source: str, questions: str, folder: Path) -> Data:
    """Return the vectors of a built folder, copied to a new one, and those of questions."""
    shutil.copytree(Path(source) / VECTORS, folder, ignore=shutil.ignore_patterns("*.faiss"))
    with open(questions, encoding="utf-8") as lines:
        texts = [json.loads(line)["question"] for line in lines if line.strip()][:QUERIES]
    return Data(Embeddings.mapped(folder), MiniLMEncoder().encode(texts))


def faiss_alone() -> Any:
    """Return faiss, which uses one thread from now on."""
    import faiss

    faiss.omp_set_num_threads(1)
    return faiss


def build_plain(vectors: Floats, recipe: str, file: Path) -> None:
    """Write an index of faiss."""
    faiss = faiss_alone()
    index = faiss.index_factory(vectors.shape[1], recipe, faiss.METRIC_INNER_PRODUCT)
    if hasattr(index, "pq"):
        index.pq.cp.min_points_per_centroid = 1  # fewer warnings, and nothing else
    index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, str(file))


def recipe_of(ours: FaissIndex) -> str:
    """Return what faiss calls the index that ours is made of."""
    index = ours._index
    if hasattr(index, "hnsw"):
        return "HNSW32,SQ8"
    return f"IVF{index.nlist},PQ{index.pq.M}np" if hasattr(index, "pq") else f"IVF{index.nlist},SQ8"


def open_ours(embeddings: Embeddings, kind: str, effort: int | None = None) -> VectorIndex:
    """Return our index of a kind, mapped."""
    return FlatIndex(embeddings) if kind == "flat" else FaissIndex(embeddings, kind, effort=effort, verify=False)


def open_plain(ours: VectorIndex, file: Path) -> Any:
    """Return the index of faiss, in memory, which looks at as much of itself as ours does."""
    index = faiss_alone().read_index(str(file))
    if isinstance(ours, FaissIndex):
        if hasattr(index, "hnsw"):
            index.hnsw.efSearch = ours._index.hnsw.efSearch
        else:
            index.nprobe = ours._index.nprobe
    return index


def effort_of(ours: VectorIndex) -> str:
    """Return how many lists or nodes a query looks at."""
    if isinstance(ours, FaissIndex):
        return str(ours._index.hnsw.efSearch if hasattr(ours._index, "hnsw") else ours._index.nprobe)
    return "all"


def ask_ours(index: VectorIndex, queries: Floats) -> list[list[int]]:
    """Return the numbers of the hits."""
    return [[hit.document for hit in hits] for hits in index.search(queries, HITS)]


def ask_plain(index: Any, queries: Floats) -> list[list[int]]:
    """Return the numbers of the hits."""
    found: list[list[int]] = index.search(queries, HITS)[1].tolist()
    return found


Ask = Callable[[Floats], list[list[int]]]


def milliseconds(ask: Ask, queries: Floats, at_once: int) -> float:
    """Return the CPU time of a query, asked with so many others."""
    spent = seconds(lambda: [ask(queries[start : start + at_once]) for start in range(0, len(queries), at_once)])
    return 1000 * spent / len(queries)


def recall(found: list[list[int]], exact: list[list[int]]) -> float:
    """Return the mean share of the exact hits that were found."""
    return float(np.mean([len(set(some) & set(all_)) / len(all_) for some, all_ in zip(found, exact, strict=True)]))


def own_megabytes() -> float:
    """Return what this process holds in pages of its own."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024 / MEGABYTE


def mapped_megabytes(folder: str) -> float:
    """Return how much of the mapped files of a folder this process has touched."""
    total, counts = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split(maxsplit=5)
        if not first.endswith(":"):  # the head of a mapping: its range, rights, offset, device, inode and perhaps name
            counts = rest[-1].startswith(folder)
        elif counts and first == "Rss:":
            total += int(rest[0]) * 1024
    return total / MEGABYTE


def memory(folder: str, kind: str, plain: str | None, queries: Floats) -> tuple[float, float]:
    """Return the own megabytes that opening an index and asking all queries adds to this process, and the mapped."""
    embeddings = Embeddings.mapped(folder)
    faiss = faiss_alone()
    faiss.IndexFlatIP(1)  # what the library takes for itself comes first
    queries @ queries.T
    before = own_megabytes()
    index = open_ours(embeddings, kind) if plain is None else faiss.read_index(plain)
    for query in queries:
        (ask_ours if plain is None else ask_plain)(index, query[None])
    return own_megabytes() - before, mapped_megabytes(folder)


def compared(figures: Mapping[str, float], unit: str, digits: int) -> list[str]:
    """Return the figures of both, and how many times as fast ours is."""
    ours, theirs = figures["ours"], figures["faiss"]
    return [f"{ours:.{digits}f} {unit}", f"{theirs:.{digits}f} {unit}", f"{theirs / ours:.2f}x"]


def megabytes(file: Path) -> str:
    """Return the size of a file."""
    return f"{file.stat().st_size / MEGABYTE:.1f} MB"


def print_builds(data: Data, kinds: Sequence[str], repetitions: int, home: Path) -> None:
    """Build every index, and print what it costs and how large it is."""
    vectors, folder = data.embeddings.vectors, data.embeddings.folder
    assert folder is not None
    print_header("index", "recipe", "build, ours", "faiss", "ratio", "file, ours", "faiss", numeric=True)
    for kind in kinds:
        plain = home / f"{kind}.plain"
        if kind == "flat":  # ours is there already
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
    """Print what a query of one index costs, what it finds, and what memory that takes."""
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
    parser.add_argument("--folder", help="a folder with vectors (default: generated ones)")
    parser.add_argument("--questions", help="questions about what is in it")
    parser.add_argument("--vectors", type=int, default=10_000, help="generated vectors (default 10000)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--efforts", nargs="+", type=int, help="lists or nodes to look at (default: as without it)")
    given = parser.parse_args()
    if bool(given.folder) != bool(given.questions):
        parser.error("--folder and --questions go together")
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
