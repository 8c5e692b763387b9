"""A real server for heavy tests: `transformers serve` with a model that is built here and says what is known."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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


@contextmanager
def serving(folder: Path, model: Path | None = None) -> Iterator[tuple[str, str]]:
    """Serve a `model`, or one that is built below `folder`, where the server's output goes; yield its name and the URL.

    Skips where packages are missing.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"transformers serve needs {', '.join(missing)}; pip install 'transformers[serving]'")
    if model is None:
        build(model := folder / "model")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(model), "--device", "cpu"]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    said = folder / "said"
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
        yield str(model), f"http://127.0.0.1:{port}/v1"
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
