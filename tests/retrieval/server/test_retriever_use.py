"""Search with a remote retriever as a user runs it: evaluate, collect, play and train, and what is told of trouble."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_server import faults, good, status
from retriever_running import running
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.envs.search import tasks
from agentgym_flow.episodes import read_log
from agentgym_flow.play import ERROR

QUICK = {"backoff": 0.01, "breaker_rest": 0.05, "read_timeout": 2.0, "deadline": 20.0}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTGYM_FLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")

    def invoke(*arguments: object, **more: Any) -> Any:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], **more)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


def settings(address: str, **remote: Any) -> list[str]:
    return ["--env-arg", f"retriever={address}", "--env-arg", f"remote={json.dumps({**QUICK, **remote})}"]


def test_an_evaluation_with_a_server_is_verified_when_it_is_gone(run: Callable[..., Any]) -> None:
    arguments = ["evaluate", "Search", "--policy", "expert", "--split", "valid", "--episodes", 30]
    with running(tasks.retriever()) as address:
        result = run(*arguments, *settings(address), "--log", "run.jsonl")
    assert result.exit_code == 0
    assert "100.0%" in result.stdout
    assert "lost" not in result.output
    checked = run("verify", "run.jsonl")
    assert checked.exit_code == 0
    assert "30 of 30 episodes match; success 100.0%" in checked.stdout
    # Over the same articles nothing changes but who finds them.
    run(*arguments, "--log", "alone.jsonl")
    pairs = zip(read_log("run.jsonl"), read_log("alone.jsonl"), strict=True)
    assert all((one.actions, one.rewards) == (two.actions, two.rewards) for one, two in pairs)


def test_a_server_that_is_not_there_stops_an_evaluation_at_once(run: Callable[..., Any]) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        for command in (["evaluate", "Search", "--log", "a.jsonl"], ["collect", "Search", "--out", "b.jsonl"]):
            name = command[-1]
            more = ["--policy", "expert", "--episodes", 200, "--num-envs", 4, *settings(address, retries=1)]
            result = run(*command, *more)
            assert result.exit_code == 2
            assert f"error: nothing answers at {address}/retrieve" in result.stderr
            assert "start the retriever there, or correct the address" in result.stderr
            assert not Path(name).exists()


def test_lost_episodes_are_told(run: Callable[..., Any]) -> None:
    """The server fails in the second round: the episodes that search in it are lost, and those after it are not."""
    rounds = [good, status(500)]
    for command in ("evaluate", "collect"):
        with faults(*rounds) as server:
            log = {"evaluate": "--log", "collect": "--out"}[command]
            result = run(
                command, "Search", "--policy", "expert", "--split", "valid", "--episodes", 8, "--num-envs", 4,
                *settings(server.url, retries=0), log, f"{command}.jsonl",
            )  # fmt: skip
        assert result.exit_code == 0
        marked = [line for line in read_log(f"{command}.jsonl") if ERROR in (line.meta or {})]
        assert 0 < len(marked) <= 4
        assert all(len(line.actions) == 1 for line in marked)
        assert f"lost: in {len(marked)} of 8 episodes the environment raised" in result.stderr
        assert "RetrieverFailed" in result.stderr
        assert "status 500" in result.stderr
        if command == "evaluate":
            assert f"lost episodes    {len(marked)}" in result.stdout
        assert run("verify", f"{command}.jsonl").exit_code == 0


def test_a_player_waits_for_a_server_that_is_away(run: Callable[..., Any]) -> None:
    with faults(status(500)) as server:
        played = run(
            "play", "Search", "--task", 0, *settings(server.url, retries=0), "--log", "play.jsonl",
            input="search[one]\nsearch[one]\nanswer[two]\n",
        )  # fmt: skip
    assert played.exit_code == 0
    assert played.stdout.count("No step was taken: the retriever gave") == 1
    assert "about one" in played.stdout
    [line] = read_log("play.jsonl")
    assert line.actions == ["search[one]", "answer[two]"]
    assert run("verify", "play.jsonl").exit_code == 0


def test_what_a_setting_of_the_server_must_be_is_told(run: Callable[..., Any]) -> None:
    for remote, reason in (
        ("[1]", "settings by name"),
        ("soon", "settings by name"),
        ('{"deadline": "soon"}', "deadline"),
        ('{"deadlin": 3}', "Did you mean 'deadline'?"),
        ('{"topk_limit": 2}', "topk is 3, but the server is asked for 2 at most"),
    ):
        named = ["--env-arg", "retriever=http://127.0.0.1:9", "--env-arg", f"remote={remote}"]
        result = run("evaluate", "Search", *named)
        assert result.exit_code == 2
        assert reason in result.stderr


def test_the_generated_articles_are_served_without_a_folder(run: Callable[..., Any], monkeypatch: Any) -> None:
    served = []
    monkeypatch.setattr("agentgym_flow.retrieval.server.serve", lambda retriever, **_: served.append(retriever))
    assert run("retriever", "serve", "embedded").exit_code == 0
    assert served == [tasks.retriever()]
    for more in (["--kind", "dense"], ["--index", "flat"]):
        refused = run("retriever", "serve", "embedded", *more)
        assert refused.exit_code == 2
        assert "retriever build FOLDER/corpus.jsonl INDEX --kind dense" in refused.stderr
    elsewhere = run("retriever", "serve", "./embedded")
    assert elsewhere.exit_code == 2
    assert "embedded" in elsewhere.stderr
    assert len(served) == 1
