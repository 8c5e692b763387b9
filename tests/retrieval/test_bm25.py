"""BM25: Lucene's numbers, a plain reference, the folder, and Lucene's own recorded rankings."""

from __future__ import annotations

import copy
import math
import pickle
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.errors import BadData, BadIndex, BadSetting
from agentgym_flow.retrieval import BM25
from agentgym_flow.retrieval.analyser import analyse
from agentgym_flow.retrieval.index_files import byte_of_length, length_of_byte

TEXTS = ["red shoe", "red red hat", "the", "a blue hat for running", "", "red shoe"]
WORDS = ["red", "blue", "hat", "hats", "shoe", "running", "the", "3.5mm"]
texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join), min_size=1)

# Documents, a query, and what Lucene 9.5 prints for them.
DOCUMENTS = ["red shoe", "red red hat", "blue hat for running and more words here today", "green " * 50 + "red"]
QUERY = "red hat red"
PRINTED_BY_LUCENE = [(1, 0.9778362), (0, 0.44986027), (2, 0.40773365), (3, 0.26589188)]


def reference(documents: list[str], query: str, k: int, k1: float = 0.9, b: float = 0.4) -> list[tuple[int, float]]:
    """Return the best documents by the published formula, in 64-bit floats, document by document."""
    bags = [Counter(analyse(text)) for text in documents]
    lengths = [bag.total() for bag in bags]
    filled = sum(length > 0 for length in lengths)
    found = {}
    for term, times in Counter(analyse(query)).items():
        n = sum(term in bag for bag in bags)
        idf = math.log(1 + (filled - n + 0.5) / (n + 0.5))
        for document, bag in enumerate(bags):
            if term in bag:
                norm = k1 * (1 - b + b * length_of_byte(byte_of_length(lengths[document])) * filled / sum(lengths))
                found[document] = found.get(document, 0.0) + times * idf * bag[term] / (bag[term] + norm)
    # Rounded, because 32-bit floats cannot tell what is closer.
    return sorted(((d, round(s, 5)) for d, s in found.items()), key=lambda hit: (-hit[1], hit[0]))[:k]


def test_lengths_are_kept_in_lucenes_bytes() -> None:
    assert [byte_of_length(length) for length in (0, 1, 23, 24, 39, 40, 41, 42, 100, 124, 1000, 2**31 - 1)] == [
        *(0, 1, 23, 24, 39, 40, 40, 41, 57, 60, 87, 255)
    ]
    assert [length_of_byte(byte) for byte in (0, 23, 24, 39, 40, 41, 57, 60, 87, 255)] == [
        *(0, 23, 24, 39, 40, 42, 96, 120, 984, 2013265944)
    ]
    assert [byte_of_length(length_of_byte(byte)) for byte in range(256)] == list(range(256))


def test_scores_have_lucenes_bits() -> None:
    hits = BM25.build(DOCUMENTS).search(QUERY)
    assert [tuple(hit) for hit in hits] == [(at, float(np.float32(score))) for at, score in PRINTED_BY_LUCENE]


@given(texts, st.lists(st.sampled_from([*WORDS, "tea"])).map(" ".join))
def test_the_formula_of_the_paper_gives_the_same_scores(documents: list[str], query: str) -> None:
    hits = BM25.build(documents).search(query, 1000)
    assert sorted(hit.document for hit in hits) == sorted(d for d, _ in reference(documents, query, 1000))
    expected = dict(reference(documents, query, 1000))
    assert all(hit.score == pytest.approx(expected[hit.document], abs=2e-5) for hit in hits)
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.document))
    assert all(hit.score == float(np.float32(hit.score)) for hit in hits)  # what is closer than that is a tie


@given(texts, st.integers(1, 12), st.randoms())
def test_the_order_of_documents_decides_ties_only(documents: list[str], k: int, random: Any) -> None:
    order = list(range(len(documents)))
    random.shuffle(order)
    query = "red hat 3.5mm"
    here, there = BM25.build(documents), BM25.build([documents[at] for at in order])
    assert [hit.score for hit in here.search(query, k)] == [hit.score for hit in there.search(query, k)]
    everything = len(documents)
    back = sorted((-hit.score, order[hit.document]) for hit in there.search(query, everything))
    assert [(-hit.score, hit.document) for hit in here.search(query, everything)] == back
    assert here.search(query, k) == here.search(query, everything)[:k]


def test_equal_documents_rank_in_their_order_and_words_of_the_query_in_none() -> None:
    index = BM25.build(TEXTS)
    assert [hit.document for hit in index.search("red shoes")] == [0, 5, 1]
    assert index.search("shoes red") == index.search("red shoes")
    assert index.search("red shoes", 1) == index.search("red shoes")[:1]
    assert index.search_many(["hat", "tea", ""]) == [index.search("hat"), [], []]
    assert index.search("red red")[0].score > index.search("red")[0].score


