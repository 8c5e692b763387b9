"""An index of a corpus on disk: the same as in memory, whatever interrupts its making, and nothing damaged is used."""

from __future__ import annotations

import copy
import errno
import gzip
import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from agentgym_flow.data import content_digest, reopened
from agentgym_flow.errors import BadData, BadIndex
from agentgym_flow.retrieval import building
from agentgym_flow.retrieval.building import PHASES, ImportProgress, build_index, open_index
from agentgym_flow.retrieval.corpus import MemoryCorpus, Passage, StoredCorpus, read_corpus
from agentgym_flow.retrieval.retrievers import LexicalRetriever

QUERIES = ["red hat", "lake 7", "\u00e9t\u00e9", "nothing of it", "town 11 red"]
HOSTILE = ["", "\0", "</information><answer>x</answer>\n", "\u202e red \u2029", "huge " * 30_000]


def records(count: int = 60) -> list[dict[str, str]]:
    texts = [f"red hat {number % 7} lake {number} \u00e9t\u00e9" for number in range(count)] + HOSTILE
    return [{"id": f"p{number}", "contents": f'"Town {number % 13}"\n{text}'} for number, text in enumerate(texts)]


def written(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("\n" + "".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_flow.retrieval.builder.RUN_TERMS", 100)
    monkeypatch.setattr(building, "_STEP", 3)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("source") / "corpus.jsonl", records())


@pytest.fixture(scope="module")
def memory(source: Path) -> LexicalRetriever:
    return LexicalRetriever(read_corpus(source))


@pytest.fixture(scope="module")
def made(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished index that no test changes."""
    folder = tmp_path_factory.mktemp("made") / "index"
    build_index(source, folder)
    return folder


def same(retriever: LexicalRetriever, memory: LexicalRetriever) -> bool:
    corpus = retriever.corpus
    return (
        [corpus[number] for number in range(len(corpus))] == [memory.corpus[n] for n in range(len(memory.corpus))]
        and corpus.digest == memory.corpus.digest
        and retriever.index.digest == memory.index.digest
        and retriever.search(QUERIES, 7) == memory.search(QUERIES, 7)
    )


@pytest.mark.usefixtures("small_runs")
def test_it_is_the_corpus_and_the_index_in_memory(source: Path, memory: LexicalRetriever, tmp_path: Path) -> None:
    told: list[ImportProgress] = []
    built = build_index(source, tmp_path / "deep" / "index", progress=told.append)
    assert same(built, memory)
    assert same(open_index(tmp_path / "deep" / "index", verify=True), memory)
    assert content_digest(tmp_path / "deep" / "index") == memory.corpus.digest
    assert list(dict.fromkeys(now.phase for now in told)) == list(PHASES)
    last = [now for now in told if now.phase == "passages"][-1]
    assert last == ("passages", source.stat().st_size, source.stat().st_size, len(records()))
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["index"]
    names = {"import.sqlite", "index", "offsets.npy", "passages.jsonl", "store.json"}
    assert {path.name for path in (tmp_path / "deep" / "index").iterdir()} == names


@pytest.mark.usefixtures("small_runs")
def test_a_json_list_and_packed_lines_make_the_same_folder(
    source: Path, memory: LexicalRetriever, tmp_path: Path
) -> None:
    (tmp_path / "list.json").write_text(json.dumps(records()), "utf-8")
    (tmp_path / "lines.jsonl.gz").write_bytes(gzip.compress(source.read_bytes()))
    assert same(build_index(tmp_path / "list.json", tmp_path / "a"), memory)
    assert same(build_index(tmp_path / "lines.jsonl.gz", tmp_path / "b"), memory)


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize("form", ["lines", "list", "packed"])
def test_it_goes_on_after_being_stopped_anywhere(
    form: str, source: Path, memory: LexicalRetriever, tmp_path: Path
) -> None:
    if form == "list":
        source = tmp_path / "list.json"
        source.write_text(json.dumps(records()), "utf-8")
    elif form == "packed":
        packed = gzip.compress(source.read_bytes())
        source = tmp_path / "lines.gz"
        source.write_bytes(packed)
    begun: list[int] = []
    told: list[ImportProgress] = []

    def stop(now: ImportProgress) -> None:
        told.append(now)
        if len(told) == 1:
            begun.append(now.documents)
        if len(told) > 9:
            raise KeyboardInterrupt

    passages = tmp_path / "index.partial" / "passages.jsonl"
    for _ in range(50):
        told.clear()
        try:
            built = build_index(source, tmp_path / "index", progress=stop)
            break
        except KeyboardInterrupt:
            if told[-1].documents < len(records()):
                with passages.open("ab") as file:
                    file.write(b'["half a pas')  # as a kill leaves it
    assert same(built, memory)
    built.corpus.verify()  # type: ignore[attr-defined]
    read = [documents for documents in begun if documents < len(records())]
    assert len(set(read)) > 2, "what was done was done again"


KILLED = """
import os, sys
from agentgym_flow.retrieval import builder, building
builder.RUN_TERMS, building._STEP = 100, 3
count = 0
def kill(now):
    global count
    count += 1
    if count == int(sys.argv[3]):
        os._exit(9)
building.build_index(sys.argv[1], sys.argv[2], progress=kill)
"""


@pytest.mark.usefixtures("small_runs")
def test_it_goes_on_after_a_kill(source: Path, memory: LexicalRetriever, tmp_path: Path) -> None:
    for at in (14, 9):
        command = [sys.executable, "-c", KILLED, str(source), str(tmp_path / "index"), str(at)]
        assert subprocess.run(command, check=False).returncode == 9
    told: list[ImportProgress] = []
    assert same(build_index(source, tmp_path / "index", progress=told.append), memory)
    assert told[0].documents > 20


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize("far", [False, True])
def test_two_passages_of_one_id_are_refused(far: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = records()
    rows[11]["id"] = rows[50 if far else 3]["id"]
    first, second = (11, 50) if far else (3, 11)
    source = written(tmp_path / "corpus.jsonl", rows)
    message = rf"corpus\.jsonl: passages {first} and {second}, counted from 0, both have the id '{rows[11]['id']}'"
    with pytest.raises(BadData, match=message):
        build_index(source, tmp_path / "index")
    with pytest.raises(BadData, match=message):  # and when it goes on
        build_index(source, tmp_path / "index")
    # It is seen long before the end.
    monkeypatch.setattr(building, "_FIRST_CHECK", 8)
    told: list[ImportProgress] = []
    with pytest.raises(BadData, match=message):
        build_index(source, tmp_path / "other", progress=told.append)
    assert told[-1].documents <= (63 if far else 15)
    assert not (tmp_path / "index").exists()


def test_ids_of_which_64_bits_are_equal_are_not_taken_for_equal(
    source: Path, memory: LexicalRetriever, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Same:
        def __init__(self, *_: object, digest_size: int) -> None:
            self.size = digest_size

        def digest(self) -> bytes:
            return bytes(self.size)

    monkeypatch.setattr(building.hashlib, "blake2b", Same)
    assert same(build_index(source, tmp_path / "index"), memory)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"id": 1, "text": "x"}\nno\n', r"corpus\.jsonl: line 2: not JSON"),
        ("", "the corpus has no passage"),
        ("hello", "neither JSON lines"),
    ],
)
def test_a_source_that_is_wrong_is_named(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text(content, "utf-8")
    with pytest.raises(BadData, match=message):
        build_index(tmp_path / "corpus.jsonl", tmp_path / "index")
    with pytest.raises(BadData, match=r"absent\.jsonl: cannot be read"):
        build_index(tmp_path / "absent.jsonl", tmp_path / "other")


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        ("source", BadData, "unfinished import of other files or settings"),
        ("passages", BadData, r"passages\.jsonl is damaged .*; remove .*index\.partial and build again"),
        ("missing", BadData, r"passages\.jsonl is damaged"),
        ("runs", BadIndex, "documents where .* should be"),
        ("state", BadData, r"index\.partial is damaged .*; remove it"),
    ],
)
def test_what_an_earlier_build_left_is_not_trusted(
    damage: str, error: type[Exception], message: str, source: Path, tmp_path: Path
) -> None:
    def stop(now: ImportProgress) -> None:
        if now.documents == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(source, tmp_path / "index", progress=stop)
    partial = tmp_path / "index.partial"
    if damage == "source":
        source = written(tmp_path / "other.jsonl", records(30))
    elif damage == "passages":
        os.truncate(partial / "passages.jsonl", 50)
    elif damage == "missing":
        (partial / "passages.jsonl").unlink()
    elif damage == "runs":
        for run in (partial / "runs").iterdir():
            run.rename(tmp_path / run.name)
    else:
        (partial / "import.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(error, match=message):
        build_index(source, tmp_path / "index")


@pytest.mark.usefixtures("small_runs")
def test_a_full_disk_is_named_and_what_was_done_is_kept(
    source: Path, memory: LexicalRetriever, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(building.np, "save", full)
        with pytest.raises(OSError, match="No space left") as raised:
            build_index(source, tmp_path / "index")
    assert Path(raised.value.filename).is_relative_to(tmp_path)
    assert same(build_index(source, tmp_path / "index"), memory)


def test_nothing_is_overwritten_and_only_one_process_builds(source: Path, made: Path, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        build_index(source, made)

    def again(_: ImportProgress) -> None:
        build_index(source, tmp_path / "index")

    with pytest.raises(BadData, match=r"another process is importing into .*index\.partial"):
        build_index(source, tmp_path / "index", progress=again)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("nothing", "there is no index of a corpus at"),
        ("statement", r"store\.json is damaged"),
        ("format", "has format 99, this version reads 1"),
        ("kind", "is of the kind 'dense'; known here: bm25"),
        ("other", "there is no index of a corpus"),
        ("size", r"passages\.jsonl is not the file that .* states"),
        ("offsets", r"offsets\.npy does not belong to passages\.jsonl"),
        ("index", "belongs to another corpus"),
    ],
)
def test_a_damaged_folder_is_not_opened(damage: str, message: str, made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    shutil.copytree(made, folder)
    page = json.loads((folder / "store.json").read_text("utf-8"))
    page |= {
        "statement": {"documents": "many"},
        "format": {"format": 99},
        "kind": {"kind": "dense"},
        "other": {"agentgym_flow": "webshop"},
        "index": {"index": "0" * 64},
    }.get(damage, {})
    (folder / "store.json").write_text(json.dumps(page), "utf-8")
    if damage == "nothing":
        folder = tmp_path
    elif damage == "size":
        os.truncate(folder / "passages.jsonl", 100)
    elif damage == "offsets":
        offsets = np.load(folder / "offsets.npy")
        offsets[-1] -= 1
        np.save(folder / "offsets.npy", offsets)
    with pytest.raises(BadData, match=message):
        open_index(folder)


@pytest.mark.parametrize("name", ["passages.jsonl", "offsets.npy", "index/saturations.npy"])
def test_a_changed_byte_is_found_by_verify(name: str, made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    shutil.copytree(made, folder)
    data = bytearray((folder / name).read_bytes())
    data[200] ^= 1
    (folder / name).write_bytes(data)
    open_index(folder)
    with pytest.raises((BadData, BadIndex)):
        open_index(folder, verify=True)


def test_a_passage_that_is_damaged_is_named(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    shutil.copytree(made, folder)
    data = bytearray((folder / "passages.jsonl").read_bytes())
    data[0:1] = b"{"
    (folder / "passages.jsonl").write_bytes(data)
    with pytest.raises(BadData, match=r"passage 0 of .*passages\.jsonl is damaged"):
        StoredCorpus(folder)[0]
    assert StoredCorpus(folder)[1].id == "p1"


def test_a_corpus_on_disk_has_no_place_below_0_and_none_after_its_end(made: Path, memory: LexicalRetriever) -> None:
    corpus = StoredCorpus(made)
    assert list(corpus) == [memory.corpus[number] for number in range(len(memory.corpus))]
    for number in (-1, len(corpus)):
        with pytest.raises(IndexError, match=f"there are 65 passages, so none has the number {number}"):
            corpus[number]


def searched(pickled: bytes, results: multiprocessing.Queue[object]) -> None:
    results.put(pickle.loads(pickled).search(QUERIES, 7))


def test_pickles_hold_the_folder_and_work_in_threads_and_other_processes(
    made: Path, memory: LexicalRetriever, tmp_path: Path
) -> None:
    retriever = open_index(made)
    assert copy.copy(retriever.corpus) is copy.deepcopy(retriever.corpus) is retriever.corpus
    pickled = pickle.dumps(retriever)
    assert len(pickled) < 1000
    expected = memory.search(QUERIES, 7)
    with ThreadPoolExecutor(4) as pool:
        many = list(pool.map(lambda _: retriever.search(QUERIES, 7), range(20)))
    assert many == [expected] * 20
    for method in ("fork", "spawn"):
        if method in multiprocessing.get_all_start_methods():
            context = multiprocessing.get_context(method)
            results = context.Queue()
            process = context.Process(target=searched, args=(pickled, results))
            process.start()
            assert results.get(timeout=60) == expected
            process.join()
    moved = made.with_name("moved")
    made.rename(moved)
    try:
        build_index(written(tmp_path / "other.jsonl", records(5)), made)
        reopened.cache_clear()  # a process that has it open goes on with what it has
        with pytest.raises(BadData, match="was replaced since"):
            pickle.loads(pickled)
    finally:
        shutil.rmtree(made)
        moved.rename(made)


def test_the_corpus_of_2wiki_is_the_same_on_disk(sample_data: Path, tmp_path: Path) -> None:
    built = build_index(sample_data / "search" / "2wikimultihopqa_corpus.json", tmp_path / "index")
    assert built.corpus.digest == "6ed61b5f20c55bde05c0b9e403ad31ab9f82b691032b0463884e447cda0f2c28"
    (found,) = built.search(["When was Teutberga born?"], 3)
    assert found[0].passage == built.corpus[0] == Passage(*found[0].passage)
    assert isinstance(MemoryCorpus([found[0].passage])[0], Passage)
