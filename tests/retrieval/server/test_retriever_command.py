"""`agentgym-flow retriever`: a corpus becomes an index, an index is served, and what is wrong is told."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from retriever_running import running
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.envs.search.finding import find_with
from agentgym_flow.errors import BadIndex, RetrieverFailed
from agentgym_flow.retrieval.building import build_retriever, open_retriever
from agentgym_flow.retrieval.corpus import Passage
from agentgym_flow.retrieval.remote import RemoteRetriever
from agentgym_flow.retrieval.retrievers import DenseRetriever
from agentgym_flow.retrieval.vectors import FaissIndex

PROGRAM = "import sys; from agentgym_flow.cli import main; main()"
BIRD = Passage("2", "Kestrel", "a small bird that hovers over fields")


@pytest.fixture
def corpus(tmp_path) -> Path:
    passages = [Passage("1", "Tern", "a sea bird"), BIRD, Passage("3", "Oak", "a tree of forests")]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"id": each.id, "contents": each.contents}) + "\n" for each in passages))
    return path


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["retriever", *(str(each) for each in arguments)], env={"COLUMNS": "200"})


def test_a_corpus_is_built_and_served_until_ctrl_c(corpus, tmp_path) -> None:
    built = invoke("build", corpus, tmp_path / "index")
    assert built.exit_code == 0, built.output
    assert f"retriever serve {tmp_path / 'index'}" in built.stdout
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        "retriever",
        "serve",
        str(tmp_path / "index"),
        "--port",
        "0",
        "--topk",
        "1",
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200", "AGENTGYM_FLOW_RETRIEVER_TOKEN": "t0ken"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/retrieve", said)
        assert address, said
        (found,) = RemoteRetriever(address[0], token="t0ken").search(["which bird hovers?"], 2)
        assert found[0].passage == BIRD
        assert found == open_retriever(tmp_path / "index").search(["which bird hovers?"], 2)[0]
        with pytest.raises(RetrieverFailed, match="401"):
            RemoteRetriever(address[0]).search(["which bird hovers?"], 2)
        process.send_signal(signal.SIGINT)
        _, complained = process.communicate(timeout=60)
        assert (process.returncode, complained) == (0, "")
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_what_is_wrong_is_told(corpus, tmp_path) -> None:
    build_retriever(corpus, tmp_path / "index")
    for words, reason in (
        (("build", corpus, tmp_path / "index"), "already exists"),
        (("build", tmp_path / "nowhere", tmp_path / "new"), "nowhere"),
        (("build", corpus, tmp_path / "new", "--kind", "magic"), "bm25, dense, hybrid"),
        (("build", corpus, tmp_path / "new", "--index", "flat"), "bm25 has no vectors"),
        (("build", corpus, tmp_path / "new", "--index", "foo"), "flat, ivf, hnsw, pq"),
        (("build", corpus, tmp_path / "new", "--kind", "dense", "--index", "hnws"), "Did you mean 'hnsw'"),
        (("serve", tmp_path / "index", "--index", "hnsw"), "bm25 has no vectors"),
        (("build", "", tmp_path / "new"), "is empty"),
        (("serve", tmp_path / "nowhere"), "nowhere"),
        (("serve", ""), "is empty"),
        (("serve", tmp_path / "index", "--kind", "magic"), "bm25, dense, hybrid"),
        (("serve", tmp_path / "index", "--port", "70000"), "--port"),
        (("serve", tmp_path / "index", "--topk", "101"), "topk is 1 to 100"),
        (("serve", tmp_path / "index", "--token", ""), "token is empty"),
        (("serve", tmp_path / "index", "--host", "0.0.0.0"), "set a token"),
    ):
        result = invoke(*words)
        assert result.exit_code == 2, (words, result.output)
        assert reason in result.stderr, words
    assert not (tmp_path / "new").exists()


def test_a_missing_extra_is_told_before_anything_is_read(tmp_path) -> None:
    code = "import sys; sys.modules['uvicorn'] = None\n"
    command = [sys.executable, "-c", code + PROGRAM, "retriever", "serve", str(tmp_path / "nowhere")]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 2
    assert "agentgym_flow[serve]" in finished.stderr


def test_a_build_that_was_stopped_goes_on(corpus, tmp_path, monkeypatch) -> None:
    def stopped(*words: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("agentgym_flow.retrieval.building.merge_runs", stopped)
        result = invoke("build", corpus, tmp_path / "index")
    assert result.exit_code == 130
    assert "run the same command again" in result.stderr
    assert not (tmp_path / "index").exists()
    assert invoke("build", corpus, tmp_path / "index").exit_code == 0


class Letters:
    """An encoder by letters, which needs no model."""

    name, digest, dimension = "letters", "0" * 64, 26

    def encode(self, texts: Any, progress: Any = None) -> Any:
        rows = np.array([[text.lower().count(chr(97 + n)) for n in range(26)] for text in texts], np.float32)
        return rows.reshape(-1, 26) / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6).reshape(-1, 1)


def test_vectors_are_added_to_a_finished_folder_and_make_three_kinds(corpus, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("agentgym_flow.retrieval.building.MiniLMEncoder", Letters)
    folder = tmp_path / "index"
    assert invoke("build", corpus, folder).exit_code == 0
    words = open_retriever(folder)
    result = invoke("build", corpus, folder, "--kind", "hybrid")
    assert result.exit_code == 0, result.output
    assert "--kind hybrid" in result.stdout
    phases: list[str] = []
    once = build_retriever(corpus, tmp_path / "once", kind="dense", progress=lambda now: phases.append(now.phase))
    assert list(dict.fromkeys(phases)) == ["passages", "index", "dense"]
    kinds = {kind: open_retriever(folder, kind=kind, verify=True) for kind in ("bm25", "dense", "hybrid")}
    assert [retriever.name for retriever in kinds.values()] == ["bm25", "dense", "hybrid"]
    assert kinds["bm25"].search(["sea"], 3) == words.search(["sea"], 3)
    assert len(kinds["dense"].search(["zzz"], 3)[0]) == 3
    assert kinds["dense"].search(["sea"], 3) == once.search(["sea"], 3)
    assert kinds["hybrid"].search(["sea bird"], 1)[0][0].passage.title == "Tern"
    for retriever in kinds.values():
        with running(retriever) as address:
            assert RemoteRetriever(address).search(["sea bird", ""], 2) == retriever.search(["sea bird", ""], 2)


def test_a_folder_without_vectors_says_so(corpus, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("agentgym_flow.retrieval.building.MiniLMEncoder", Letters)
    build_retriever(corpus, tmp_path / "index")
    with pytest.raises(BadIndex, match="dense"):
        open_retriever(tmp_path / "index", kind="dense")
    with pytest.raises(BadIndex, match="agentgym-flow retriever build SOURCE FOLDER --kind dense; "):
        open_retriever(tmp_path / "index", kind="dense")


@pytest.mark.skipif(importlib.util.find_spec("faiss") is None, reason="faiss-cpu is not installed")
def test_the_index_that_was_built_is_the_one_that_is_used(corpus, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("agentgym_flow.retrieval.building.MiniLMEncoder", Letters)
    built = invoke("build", corpus, tmp_path / "index", "--kind", "dense", "--index", "hnsw")
    assert f"serve {tmp_path / 'index'} --kind dense --index hnsw" in built.stdout

    def kind_of(index: str | None = None) -> str:
        opened = open_retriever(tmp_path / "index", kind="dense", index=index)
        assert isinstance(opened, DenseRetriever)
        return opened.index._kind if isinstance(opened.index, FaissIndex) else "flat"

    assert kind_of() == "hnsw"
    assert kind_of("flat") == "flat"
    # The environment opens folders the same way.
    found = find_with("dense", tmp_path / "index", None, embedded=False).retriever
    assert isinstance(found, DenseRetriever)
    assert isinstance(found.index, FaissIndex)
    # Of several, the one that suits the number of passages: also where that is too large for comparing all.
    invoke("build", corpus, tmp_path / "index", "--kind", "dense", "--index", "ivf")
    assert kind_of() == "flat"
    monkeypatch.setattr("agentgym_flow.retrieval.vectors.FLAT_LIMIT", 2)
    assert kind_of() == "ivf"
    (tmp_path / "index" / "dense" / "ivf.json").unlink()
    assert kind_of() == "hnsw"
