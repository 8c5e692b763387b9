"""The OpenAI-compatible backend against a real server: `transformers serve`, with a model that is built here."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from backend_calls import CUSTOM, call_of
from canvas_graphs import op

from agentgym_flow.envs.canvas.backends.openai_compatible import OpenAIBackend
from agentgym_flow.envs.canvas.backends.replay import Recorder, Replay
from agentgym_flow.envs.canvas.calls import Problem
from agentgym_flow.envs.canvas.interpreter import Interpreter
from agentgym_flow.envs.canvas.workflow.nodes import Chain, Conditional

pytestmark = pytest.mark.heavy

NEEDED = ("torch", "transformers", "fastapi", "uvicorn", "openai")
FOLLOWS = {"<reply>": "Verdict:", "Verdict:": "pass", "pass": "<eos>"}
"""The model says what follows the last token, whatever came before: so its reply is known."""
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}<reply>"


def build(folder: Path) -> None:
    """Save a model of one layer that adds nothing to the last token, so that its head alone decides."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from agentgym_flow.training.tiny import word_tokenizer

    tokenizer = word_tokenizer(["<reply>", "Verdict:", "pass", *(f"word{number}" for number in range(20))])
    tokenizer.chat_template = TEMPLATE
    tokenizer.model_max_length = 4096
    size = len(tokenizer)
    config = GPT2Config(
        vocab_size=size,
        n_positions=4096,
        n_embd=2 * size,
        n_layer=1,
        n_head=2,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    model = GPT2LMHeadModel(config)
    ids = tokenizer.get_vocab()
    with torch.no_grad():
        for parameter in model.transformer.parameters():
            parameter.zero_()
        model.transformer.ln_f.weight.fill_(1.0)
        model.transformer.wte.weight.copy_(torch.eye(size, 2 * size))
        model.lm_head.weight.zero_()
        for word, token in ids.items():
            model.lm_head.weight[ids[FOLLOWS.get(word, "<eos>")], token] = 20.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The model's name and the server's URL."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"transformers serve needs {', '.join(missing)}; pip install 'transformers[serving]'")
    folder = tmp_path_factory.mktemp("served") / "model"
    build(folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder), "--device", "cpu"]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    said = folder.parent / "said"
    with said.open("wb") as log:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)], env=offline, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        end = time.monotonic() + 180
        while not _healthy(port):
            assert server.poll() is None, said.read_text("utf-8", "replace")[-2000:]
            assert time.monotonic() < end, "the server does not come up"
            time.sleep(0.2)
        yield str(folder), f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_operators_work(served: tuple[str, str]) -> None:
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


def test_many_at_once(served: tuple[str, str]) -> None:
    backend = OpenAIBackend(*served, max_tokens=16, concurrency=4)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(backend.run, [call_of("Custom", seed=number) for number in range(16)]))
    assert {result.text for result in results} == {"Verdict: pass"}


def test_a_run_is_recorded_and_played_again(served: tuple[str, str]) -> None:
    nodes: Chain = (op("Custom"), Conditional(op("Verify"), (op("Format"),), (op("Revise"),)))
    recorder = Recorder(OpenAIBackend(*served, max_tokens=16))
    problem = Problem("task", "How many?")
    recorded = Interpreter(recorder).run(nodes, problem)
    assert [step.operator for step in recorded.steps] == ["Custom", "Verify", "Format"]
    tape: list[Any] = json.loads(json.dumps(recorder.take()))
    assert Interpreter(Replay(tape)).run(nodes, problem) == recorded