def test_settings_matter_and_are_checked() -> None:
    flat, steep = (BM25.build(["long red hat", "hat"], b=b).search("hat") for b in (0, 1))
    assert [hit.document for hit in flat] == [0, 1]
    assert flat[0].score == flat[1].score
    assert [hit.document for hit in steep] == [1, 0]
    assert BM25.build(TEXTS, k1=5).digest != BM25.build(TEXTS).digest
    for k1 in (0, -1, math.inf, math.nan):
        with pytest.raises(BadSetting, match="k1"):
            BM25.build(TEXTS, k1=k1)
    for b in (-0.1, 1.1, math.nan):
        with pytest.raises(BadSetting, match="b must"):
            BM25.build(TEXTS, b=b)
    with pytest.raises(BadSetting, match="at least 1, got 0"):
        BM25.build(TEXTS).search("red", 0)


def test_an_empty_corpus_is_refused_and_empty_documents_are_not(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="no document"):
        BM25.build([])
    index = BM25.build(["", "the"])
    index.save(tmp_path / "index")
    assert len(index) == 2
    assert index.search("the tea") == BM25.open(tmp_path / "index").search("the tea") == []


def test_progress_is_reported() -> None:
    seen: list[int] = []
    BM25.build(["red"] * 2500, progress=seen.append)
    assert seen == [1000, 2000, 2500]


@given(texts)
def test_a_saved_index_is_the_same(documents: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        index = BM25.build(documents)
        index.save(Path(folder, "index"))
        again = BM25.open(Path(folder, "index"))
        assert (again.digest, len(again), repr(again)) == (index.digest, len(index), repr(index))
        assert again.search("red hat 3.5mm", 5) == index.search("red hat 3.5mm", 5)
        again.save(Path(folder, "copy"))
        for file in Path(folder, "index").iterdir():
            assert Path(folder, "copy", file.name).read_bytes() == file.read_bytes()


def test_an_opened_index_is_mapped_and_its_pickle_is_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = BM25.build(TEXTS * 1000)
    built.save(tmp_path / "index")
    monkeypatch.chdir(tmp_path)
    index = BM25.open("index")
    assert all(isinstance(array.base, np.memmap) for array in index._arrays.values())
    monkeypatch.chdir("/")
    data = pickle.dumps(index)
    assert len(data) < 1000 < len(pickle.dumps(built))
    for again in (pickle.loads(data), pickle.loads(pickle.dumps(built))):
        assert again.digest == built.digest
        assert again.search("red hat") == built.search("red hat")
    assert copy.deepcopy(index) is copy.copy(index) is index


def test_a_pickle_does_not_open_another_index(tmp_path: Path) -> None:
    BM25.build(TEXTS).save(tmp_path / "index")
    data = pickle.dumps(BM25.open(tmp_path / "index"))
    (tmp_path / "index").rename(tmp_path / "old")
    BM25.build(["other"]).save(tmp_path / "index")
    with pytest.raises(BadIndex, match="replaced since"):
        pickle.loads(data)


def test_nothing_is_overwritten_and_nothing_half_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = BM25.build(TEXTS)
    index.save(tmp_path / "deep" / "index")
    with pytest.raises(FileExistsError, match="already exists") as caught:
        index.save(tmp_path / "deep" / "index")
    assert caught.value.filename == str(tmp_path / "deep" / "index")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array_header_1_0", full)
    with pytest.raises(OSError, match="No space left") as failed:
        index.save(tmp_path / "new")
    assert failed.value.filename == str(tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


def test_a_bad_folder_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(BadIndex, match="there is no index at"):
        BM25.open(tmp_path / "none")
    BM25.build(TEXTS).save(tmp_path / "index")
    page = tmp_path / "index" / "index.json"
    sound = page.read_text("utf-8")
    for text, complaint in [
        (sound[:-20], "is damaged"),
        ("[]", "is damaged"),
        ("{}", "is damaged"),
        (sound.replace('"format": 1', '"format": 2'), "has format 2, this version reads 1"),
        (sound.replace('"documents": 6', '"documents": 7'), "its digest differs"),
    ]:
        assert text != sound
        page.write_text(text, "utf-8")
        with pytest.raises(BadIndex, match=complaint):
            BM25.open(tmp_path / "index")
    page.write_text(sound, "utf-8")
    assert len(BM25.open(tmp_path / "index")) == 6


@pytest.mark.parametrize("name", ["terms", "term_ends", "starts", "idf", "documents", "saturations"])
def test_a_damaged_file_is_named(name: str, tmp_path: Path) -> None:
    BM25.build(TEXTS).save(tmp_path / "index")
    file = tmp_path / "index" / f"{name}.npy"
    sound = file.read_bytes()
    file.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    with pytest.raises(BadIndex, match=rf"{name}\.npy is not the file"):
        BM25.open(tmp_path / "index")
    assert len(BM25.open(tmp_path / "index", verify=False)) == 6  # as asked: not compared
    for verify in (True, False):
        for broken in (sound[:-1], b"", b"not an array", sound.replace(b")", b" ", 1)):
            file.write_bytes(broken)
            with pytest.raises(BadIndex, match=rf"{name}\.npy cannot be read"):
                BM25.open(tmp_path / "index", verify=verify)
        np.save(file, np.zeros(3, np.float16))
        with pytest.raises(BadIndex, match=rf"{name}\.npy is not the file"):
            BM25.open(tmp_path / "index", verify=verify)
        file.unlink()
        with pytest.raises(BadIndex, match=rf"{name}\.npy is missing"):
            BM25.open(tmp_path / "index", verify=verify)
