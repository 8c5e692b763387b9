"""The recording: what a retriever found is in the log, so episodes are checked without it; forgeries are found."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_server import faults
from search_stand_ins import PASSAGES, Shelf, Unasked, make, write_corpus, write_set

from agentgym_flow.core import TextEnv
from agentgym_flow.episodes import Episode, EpisodeRecorder, read_log, write_log
from agentgym_flow.errors import BadData
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import RandomPolicy
from agentgym_flow.replay import replay, verify_log
from agentgym_flow.retrieval.remote import RemoteRetriever

SPECS = [EpisodeSpec(seed, seed % 2, seed // 2) for seed in range(12)]
RECORDING = [None, [list(PASSAGES[0]), list(PASSAGES[2])], None, [list(PASSAGES[3])], None]
"""What the episode of `played` takes from outside: at the reset, then with each step."""


@pytest.fixture(scope="module")
def bridges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small published set."""
    return write_set(tmp_path_factory.mktemp("sets") / "bridges")


@pytest.fixture
def nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every retriever of the package fail."""

    def search(*_: Any) -> Any:
        raise AssertionError("replay asks a retriever")

    monkeypatch.setattr(RemoteRetriever, "search", search)
    monkeypatch.setattr("agentgym_flow.retrieval.retrievers.LexicalRetriever.search", search)


def played(env: TextEnv) -> Episode:
    """Return an episode of two searches, a text that is no action, and the right answer."""
    recorder = EpisodeRecorder(env)
    episode = recorder.reset(seed=1, task=0)
    for action in ("search[Tarn]", "hm", "search[Liverpool]", "answer[Ada Voss]"):
        recorder.step(action)
    return episode


@pytest.fixture
def log(bridges: Path, tmp_path: Path) -> Path:
    """The log of one episode."""
    write_log(tmp_path / "log.jsonl", [played(make(data=bridges, retriever=Shelf(), split="test"))])
    return tmp_path / "log.jsonl"


def edited(log: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Return the log after a change in its line."""
    line = json.loads(log.read_text())
    change(line)
    log.write_text(json.dumps(line) + "\n")
    return log


def test_the_recording_holds_what_was_shown(log: Path) -> None:
    [logged] = read_log(log)
    assert logged.recording == RECORDING


