"""Training with a retriever on a server: as without one, and what is lost is left out and told."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from fault_server import Handler, faults, status
from short_run import train

from agentgym_flow.envs.search import tasks
from agentgym_flow.episodes import read_log
from agentgym_flow.play import ERROR
from agentgym_flow.replay import verify_log
from agentgym_flow.retrieval import protocol

ENV = "agentgym_flow/Search-v0"
MANY = 100_000
REQUESTS = {"retries": 0, "breaker_failures": MANY, "single": True}
"""One query a request, and none is sent again: each that fails loses one episode."""


def searched(handler: Handler) -> None:
    """Answer as a server of the generated articles does."""
    found = tasks.retriever().search([handler.asked["query"]], handler.asked["topk"])
    handler.reply(200, protocol.answer_of(found, True))


def run(folder: Path, **env_kwargs: Any) -> tuple[Any, dict[str, Any], list[dict[str, Any]]]:
    """Train in three updates; return what the command gave, the summary and the metrics."""
    result = train(ENV, "grpo", folder, env_kwargs=json.dumps(env_kwargs))
    assert result.exit_code == 0, result.output
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return result, json.loads((folder / "summary.json").read_text()), records


@pytest.mark.heavy
def test_a_run_survives_a_server_that_fails_now_and_then(tmp_path: Path) -> None:
    numbers = itertools.count(1)

    def sometimes(handler: Handler) -> None:
        (status(500) if next(numbers) % 9 == 0 else searched)(handler)

    with faults(*[sometimes] * MANY) as server:
        result, summary, records = run(tmp_path / "run", retriever=server.url, remote=REQUESTS)
    lost = summary["lost_episodes"]
    assert 0 < lost < 24
    assert [record["episodes"] for record in records if "success" in record][-1] == 24
    assert [record["lost_episodes"] for record in records][-1] == lost
    tests = [summary[moment][way] for moment in ("before", "after") for way in ("sampled", "greedy")]
    failed = sum(each["errors"] for each in tests)
    assert failed > 0
    told = f"the environment raised in {lost} episodes of training and in {failed} of the tests"
    assert told in " ".join(result.stdout.replace("│", " ").split())
    assert "episodes verified" in result.stdout
    marked = 0
    for log in sorted((tmp_path / "run" / "evaluations").iterdir()):  # the server is gone by now
        assert verify_log(log).ok
        marked += sum(ERROR in (line.meta or {}) for line in read_log(log))
    assert marked == failed


def test_where_no_server_is_a_run_ends_with_a_sentence(tmp_path: Path) -> None:
    kwargs = json.dumps({"retriever": "http://127.0.0.1:9", "remote": {"retries": 0}})
    result = train(ENV, "grpo", tmp_path / "run", env_kwargs=kwargs, eval_episodes=2)
    assert result.exit_code == 2
    assert "error: nothing answers at http://127.0.0.1:9/retrieve" in result.stderr


@pytest.mark.heavy
def test_a_server_changes_nothing_but_who_searches(tmp_path: Path) -> None:
    with faults(*[searched] * MANY) as server:
        _, remote, records = run(tmp_path / "remote", retriever=server.url, remote={"single": True})
    _, local, alone = run(tmp_path / "local")
    assert remote["before"] == local["before"]
    assert remote["after"] == local["after"]
    for one, two in zip(records, alone, strict=True):
        assert {k: v for k, v in one.items() if "time" not in k} == {k: v for k, v in two.items() if "time" not in k}
