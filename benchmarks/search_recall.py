"""Search: recall of the passages that questions name, and the time of a query.

Launch: `python benchmarks/search_recall.py [CORPUS QUESTIONS] [--retrievers bm25 dense hybrid] [--passages N]`.

CORPUS is a file that `agentgym_flow.retrieval.corpus` reads, QUESTIONS has JSON lines with a `question`. The default is
the test samples (`AGENTGYM_FLOW_TEST_DATA`), if available. The passages that a question needs are those whose titles it
contains, so this is the recall of the first hop. Questions with no title are skipped. Those with two or more have
separate rows, because one title can hide the other. The query is the whole question. `--passages N` reduces the corpus
to N passages, those named and the first of the others, because encoding is slow without a GPU. `--vectors FOLDER` saves
the vectors there and reuses them; the folder `dense` in the output of `agentgym-flow retriever build --kind dense` also
works.

Times are CPU time of this process: to build the index, including encoding, and per query in batches of 64. Set
OMP_NUM_THREADS=1; otherwise the time of waiting threads counts too.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from _recall import NeededTitles, Recall, TitleFinder, recall_at
from _timing import arguments, print_header, print_row, seconds

from agentgym_flow.retrieval.corpus import MemoryCorpus, Retriever, read_corpus
from agentgym_flow.retrieval.retrievers import LexicalRetriever

KS = (1, 3, 5, 10)
COMPLETE = (3, 5, 10)
SAMPLES = ("2wikimultihopqa_corpus.json", "2wiki_500.jsonl")


def needed(file: str, corpus: MemoryCorpus) -> list[NeededTitles]:
    """Return the questions of a file that name passages of the corpus."""
    finder = TitleFinder(passage.title for passage in corpus)
    with open(file, encoding="utf-8") as lines:
        texts = [json.loads(line)["question"] for line in lines if line.strip()]
    return [NeededTitles(text, titles) for text in texts if (titles := finder.find(text))]


def cut(corpus: MemoryCorpus, questions: list[NeededTitles], passages: int) -> MemoryCorpus:
    """Return `passages` passages: those that questions name, and the first of the others."""
    titles = {title for question in questions for title in question.titles}
    others = passages - sum(passage.title in titles for passage in corpus)
    kept = []
    for passage in corpus:
        if passage.title in titles:
            kept.append(passage)
        elif others > 0:
            kept.append(passage)
            others -= 1
    return MemoryCorpus(kept)


def retriever(name: str, corpus: MemoryCorpus, folder: str, made: dict[str, Retriever]) -> Retriever:
    """Return a retriever over the corpus; `made` caches retrievers."""
    if name == "bm25":
        return LexicalRetriever(corpus)
    if name == "hybrid":
        from agentgym_flow.retrieval.retrievers import HybridRetriever

        return HybridRetriever([made[part] for part in ("bm25", "dense")])
    from agentgym_flow.retrieval.encoder import MiniLMEncoder
    from agentgym_flow.retrieval.retrievers import DenseRetriever, build_dense

    encoder = MiniLMEncoder()
    build_dense(corpus, encoder, folder, kind="flat")
    return DenseRetriever.open(folder, corpus, encoder, kind="flat")


def measured(run: Callable[[], dict[int, Recall]]) -> tuple[dict[int, Recall], float]:
    """Return the result of `run` and its seconds."""
    results: list[dict[int, Recall]] = []
    spent = seconds(lambda: results.append(run()))
    return results[0], spent


def sources(given: Sequence[str]) -> list[str] | None:
    """Return the given corpus and questions, else the samples; None if there are no samples."""
    if given:
        return list(given)
    folder = os.environ.get("AGENTGYM_FLOW_TEST_DATA")
    found = [str(Path(folder, "search", name)) for name in SAMPLES] if folder else []
    return found if found and all(map(os.path.exists, found)) else None


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__)
    parser.add_argument("files", nargs="*", metavar="CORPUS QUESTIONS", help="both or neither (default: the samples)")
    parser.add_argument("--retrievers", nargs="+", choices=["bm25", "dense", "hybrid"], default=["bm25"])
    parser.add_argument("--passages", type=int, help="reduce the corpus to this many passages")
    parser.add_argument("--vectors", help="save the vectors of `dense` here, and reuse them")
    given = parser.parse_args()
    if len(given.files) not in (0, 2):
        parser.error("give a corpus and a file of questions, or neither")
    files = sources(given.files)
    if files is None:
        print("Nothing was measured: no corpus was given, and the samples are missing.")
        return
    names = [name for name in ("bm25", "dense", "hybrid") if name in given.retrievers or "hybrid" in given.retrievers]
    corpus = read_corpus(files[0])
    questions = needed(files[1], corpus)
    if given.passages:
        corpus = cut(corpus, questions, given.passages)
    groups = {"any": questions, "two or more": [question for question in questions if len(question.titles) > 1]}
    print(f"{len(corpus):,} passages\n")
    columns = [*(f"recall@{k}" for k in KS), *(f"all found @{k}" for k in COMPLETE)]
    print_header("retriever", "titles", "questions", *columns, "build", "query", numeric=True)
    made: dict[str, Retriever] = {}
    with tempfile.TemporaryDirectory() as home:
        folder = given.vectors or str(Path(home, "vectors"))
        kept = os.path.exists(folder)
        for name in names:
            spent = seconds(lambda name=name: made.update({name: retriever(name, corpus, folder, made)}))
            build = "kept" if name == "dense" and kept else f"{spent:.2f} s"
            for group, asked in groups.items():
                if asked and name in given.retrievers:
                    found, searched = measured(lambda name=name, asked=asked: recall_at(made[name], asked, KS))
                    shares = [*(found[k].mean for k in KS), *(found[k].complete for k in COMPLETE)]
                    query = f"{searched / len(asked) * 1000:.2f} ms"
                    print_row(name, group, len(asked), *(f"{share:.3f}" for share in shares), build, query)


if __name__ == "__main__":
    main()
