"""Dense retrieval: exactness, ties, approximate indexes, the folder and its accidents."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from agentgym_flow.errors import BadIndex, BadSetting, MissingExtra, UnknownOption
from agentgym_flow.retrieval.corpus import Hit, MemoryCorpus, Passage
from agentgym_flow.retrieval.encoder import PACKAGE, MiniLMEncoder
from agentgym_flow.retrieval.retrievers import DenseRetriever, build_dense
from agentgym_flow.retrieval.vectors import Embeddings, FaissIndex, FlatIndex, build_faiss, kind_for, nearest

Floats = npt.NDArray[np.float32]

CORPUS = MemoryCorpus([Passage(str(at), f"title {at}", f"topic{at % 12} word{at}") for at in range(700)])


class Words:
    """An encoder that adds up a random vector for each word."""

    name = "words"
    dimension = 32

    def __init__(self, digest: str = "words 1") -> None:
        self.digest = digest
        self.encoded: list[str] = []
        self.fails_at: int | None = None

    def encode(self, texts: Sequence[str], progress: Callable[[int], object] | None = None) -> Floats:
        if self.fails_at is not None and len(self.encoded) >= self.fails_at:
            raise KeyboardInterrupt
        self.encoded += texts
        sums = [np.sum([self._word(word) for word in text.split() or [""]], axis=0) for text in texts]
        rows = np.reshape(sums, (-1, self.dimension))
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    def _word(self, word: str) -> npt.NDArray[np.float64]:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        return np.random.default_rng(seed).standard_normal(self.dimension)


def clustered(count: int, dimension: int = 32) -> Floats:
    """Return vectors of length 1 around 40 centres."""
    rng = np.random.default_rng(5)
    rows = (
        rng.standard_normal((40, dimension))[rng.integers(0, 40, count)] + rng.standard_normal((count, dimension)) / 2
    )
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def exact(vectors: Floats, query: Floats, topk: int) -> list[tuple[int, float]]:
    """Return the best by sums of 64-bit floats, one vector at a time."""
    scores = [float(np.float32(np.sum(row.astype(float) * query.astype(float)))) for row in vectors]
    return sorted(enumerate(scores), key=lambda hit: (-hit[1], hit[0]))[:topk]


def ids(answers: list[list[Hit]]) -> list[list[str]]:
    return [[found.passage.id for found in answer] for answer in answers]


def test_flat_is_exact() -> None:
    vectors = clustered(3000)
    queries = clustered(3040)[3000:]
    found = FlatIndex(Embeddings(vectors, "")).search(queries, 10)
    assert [list(map(tuple, hits)) for hits in found] == [exact(vectors, query, 10) for query in queries]


def test_equal_vectors_rank_in_document_order_wherever_they_stand() -> None:
    # A matrix product rounds the same row differently at the edge of its blocks; then 1,000 would beat 3.
    vectors = clustered(1003, 384)
    copies = [3, 500, 998, 1000, 1001, 1002]
    vectors[copies] = vectors[3]
    for batch in (1, 2, 7, 33):
        queries = np.concatenate([vectors[3:4], clustered(batch, 384)])[:batch]
        [hits, *_] = FlatIndex(Embeddings(vectors, "")).search(queries, 5)
        assert [hit.document for hit in hits] == copies[:5]
        assert len({hit.score for hit in hits}) == 1


def test_a_near_tie_is_decided_by_the_exact_sums() -> None:
    query = np.asarray([0.6, 0.8], np.float32)
    vectors = np.asarray([[0.8, 0.6], [0.6, 0.8], [0.6000001, 0.7999999]], np.float32)
    assert [hit.document for hit in nearest(query, vectors, np.asarray([2, 0, 1]), 2)] == [
        document for document, _ in exact(vectors, query, 2)
    ]


def test_many_queries_are_searched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    index = FlatIndex(Embeddings(clustered(500), ""))
    whole = index.search(clustered(9), 600)
    monkeypatch.setattr("agentgym_flow.retrieval.vectors._SCORES_AT_ONCE", 1000)
    assert index.search(clustered(9), 600) == whole
    assert [len(hits) for hits in whole] == [500] * 9


def test_passages_are_found_by_their_vectors() -> None:
    retriever = DenseRetriever(CORPUS, Words())
    answers = retriever.search(["title 17 topic5 word17", "title 600 topic0 word600"], 3)
    assert [answer[0].passage for answer in answers] == [CORPUS[17], CORPUS[600]]
    assert [answer[0].score for answer in answers] == pytest.approx([1, 1])
    assert all(answer[0].score >= answer[1].score >= answer[2].score for answer in answers)
    assert [len(answer) for answer in retriever.search(["", "unknown"], 2)] == [2, 2]
    assert retriever.search([], 2) == []
    assert copy.deepcopy(retriever) is retriever
    assert ids(pickle.loads(pickle.dumps(retriever)).search(["topic5"], 4)) == ids(retriever.search(["topic5"], 4))
    with pytest.raises(BadSetting, match="topk must be at least 1, got 0"):
        retriever.search(["title"], 0)


def test_an_index_of_another_corpus_is_refused() -> None:
    with pytest.raises(BadIndex, match="5 vectors does not belong to 700 passages"):
        DenseRetriever(CORPUS, Words(), FlatIndex(Embeddings(clustered(5), "")))


def test_the_folder_gives_the_same_as_memory(tmp_path: Path) -> None:
    seen: list[int] = []
    build_dense(CORPUS, Words(), tmp_path / "dense", progress=seen.append)
    assert seen == [0, 256, 512, 700]
    opened = DenseRetriever.open(tmp_path / "dense", CORPUS, Words())
    queries = ["title 3", "topic7", "word99 topic3"]
    assert opened.search(queries, 20) == DenseRetriever(CORPUS, Words()).search(queries, 20)
    stored = Embeddings.open(tmp_path / "dense", CORPUS, Words())
    assert isinstance(stored.vectors.base, np.memmap) or isinstance(stored.vectors, np.memmap)
    assert len(pickle.dumps(stored)) < 1000
    assert np.array_equal(pickle.loads(pickle.dumps(stored)).vectors, stored.vectors)


@pytest.mark.parametrize("torn", [0, 1, 32 * 4 * 100 + 3])
def test_a_killed_build_goes_on_after_the_last_whole_block(tmp_path: Path, torn: int) -> None:
    build_dense(CORPUS, Words(), tmp_path / "whole")
    encoder = Words()
    encoder.fails_at = 512
    with pytest.raises(KeyboardInterrupt):
        build_dense(CORPUS, encoder, tmp_path / "dense")
    assert not (tmp_path / "dense").exists()
    with (tmp_path / "dense.partial" / "embeddings.npy").open("ab") as file:
        file.write(b"\xff" * torn)  # what a write that was cut short leaves
    again, seen = Words(), list[int]()
    build_dense(CORPUS, again, tmp_path / "dense", progress=seen.append)
    assert seen == [512, 700]
    assert again.encoded == [CORPUS[at].index_text for at in range(512, 700)]
    for name in ("embeddings.npy", "embeddings.json"):
        assert (tmp_path / "dense" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (tmp_path / "dense.partial").exists()


def test_a_build_that_was_killed_in_its_header_begins_again(tmp_path: Path) -> None:
    encoder = Words()
    encoder.fails_at = 0
    with pytest.raises(KeyboardInterrupt):
        build_dense(CORPUS, encoder, tmp_path / "dense")
    with (tmp_path / "dense.partial" / "embeddings.npy").open("r+b") as file:
        file.truncate(20)
    build_dense(CORPUS, Words(), tmp_path / "dense")
    assert len(Embeddings.open(tmp_path / "dense", CORPUS, Words())) == 700


def test_a_partial_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    encoder = Words()
    encoder.fails_at = 256
    with pytest.raises(KeyboardInterrupt):
        build_dense(CORPUS, encoder, tmp_path / "dense")
    with pytest.raises(BadIndex, match=r"begun for another corpus or encoder; remove it"):
        build_dense(CORPUS, Words("words 2"), tmp_path / "dense")


def test_two_processes_do_not_build_one_folder(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")

    class Nested(Words):
        def encode(self, texts: Sequence[str], progress: Callable[[int], object] | None = None) -> Floats:
            with pytest.raises(BadSetting, match="another process is building"):
                build_dense(CORPUS, Words(), tmp_path / "dense")
            return super().encode(texts)

    build_dense(CORPUS, Nested(), tmp_path / "dense")
    assert len(DenseRetriever.open(tmp_path / "dense", CORPUS, Words()).index) == 700


def test_a_folder_of_something_else_or_damaged_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "dense"
    with pytest.raises(BadIndex, match="there are no vectors at"):
        DenseRetriever.open(folder, CORPUS, Words())
    build_dense(CORPUS, Words(), folder)
    with pytest.raises(BadIndex, match="of another corpus or encoder"):
        DenseRetriever.open(folder, CORPUS, Words("words 2"))
    with pytest.raises(BadIndex, match="of another corpus or encoder"):
        build_dense(MemoryCorpus([CORPUS[0]]), Words(), folder)

    vectors, page = folder / "embeddings.npy", folder / "embeddings.json"
    sound, said = vectors.read_bytes(), page.read_text()
    vectors.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    with pytest.raises(BadIndex, match="its digest differs"):
        DenseRetriever.open(folder, CORPUS, Words())
    DenseRetriever.open(folder, CORPUS, Words(), verify=False)
    vectors.write_bytes(sound[:-4])
    with pytest.raises(BadIndex, match=r"embeddings\.npy cannot be read"):
        DenseRetriever.open(folder, CORPUS, Words())
    np.save(vectors, clustered(700, 16))
    with pytest.raises(BadIndex, match="is not the file that"):
        DenseRetriever.open(folder, CORPUS, Words())
    vectors.unlink()
    with pytest.raises(BadIndex, match=r"embeddings\.npy is missing"):
        DenseRetriever.open(folder, CORPUS, Words())
    vectors.write_bytes(sound)
    page.write_text(json.dumps({**json.loads(said), "format": 99}))
    with pytest.raises(BadIndex, match="have format 99, this version reads 1"):
        DenseRetriever.open(folder, CORPUS, Words())
    for nonsense in ("", "[]", "{}", '{"format": 1}', json.dumps({**json.loads(said), "sha256": 1})):
        page.write_text(nonsense)
        with pytest.raises(BadIndex, match=r"embeddings\.json is damaged"):
            DenseRetriever.open(folder, CORPUS, Words())


def test_the_kind_suits_the_number_of_passages(tmp_path: Path) -> None:
    assert [kind_for(count) for count in (1, 100_000, 100_001, 21_000_000)] == ["flat", "flat", "ivf", "ivf"]
    with pytest.raises(UnknownOption, match=r"'hnws'.*Did you mean 'hnsw'"):
        build_dense(CORPUS, Words(), tmp_path / "dense", kind="hnws")
    with pytest.raises(BadSetting, match="needs vectors on disk"):
        FaissIndex(Embeddings(clustered(5), ""), "ivf")


def test_without_faiss_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"faiss-cpu is not installed.*agentgym_flow\[search\]"):
        build_dense(CORPUS, Words(), tmp_path / "dense", kind="hnsw")
    assert not any(tmp_path.iterdir())  # said before anything is encoded


class Stored:
    """An encoder whose passages are rows of a matrix; their texts are the numbers."""

    name = "stored"
    digest = "stored"

    def __init__(self, vectors: Floats) -> None:
        self.vectors = vectors
        self.dimension = vectors.shape[1]

    def encode(self, texts: Sequence[str], progress: Callable[[int], object] | None = None) -> Floats:
        return self.vectors[[int(text) for text in texts]]


def faiss_missing() -> bool:
    return importlib.util.find_spec("faiss") is None


@pytest.mark.skipif(faiss_missing(), reason="faiss-cpu is not installed")
@pytest.mark.parametrize(("kind", "least"), [("ivf", 0.97), ("hnsw", 0.97), ("pq", 0.8)])
def test_faiss_finds_nearly_what_flat_finds(tmp_path: Path, kind: str, least: float) -> None:
    vectors = clustered(2500)
    encoder = Stored(vectors)
    corpus = MemoryCorpus([Passage(f"p{at}", "", str(at)) for at in range(2500)])
    build_dense(corpus, encoder, tmp_path / "dense")
    build_dense(corpus, encoder, tmp_path / "dense", kind=kind)
    flat = DenseRetriever.open(tmp_path / "dense", corpus, encoder, kind="flat")
    near = DenseRetriever.open(tmp_path / "dense", corpus, encoder, kind=kind)
    queries = [str(at) for at in range(0, 2500, 50)]
    found, expected = near.search(queries, 10), flat.search(queries, 10)
    assert all(answer[0] == best[0] for answer, best in zip(found, expected, strict=True))
    recall = np.mean([len(set(answer) & set(best)) / 10 for answer, best in zip(found, expected, strict=True)])
    assert recall >= least  # a passage with its score: what is found at all has the exact one
    assert pickle.loads(pickle.dumps(near.index)).search(vectors[:3], 5) == near.index.search(vectors[:3], 5)
    assert near.search([], 3) == []
    lazy = DenseRetriever.open(tmp_path / "dense", corpus, encoder, kind=kind, effort=1).search(queries, 10)
    assert sum(a == b for a, b in zip(lazy, expected, strict=True)) <= sum(
        a == b for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.skipif(faiss_missing(), reason="faiss-cpu is not installed")
def test_a_damaged_index_of_faiss_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "dense"
    build_dense(CORPUS, Words(), folder)
    with pytest.raises(BadIndex, match=r"there is no index .*ivf\.faiss; make it with: .* --index ivf;"):
        DenseRetriever.open(folder, CORPUS, Words(), kind="ivf")
    seen: list[int] = []
    build_faiss(Embeddings.open(folder, CORPUS, Words()), "ivf", progress=seen.append)
    assert seen == [700]
    file, page = folder / "ivf.faiss", folder / "ivf.json"
    sound, said = file.read_bytes(), page.read_text()
    file.write_bytes(sound[: len(sound) // 2])
    for verify in (True, False):  # of faiss's own file, damage is never let in
        with pytest.raises(BadIndex, match="its digest differs"):
            DenseRetriever.open(folder, CORPUS, Words(), kind="ivf", verify=verify)
    with pytest.raises(BadIndex, match="cannot be read"):
        FaissIndex(Embeddings.open(folder, CORPUS, Words()), "ivf", verify=False)
    file.unlink()
    with pytest.raises(BadIndex, match=r"cannot read .*ivf\.faiss"):
        DenseRetriever.open(folder, CORPUS, Words(), kind="ivf")
    file.write_bytes(sound)
    page.write_text(json.dumps({**json.loads(said), "digest": "0"}))
    with pytest.raises(BadIndex, match="was made of other vectors"):
        DenseRetriever.open(folder, CORPUS, Words(), kind="ivf")
    page.write_text("[]")
    with pytest.raises(BadIndex, match=r"ivf\.json is damaged"):
        DenseRetriever.open(folder, CORPUS, Words(), kind="ivf")
    with pytest.raises(BadSetting, match="effort must be at least 1"):
        DenseRetriever.open(folder, CORPUS, Words(), kind="ivf", effort=0)


@pytest.mark.skipif(faiss_missing(), reason="faiss-cpu is not installed")
def test_product_quantisation_says_what_it_needs(tmp_path: Path) -> None:
    corpus = MemoryCorpus([CORPUS[at] for at in range(200)])
    with pytest.raises(BadSetting, match="at least 256 vectors with a multiple of 8 dimensions, got 200 with 32"):
        build_dense(corpus, Words(), tmp_path / "dense", kind="pq")
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is None, reason=f"{PACKAGE} is not installed")
def test_the_model_finds_by_meaning() -> None:
    texts = {
        "Ada Moren": "Ada Moren is a film maker who shot the motion picture Blue Harbour.",
        "Blue Harbour (album)": "Blue Harbour is a record by the band The Tall Ships.",
        "Velm": "Velm is a town on the river Osk.",
    }
    corpus = MemoryCorpus([Passage(str(at), *both) for at, both in enumerate(texts.items())])
    found = DenseRetriever(corpus, MiniLMEncoder()).search(["Who directed the movie?", "Which city has a stream?"], 1)
    assert ids(found) == [["0"], ["2"]]
