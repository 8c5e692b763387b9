"""What VLLMServers asks of a server of vLLM, answered by rote; tests/with_vllm asks real ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fault_server import LoopbackHandler, LoopbackServer


class Handler(LoopbackHandler):
    server: FakeVLLM

    def respond(self) -> None:
        if self.command == "GET":
            path = self.path.partition("?")[0]
            self.answer(path, self.server.answers.get(path))
            return
        body = self.body()
        with self.server.lock:
            self.server.posted.append((self.path, body))
            if self.path == "/collective_rpc":
                self.server.files = sorted(file.name for file in Path(body["kwargs"]["weights_path"]).iterdir())
            if self.path == "/update_weight_version":
                self.server.answers["/weight_info"] = {"weight_version": body["new_version"]}
        self.answer(self.path, self.server.answers.get(self.path, {}))

    def answer(self, path: str, answer: Any) -> None:
        if path in self.server.silent:
            self.server.closing.wait(20)
            return
        status, answer = answer if isinstance(answer, tuple) else (404 if answer is None else 200, answer)
        self.reply(status, json.dumps(answer).encode())


class FakeVLLM(LoopbackServer):
    """The server, what was posted to it, and what it answers: a body by path, or a status with a body."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(Handler, port)
        self.posted: list[tuple[str, Any]] = []
        self.files: list[str] = []
        self.silent: set[str] = set()
        choice = {"token_ids": [5, 6], "logprobs": {"token_logprobs": [-0.5, -1.0]}}
        self.answers: dict[str, Any] = {
            "/v1/models": {"data": [{"id": "base", "max_model_len": 64}]},
            "/version": {"version": "0.30.0"},
            "/weight_info": {"weight_version": "default"},
            "/server_info": {
                "vllm_config": {"model_config": {"logprobs_mode": "processed_logprobs"}, "lora_config": None}
            },
            "/health": {},
            "/reset_prefix_cache": {"success": True},
            "/v1/completions": {"choices": [choice]},
        }

    @property
    def requests(self) -> list[Any]:
        """What was to be completed."""
        return [body for path, body in self.posted if path == "/v1/completions"]


@contextmanager
def running(count: int = 1) -> Iterator[list[FakeVLLM]]:
    servers = [FakeVLLM() for _ in range(count)]
    for server in servers:
        server.start()
    try:
        yield servers
    finally:
        for server in servers:
            server.kill()
