"""The query cache: exact, shared by threads and processes, bounded, and never a reason to fail."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.errors import BadData, BadSetting
from agentgym_flow.retrieval.corpus import Hit, Passage
from agentgym_flow.retrieval.remote import QueryCache

ANSWER = [Hit(Passage("1", "A", "b\ud800\0"), 0.1), Hit(Passage("2", "", ""), -3.0)]


def answer(number: int, length: int = 100) -> list[Hit]:
    return [Hit(Passage(str(number), "t", "x" * length), float(number))]


def test_an_answer_is_kept_for_its_retriever_query_and_number(tmp_path) -> None:
    cache = QueryCache(tmp_path / "new" / "cache")
    cache.put("bm25", 3, [("q", ANSWER), ("nothing", [])])
    for again in (cache, QueryCache(cache.path), pickle.loads(pickle.dumps(cache))):
        assert again.get("bm25", ["q", "nothing", "Q", ""], 3) == [ANSWER, [], None, None]
        assert again.get("bm25", ["q"], 2) == [None] == again.get("dense", ["q"], 3)
        assert len(again) == 2
        again.close()
    assert cache.get("bm25", ["q"], 3) == [ANSWER], "a closed one opens again"
    cache.put("bm25", 3, [("q", [])])
    assert cache.get("bm25", ["q"], 3) == [ANSWER]
    assert cache.trouble == ""


texts = st.text(st.characters(codec=None), max_size=10)


@given(
    st.lists(
        st.builds(Hit, st.builds(Passage, texts, texts, texts), st.floats(allow_nan=False, allow_infinity=False)),
        max_size=3,
    ),
    texts,
)
def test_any_answer_comes_back_as_it_was(tmp_path_factory, found, query) -> None:
    cache = QueryCache(tmp_path_factory.getbasetemp() / "any-cache")
    identity = repr(found)
    cache.put(identity, 3, [(query, found)])
    assert cache.get(identity, [query], 3) == [found]
    assert cache.trouble == ""
    cache.close()


def test_the_oldest_answers_go_when_there_is_no_room(tmp_path) -> None:
    cache = QueryCache(tmp_path / "cache", max_bytes=20_000)
    for number in range(500):
        cache.put("r", 1, [(str(number), answer(number))])
        assert cache.size <= 20_000
    kept = [found is not None for found in cache.get("r", [str(number) for number in range(500)], 1)]
    assert kept == sorted(kept), "the oldest go first"
    assert 20_000 / 160 < sum(kept) < 20_000 / 100
    cache.close()
    assert cache.path.stat().st_size < 20_000 * 5, "pages are used again"
    with sqlite3.connect(cache.path) as file:
        (total,) = file.execute("SELECT total(length(answer)) FROM answers").fetchone()
    assert cache.size == total
    cache.put("r", 1, [("too large", answer(1, 30_000))])
    assert cache.get("r", ["too large", "499"], 1) == [None, answer(499)]


def work(path: Path, first: int) -> None:
    cache = QueryCache(path, max_bytes=30_000)
    for number in range(first, first + 60):
        cache.put("r", 1, [(str(number), answer(number))])
        (found,) = cache.get("r", [str(number)], 1)
        assert found in (None, answer(number))
    assert cache.trouble == ""


def test_processes_and_threads_share_one_file(tmp_path) -> None:
    path = tmp_path / "cache"
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=work, args=(path, first)) for first in (0, 40)]
    failed: list[BaseException] = []
    shared = QueryCache(path, max_bytes=30_000)

    def in_thread(first: int) -> None:
        try:
            for number in range(first, first + 60):
                shared.put("r", 1, [(str(number), answer(number))])
                assert shared.get("r", [str(number)], 1)[0] in (None, answer(number))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=in_thread, args=(first,)) for first in (80, 100, 20)]
    for worker in [*processes, *threads]:
        worker.start()
    for worker in [*processes, *threads]:
        worker.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert not failed
    assert shared.trouble == ""
    assert shared.size <= 30_000
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (total,) = file.execute("SELECT total(length(answer)) FROM answers").fetchone()
    assert shared.size == total


def test_a_child_opens_the_file_for_itself(tmp_path) -> None:
    cache = QueryCache(tmp_path / "cache")
    child = os.fork()
    if child == 0:
        cache.put("r", 1, [("q", ANSWER)])
        os._exit(1 if cache.trouble else 0)
    assert os.waitpid(child, 0)[1] == 0
    assert cache.get("r", ["q"], 1) == [ANSWER]


def test_many_can_make_the_file_at_once(tmp_path) -> None:
    code = (
        "import sys; from agentgym_flow.retrieval.remote import QueryCache\n"
        "sys.stdin.readline(); QueryCache(sys.argv[1]).put('r', 1, [('q', [])])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "cache")]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in range(3)]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait(60) for process in started] == [0, 0, 0]
    assert QueryCache(tmp_path / "cache").get("r", ["q"], 1) == [[]]


def test_a_file_that_another_is_making_is_waited_for(tmp_path) -> None:
    path = tmp_path / "cache"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    timer = threading.Timer(0.3, other.execute, ["COMMIT"])
    timer.start()
    cache = QueryCache(path)
    timer.join()
    cache.put("r", 1, [("q", ANSWER)])
    assert cache.get("r", ["q"], 1) == [ANSWER]


def test_what_is_no_cache_is_left_alone(tmp_path) -> None:
    text = tmp_path / "text"
    text.write_text("notes " * 500)
    other = tmp_path / "other"
    with sqlite3.connect(other) as file:
        file.execute("CREATE TABLE mine (x)")
    before = other.read_bytes()
    newer = tmp_path / "newer"
    QueryCache(newer).close()
    with sqlite3.connect(newer) as file:
        file.execute("PRAGMA user_version = 2")
    for path in (text, other, newer, tmp_path):
        with pytest.raises(BadData, match="query cache"):
            QueryCache(path)
    assert text.read_text() == "notes " * 500
    assert other.read_bytes() == before
    with pytest.raises(BadSetting):
        QueryCache(tmp_path / "cache", max_bytes=0)


def test_a_full_disk_is_noted_and_the_cache_goes_on(tmp_path) -> None:
    cache = QueryCache(tmp_path / "cache")
    [pages] = cache._file.execute("PRAGMA page_count").fetchone()
    cache._file.execute(f"PRAGMA max_page_count = {pages}")
    large = [Hit(Passage("1", "title", "x" * 100_000), 1.0)]
    cache.put("engine", 1, [("query", large)])
    assert cache.trouble == "OperationalError: database or disk is full"
    cache._file.execute("PRAGMA max_page_count = 1000")
    cache.put("engine", 1, [("query", large)])
    assert cache.get("engine", ["query"], 1) == [large]


def test_trouble_in_use_is_a_miss_and_is_noted(tmp_path) -> None:
    cache = QueryCache(tmp_path / "cache")
    cache.put("r", 1, [("q", ANSWER)])
    with sqlite3.connect(cache.path) as file:
        file.execute("UPDATE answers SET answer = ?", (b'[["only an id", 1.0]]',))
    assert cache.get("r", ["q"], 1) == [None]
    assert "TypeError" in cache.trouble
    with sqlite3.connect(cache.path) as file:
        file.execute("DROP TABLE answers")
    assert cache.get("r", ["q", "p"], 1) == [None, None]
    assert "answers" in cache.trouble
    cache.put("r", 1, [("q", ANSWER)])  # and does not raise
    assert len(cache) == 0
