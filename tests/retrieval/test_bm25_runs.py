"""Large indexes: runs of any size and a kill end in the same bytes; the analyser's short cut changes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.errors import BadData, BadIndex, BadSetting
from agentgym_flow.retrieval import BM25, IndexBuilder, build_folder, index_files
from agentgym_flow.retrieval.analyser import Classes, analyse, words
from agentgym_flow.retrieval.analyser import _term as term_of_word

WORDS = ["red", "blue", "hat", "hats", "shoe", "running", "the", "3.5mm", "\u00e9t\u00e9", "\U0001f600", "\uff5e", "zz"]
texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), min_size=1, max_size=12)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.heavy
@given(texts, st.sets(st.integers(0, 12)), st.integers(1, 8))
def test_runs_of_any_size_end_in_the_bytes_of_the_index_in_memory(
    documents: list[str], cuts: set[int], block: int
) -> None:
    whole = BM25.build(documents)
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        whole.save(Path(home, "whole"))
        patch.setattr(index_files, "_BLOCK", block)  # of few postings, so that a term's do not all fit
        builder = IndexBuilder(Path(home, "runs"))
        for number, text in enumerate(documents):
            builder.add(text)
            if number in cuts:
                builder.flush()
                assert builder.documents == number + 1
                builder = IndexBuilder(Path(home, "runs"))  # as after a kill
        assert len(builder) == len(documents)
        assert builder.finish(Path(home, "index")) == whole.digest
        assert contents(Path(home, "index")) == contents(Path(home, "whole"))
        assert BM25.build(documents).digest == whole.digest  # blocks of the one in memory


def test_build_folder_makes_the_same_index_and_tidies_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [f"red hat number {n % 37} {n}" for n in range(2500)]
    monkeypatch.setattr("agentgym_flow.retrieval.builder.RUN_TERMS", 999)
    seen: list[int] = []
    digest = build_folder(iter(documents), tmp_path / "deep" / "index", k1=1.2, b=0.75, progress=seen.append)
    assert digest == BM25.build(documents, k1=1.2, b=0.75).digest == BM25.open(tmp_path / "deep" / "index").digest
    assert seen == [1000, 2000, 2500]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["index"]


def test_what_cannot_be_built_is_refused_before_the_work(tmp_path: Path) -> None:
    def untouched() -> Iterator[str]:
        raise AssertionError("a text was read")
        yield ""

    with pytest.raises(BadSetting, match="k1"):
        build_folder(untouched(), tmp_path / "index", k1=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="already exists"):
        build_folder(untouched(), tmp_path / "file")
    with pytest.raises(BadData, match="no document"):
        build_folder([], tmp_path / "index")


def test_an_error_of_the_texts_leaves_what_is_needed_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_flow.retrieval.builder.RUN_TERMS", 30)
    documents = [f"hat {n}" for n in range(100)]

    def broken() -> Iterator[str]:
        yield from documents[:70]
        raise ConnectionError

    with pytest.raises(ConnectionError):
        build_folder(broken(), tmp_path / "index")
    assert IndexBuilder(tmp_path / "index.runs").documents == 60
    assert build_folder(documents, tmp_path / "index") == BM25.build(documents).digest


def test_a_full_disk_names_the_folder_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = IndexBuilder(tmp_path / "runs")
    builder.add("red hat")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(OSError, match="No space left") as failed:
            builder.flush()
    assert failed.value.filename == str(tmp_path / "runs" / "0000000000")
    builder.flush()
    assert builder.finish(tmp_path / "index") == BM25.build(["red hat"]).digest


def test_rewinding_goes_to_the_end_of_a_run(tmp_path: Path) -> None:
    builder = IndexBuilder(tmp_path / "runs")
    for text in ["red hat", "blue hat", "shoe"]:
        builder.add(text)
        builder.flush()
    builder.add("forgotten")
    builder.rewind(2)
    assert (len(builder), builder.documents) == (2, 2)
    builder.add("green")
    assert builder.finish(tmp_path / "index") == BM25.build(["red hat", "blue hat", "green"]).digest
    builder.rewind(0)
    with pytest.raises(BadIndex, match="holds 0 documents where 5 should be"):
        builder.rewind(5)


def test_runs_that_do_not_fit_are_named(tmp_path: Path) -> None:
    builder = IndexBuilder(tmp_path / "runs")
    for text in ["red hat", "blue hat", "shoe"]:
        builder.add(text)
        builder.flush()
    (tmp_path / "runs" / "0000000001" / "times.npy").write_bytes(b"")
    with pytest.raises(BadIndex, match="0000000001 is damaged"):
        IndexBuilder(tmp_path / "runs")
    (tmp_path / "runs" / "0000000001").rename(tmp_path / "elsewhere")
    with pytest.raises(BadIndex, match=r"a run is missing before .*0000000002"):
        IndexBuilder(tmp_path / "runs")


KILLED = """
import sys, time
from agentgym_flow.retrieval import builder
builder.RUN_TERMS = 500
def texts():
    for n in range(5000):
        yield f"red hat number {n % 37} {n}"
        time.sleep(0.0005)
builder.build_folder(texts(), sys.argv[1])
"""


@pytest.mark.heavy
def test_a_killed_build_goes_on(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "index")])
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "index.runs").is_dir() or len(os.listdir(tmp_path / "index.runs")) < 5:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "index").exists()
    safe = IndexBuilder(tmp_path / "index.runs").documents
    assert 0 < safe < 5000
    indexed: list[int] = []
    documents = [f"red hat number {n % 37} {n}" for n in range(5000)]
    assert build_folder(documents, tmp_path / "index", progress=indexed.append) == BM25.build(documents).digest
    assert indexed[0] > safe  # it did not begin again


def test_ascii_characters_that_separate_are_blanks() -> None:
    classes = Classes()
    for code in range(128):
        separates = len(analyse(f"red{chr(code)}hat")) == 2 and classes[code] == " "
        assert (classes[code] == " ") == (chr(code) not in "_.:,;'" and not chr(code).isalnum())
        assert separates == (classes[code] == " ")


@given(
    st.text(
        st.one_of(st.characters(max_codepoint=127), st.characters(), st.sampled_from("aA1_.,:;'\u0301\u202f\u30ab"))
    )
)
def test_terms_are_those_of_the_words_one_by_one(text: str) -> None:
    assert analyse(text) == [term for term in map(term_of_word, words(text)) if term]


def test_what_the_analyser_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentgym_flow.retrieval import analyser

    monkeypatch.setattr(analyser, "_MOST_KEPT", 10)
    analyser._TERMS.clear()
    for n in range(100):
        assert analyse(f"w{n} " + "x" * 100) == [f"w{n}", "x" * 100]
        assert len(analyser._TERMS) <= 10
        assert all(len(piece) <= 64 for piece in analyser._TERMS)
