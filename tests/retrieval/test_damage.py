"""Damage anywhere in an index: it is refused as `BadIndex`, or changes nothing. A mended corpus is built again."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym_flow.core import Stream
from agentgym_flow.errors import BadData, BadIndex
from agentgym_flow.retrieval import building
from agentgym_flow.retrieval.building import build_index, open_index
from agentgym_flow.retrieval.corpus import Hit, Retriever
from agentgym_flow.retrieval.retrievers import DenseRetriever, build_dense

QUERIES = ["red hat 3", "lake 7", "town 11 red"]
COUNT = 300  # the fewest that faiss's product quantiser takes are 256


class Letters:
    """An encoder by pairs of letters."""

    name, digest, dimension = "letters", "0" * 64, 16

    def encode(self, texts: Sequence[str], progress: Any = None) -> Any:
        rows = [[1 + hashlib.sha256(text.encode()).digest()[n] for n in range(self.dimension)] for text in texts]
        found = np.array(rows, np.float32).reshape(-1, self.dimension)
        return found / np.linalg.norm(found, axis=1, keepdims=True)


def written(path: Path, bad: int | None = None, count: int = COUNT) -> Path:
    rows = [{"id": f"p{n}", "contents": f'"Town {n % 13}"\nred hat {n % 7} lake {n}'} for n in range(count)]
    lines = [json.dumps(row) + "\n" for row in rows]
    if bad is not None:
        lines[bad] = "{damaged\n"
    path.write_text("".join(lines), "utf-8")
    return path


def opened(folder: Path, kind: str, verify: bool = True) -> Retriever:
    words = open_index(folder, verify=verify)
    if kind == "bm25":
        return words
    return DenseRetriever.open(folder / "dense", words.corpus, Letters(), kind=kind, verify=verify)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("damage")
    words = build_index(written(place / "corpus.jsonl"), place / "index")
    build_dense(words.corpus, Letters(), place / "index" / "dense", kind="flat")
    if importlib.util.find_spec("faiss"):
        for kind in ("ivf", "hnsw", "pq"):
            build_dense(words.corpus, Letters(), place / "index" / "dense", kind=kind)
    return place / "index"


def damaged(data: bytes, places: int) -> Iterator[bytes]:
    """Yield `data` with a flipped bit in its first bytes and in others, cut, longer, and with other ends of lines."""
    draws = Stream("damage", hashlib.sha256(data).hexdigest())
    for place in {*range(min(len(data), places)), *(draws.below(len(data)) for _ in range(places)), len(data) - 1}:
        changed = bytearray(data)
        changed[place] ^= 1 << draws.below(8)
        yield bytes(changed)
    for size in {0, 1, 9, 64, len(data) // 2, len(data) - 1}:
        yield data[:size]
    yield data + b"\0"
    yield b"PK\x03\x04" + data[4:]  # the beginning of a zip file, as of `.npz`
    yield b"[" * 100_000


def outcomes(made: Path, tmp_path: Path, kind: str, names: Sequence[str], places: int, verify: bool) -> set[str]:
    folder = tmp_path / "index"
    shutil.copytree(made, folder)
    sound = opened(folder, kind).search(QUERIES, 3)
    found = set()
    for name in names:
        data = (folder / name).read_bytes()
        for changed in damaged(data, places):
            (folder / name).write_bytes(changed)
            try:
                result: list[list[Hit]] = opened(folder, kind, verify).search(QUERIES, 3)
            except BadIndex as error:
                found.add("refused" if str(folder) in str(error) else f"the folder is not named: {error}")
            else:
                found.add("the same" if result == sound else "other")
        (folder / name).unlink()
        with pytest.raises(BadIndex):
            opened(folder, kind, verify)
        (folder / name).write_bytes(data)
    assert opened(folder, kind).search(QUERIES, 3) == sound
    return found


WORDS = [
    "store.json",
    "passages.jsonl",
    "offsets.npy",
    "index/index.json",
    *(f"index/{name}.npy" for name in ("terms", "term_ends", "starts", "idf", "documents", "saturations")),
]
FAISS = pytest.mark.skipif(not importlib.util.find_spec("faiss"), reason="faiss is not installed")
KINDS = [
    ("bm25", WORDS),
    ("flat", ["dense/embeddings.json", "dense/embeddings.npy"]),
    *(
        pytest.param(kind, [f"dense/{kind}.json", f"dense/{kind}.faiss"], marks=FAISS, id=kind)
        for kind in ("ivf", "hnsw", "pq")
    ),
]


@pytest.mark.parametrize(("kind", "names"), KINDS)
def test_no_damage_passes_verification(kind, names, made: Path, tmp_path: Path) -> None:
    assert outcomes(made, tmp_path, kind, names, 12, verify=True) <= {"refused", "the same"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "names"), KINDS)
def test_without_verification_damage_raises_nothing_else(kind, names, made: Path, tmp_path: Path) -> None:
    found = outcomes(made, tmp_path, kind, names, 12, verify=False)
    assert {"refused"} <= found <= {"refused", "the same", "other"}


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(("kind", "names"), KINDS)
def test_damage_anywhere_is_noticed_and_refused_by_verification(
    kind, names, verify, made: Path, tmp_path: Path
) -> None:
    found = outcomes(made, tmp_path, kind, names, 200, verify)
    assert {"refused"} <= found <= {"refused", "the same", "refused" if verify else "other"}


# ---------------------------------------------------------------- a corpus that is mended
@pytest.mark.parametrize("bad", [0, 150, COUNT - 1])
def test_a_corpus_is_mended_and_built_again(bad: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_flow.retrieval.builder.RUN_TERMS", 200)  # some runs are committed before the line
    source = written(tmp_path / "corpus.jsonl", bad)
    with pytest.raises(BadData, match=f"line {bad + 1}"):
        build_index(source, tmp_path / "index")
    assert list(tmp_path.iterdir()) == [source]
    built = build_index(written(source), tmp_path / "index")
    assert built.corpus[bad].id == f"p{bad}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "index"]


def test_nothing_stays_of_what_cannot_be_built(tmp_path: Path) -> None:
    twice = written(tmp_path / "twice.jsonl")
    twice.write_text(twice.read_text() * 2, "utf-8")
    (tmp_path / "empty.jsonl").write_text("\n", "utf-8")
    before = sorted(tmp_path.iterdir())
    for name in ("twice.jsonl", "empty.jsonl", "absent.jsonl"):
        with pytest.raises(BadData):
            build_index(tmp_path / name, tmp_path / "index")
        assert sorted(tmp_path.iterdir()) == before


def test_another_build_under_way_is_left_alone(tmp_path: Path) -> None:
    source = written(tmp_path / "corpus.jsonl")
    refused: list[str] = []

    def again(_: object) -> None:
        if not refused:
            with pytest.raises(BadData, match="another process") as raised:
                build_index(source, tmp_path / "index")
            refused.append(str(raised.value))

    assert len(build_index(source, tmp_path / "index", progress=again).corpus) == COUNT
    assert refused


def stopped(message: str) -> Callable[..., None]:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt(message)

    return stop


def test_what_a_kill_leaves_is_not_taken_for_another_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = written(tmp_path / "corpus.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(building, "merge_runs", stopped("killed"))
        with pytest.raises(KeyboardInterrupt):
            build_index(source, tmp_path / "index")
    with pytest.raises(BadData, match="unfinished import of other files"):
        build_index(written(tmp_path / "other.jsonl", count=20), tmp_path / "index")
    assert len(build_index(source, tmp_path / "index").corpus) == COUNT, "it went on"
