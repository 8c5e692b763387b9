"""Lucene itself through pyserini, where pyserini and Java are installed: it agrees with our BM25."""

from __future__ import annotations

import copy
import importlib.util
import multiprocessing
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from agentgym_flow.errors import BadData, BadIndex, BadSetting, MissingExtra
from agentgym_flow.retrieval import BM25
from agentgym_flow.retrieval.lucene import LuceneIndex

TEXTS = ["red shoe", "red red hat", "blue hat for running", "red shoe", "", "the", 'a \u4e2d "quoted" AND (text']

NAMES = ["d", "c", "b", "a", "e", "f", "g"]
DOCUMENTS = list(zip(NAMES, TEXTS, strict=True))


def test_without_pyserini_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyserini.pyclass", None)
    monkeypatch.setitem(sys.modules, "pyserini", None)
    with pytest.raises(MissingExtra, match=r"pip install 'agentgym_flow\[pyserini\]'"):
        LuceneIndex(tmp_path)


@pytest.fixture
def java() -> None:
    if importlib.util.find_spec("pyserini") is None or importlib.util.find_spec("jnius") is None:
        pytest.skip("pyserini is not installed")
    try:
        importlib.import_module("pyserini.pyclass")
    except Exception as error:
        pytest.skip(f"pyserini finds no Java: {error}")


@pytest.mark.heavy
@pytest.mark.usefixtures("java")
def test_lucene_finds_what_bm25_finds(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    theirs = LuceneIndex.build(iter(DOCUMENTS), tmp_path / "deep" / "lucene")
    ours = BM25.build(TEXTS, ties=np.array([3, 2, 1, 0, 4, 5, 6], np.int32))
    for query in ("red shoes", "shoe", "hat red", "running", "", "the", '"x AND (', "\u4e2d", "quoted"):
        assert theirs.find(query, 5) == [NAMES[hit.document] for hit in ours.search(query, 5)]
    assert theirs.find("red", 1) == ["c"]
    assert theirs.find("shoe") == ["a", "d"]  # of equal scores, whatever was indexed first
    assert theirs.name == "pyserini"
    assert copy.copy(theirs) is copy.deepcopy(theirs) is theirs
    assert len(pickle.dumps(theirs)) < 500
    assert pickle.loads(pickle.dumps(theirs)).find("hat") == theirs.find("hat")
    assert capfd.readouterr().out == ""


@pytest.mark.heavy
@pytest.mark.usefixtures("java")
def test_what_is_no_index_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadIndex, match="Lucene finds no index at"):
        LuceneIndex(tmp_path)
    with pytest.raises(BadData, match="no document to index"):
        LuceneIndex.build([("a", ""), ("b", " ")], tmp_path / "empty")
    (tmp_path / "mine").write_text("")
    with pytest.raises(FileExistsError, match="already exists"):
        LuceneIndex.build(DOCUMENTS, tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def find_after_fork(index: LuceneIndex, answers: multiprocessing.SimpleQueue[str]) -> None:
    try:
        index.find("hat")
    except BadSetting as error:
        answers.put(str(error))


@pytest.mark.heavy
@pytest.mark.usefixtures("java")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_is_told_instead_of_hanging(tmp_path: Path) -> None:
    index = LuceneIndex.build(DOCUMENTS, tmp_path / "lucene")
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=find_after_fork, args=(index, answers))
    child.start()
    assert "was forked" in answers.get()
    child.join()
