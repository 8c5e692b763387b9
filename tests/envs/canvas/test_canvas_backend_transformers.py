"""The OpenAI-compatible backend against a real server: `transformers serve`, with a model that is built here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from backend_calls import CUSTOM, call_of
from canvas_graphs import op
from served_model import serving

from agentgym_flow.envs.canvas.backends.openai_compatible import OpenAIBackend
from agentgym_flow.envs.canvas.backends.replay import ReplayBackend, ResponseRecorder
from agentgym_flow.envs.canvas.operators.calls import WorkflowProblem
from agentgym_flow.envs.canvas.workflow import Chain, Conditional
from agentgym_flow.envs.canvas.workflow.interpreter import Interpreter

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The model's name and the server's URL."""
    with serving(tmp_path_factory.mktemp("served")) as found:
        yield found


def test_a_real_server_plays_operators_and_an_unreadable_plan_fails(served: tuple[str, str]) -> None:
    backend = OpenAIBackend(*served, max_tokens=16)
    told = backend.run(CUSTOM)
    assert told.status == "ok", told.text
    assert told.value is not None
    assert told.value.text == "Verdict: pass"
    assert told.tokens > 20
    verified = backend.run(call_of("Verify")).value
    assert verified is not None
    assert verified.passed is True
    planned = backend.run(call_of("Plan"))
    assert (planned.status, planned.value) == ("error", None)
    assert backend.usage.requests == backend.usage.calls == 3


def test_a_reply_of_the_greatest_length_is_cut_off(served: tuple[str, str]) -> None:
    result = OpenAIBackend(*served, max_tokens=1).run(CUSTOM)
    assert (result.status, result.value) == ("error", None)
    assert "cut off" in result.text


def test_a_model_that_is_not_there_is_an_error(served: tuple[str, str]) -> None:
    result = OpenAIBackend("nobody/nothing", served[1], retries=0).run(CUSTOM)
    assert result.status == "error"
    assert "status " in result.text


def test_many_calls_at_once_all_get_their_answer(served: tuple[str, str]) -> None:
    backend = OpenAIBackend(*served, max_tokens=16, concurrency=4)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(backend.run, [call_of("Custom", seed=number) for number in range(16)]))
    assert {result.text for result in results} == {"Verdict: pass"}


def test_a_run_is_recorded_and_played_again(served: tuple[str, str]) -> None:
    nodes: Chain = (op("Custom"), Conditional(op("Verify"), (op("Format"),), (op("Revise"),)))
    recorder = ResponseRecorder(OpenAIBackend(*served, max_tokens=16))
    problem = WorkflowProblem("task", "How many?")
    recorded = Interpreter(recorder).run(nodes, problem)
    assert [step.operator for step in recorded.steps] == ["Custom", "Verify", "Format"]
    recording: list[Any] = json.loads(json.dumps(recorder.take()))
    assert Interpreter(ReplayBackend(recording)).run(nodes, problem) == recorded