def test_what_a_server_found_is_checked_without_it(
    bridges: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with faults() as server:
        url = server.url
        episodes = rollout(RandomPolicy(), lambda: make(data=bridges, retriever=url, split="test"), SPECS, num_envs=5)
        assert server.asked
    request.getfixturevalue("nobody_is_asked")
    assert sum(turn.recording is not None for episode in episodes for turn in episode.turns) > 12
    write_log(tmp_path / "log.jsonl.gz", episodes)
    verdict = verify_log(tmp_path / "log.jsonl.gz", {"bridges": bridges})
    assert verdict.ok, verdict.problems()
    assert (verdict.matched, verdict.unfinished) == (12, 0)


@pytest.mark.parametrize("form", ["object", "file"])
def test_what_others_found_is_checked_without_them(
    bridges: Path, tmp_path: Path, form: str, request: pytest.FixtureRequest
) -> None:
    corpus = write_corpus(tmp_path / "gone" / "four.jsonl")
    named: dict[str, Any] = {"retriever": Shelf()} if form == "object" else {"corpus": corpus}
    episodes = rollout(RandomPolicy(), lambda: make(data=bridges, split="test", **named), SPECS)
    write_log(tmp_path / "log.jsonl", episodes)
    corpus.unlink()
    request.getfixturevalue("nobody_is_asked")
    verdict = verify_log(tmp_path / "log.jsonl", {"bridges": bridges})
    assert verdict.ok, verdict.problems()


def test_what_can_be_computed_is_computed_again(tmp_path: Path) -> None:
    """The generated articles are on every machine: a log of them has no recording, and none can be put in."""
    episode = rollout(RandomPolicy(), make, [EpisodeSpec(3, 5)])[0]
    write_log(tmp_path / "log.jsonl", [episode])
    assert "recording" not in json.loads((tmp_path / "log.jsonl").read_text())
    assert verify_log(tmp_path / "log.jsonl").ok
    edited(
        tmp_path / "log.jsonl",
        lambda line: line.update(recording=[None, *([[["1", "t", "x"]]] * len(line["actions"]))]),
    )
    [problem] = verify_log(tmp_path / "log.jsonl").problems()
    assert "uses no recorded responses" in problem


def test_an_environment_with_a_recording_asks_nobody(bridges: Path) -> None:
    env = make(data=bridges, retriever=Unasked(), split="test")
    env.external.use_recording(RECORDING)
    again = played(env)
    assert [again.recording, *(turn.recording for turn in again.turns)] == RECORDING
    env.external.use_recording(RECORDING)
    env.reset(options={"task": 0})
    env.external.prepare_steps([env], ["search[anything]"])
    assert env.step("search[anything]")[4]["retrieved"] == ["p0", "p2"]
    env.external.use_recording(RECORDING)
    env.external.use_recording(None)
    env.reset(options={"task": 0})
    with pytest.raises(AssertionError, match="the retriever is asked"):
        env.step("search[Tarn]")


def test_the_score_is_computed_not_believed(log: Path, bridges: Path) -> None:
    edited(log, lambda line: line["actions"].__setitem__(3, "answer[Bo]"))
    verdict = verify_log(log, {"bridges": bridges})
    assert (verdict.score, verdict.claimed_score) == (0.0, 1.0)
    assert "step 4: reward: the log has 1.0, replay has 0.0" in verdict.problems()[0]


# ---------------------------------------------------------------- forged recordings
def passage(change: Callable[[list[str]], object]) -> Callable[[dict[str, Any]], object]:
    return lambda line: change(line["recording"][1][0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (passage(lambda one: one.__setitem__(2, "Built by Bo.")), "step 1: action, observation or state (by digest)"),
        (passage(lambda one: one.__setitem__(1, "Bridge")), "step 1: action, observation or state (by digest)"),
        (passage(lambda one: one.__setitem__(0, "p9")), "step 1: action, observation or state (by digest)"),
        (lambda line: line["recording"][1].reverse(), "step 1: action, observation or state (by digest)"),
        (lambda line: line["recording"][1].pop(), "step 1: action, observation or state (by digest)"),
        (lambda line: line["recording"][1].extend([["x", "t", "x"]] * 5), "step 1: action, observation or state"),
        (lambda line: line["recording"].__setitem__(3, []), "step 3: action, observation or state (by digest)"),
        # What no search has taken is found, too: nothing in a recording is without effect.
        (lambda line: line["recording"].__setitem__(0, []), "recording"),
        (lambda line: line["recording"].__setitem__(2, [["x", "t", "x"]]), "recording"),
        (lambda line: line["recording"].__setitem__(4, "x"), "recording"),
        # Neither is it shown in another form than it was.
        (passage(lambda one: one.__setitem__(2, f"{one[2]}\n")), "recording"),
        (passage(lambda one: one.__setitem__(2, f"\u202e{one[2]}")), "recording"),
        # And what is not there, or is no passage, has a message of its own.
        (lambda line: line["recording"].__setitem__(1, None), "the recording has no passages for step 1"),
        (lambda line: line["recording"].__setitem__(3, "Liverpool"), "the recording has no passages for step 3"),
        (
            lambda line: line["recording"].__setitem__(3, [["p3", "Liverpool"]]),
            "the recording has no passages for step 3",
        ),
        (
            lambda line: line["recording"].__setitem__(3, [["p3", "Liverpool", 3]]),
            "the recording has no passages for step 3",
        ),
        (lambda line: line["recording"].__setitem__(3, [{"id": "p3"}]), "the recording has no passages for step 3"),
        (lambda line: line["recording"].pop(), "line 1"),
        (lambda line: line["recording"].append(None), "line 1"),
        (lambda line: line.pop("recording"), "the recording has no passages for step 1"),
    ],
)
def test_a_forged_recording_is_found(log: Path, bridges: Path, change: Any, said: str) -> None:
    assert verify_log(log, {"bridges": bridges}).ok
    edited(log, change)
    verdict = verify_log(log, {"bridges": bridges})
    assert not verdict.ok
    assert (verdict.matched, verdict.score) == (0, 0.0)
    [problem] = verdict.problems()
    assert said in problem


def test_replay_of_a_recording_that_is_too_short_is_a_typed_error(log: Path, bridges: Path) -> None:
    [logged] = read_log(log)
    assert len(replay(logged, {"bridges": bridges}).turns) == 4
    env = make(data=bridges, retriever="custom", split="test")
    env.external.use_recording(RECORDING[:3])
    env.reset(options={"task": 0})
    env.step("search[Tarn]")
    env.step("hm")
    before = copy.deepcopy(env)
    with pytest.raises(BadData, match="the recording has no passages for step 3"):
        env.step("search[Liverpool]")
    assert env.info() == before.info()
    assert env.step("answer[Ada Voss]")[1] == 1.0, "the step may be another one"
