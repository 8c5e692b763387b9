"""What VLLMServers asks of a server of vLLM, answered by rote; tests/with_vllm asks real ones."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FakeVLLM

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.reply(path, self.server.answers.get(path))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
        with self.server.lock:
            self.server.posted.append((self.path, body))
            if self.path == "/collective_rpc":
                self.server.files = sorted(file.name for file in Path(body["kwargs"]["weights_path"]).iterdir())
            if self.path == "/update_weight_version":
                self.server.answers["/weight_info"] = {"weight_version": body["new_version"]}
        self.reply(self.path, self.server.answers.get(self.path, {}))

    def reply(self, path: str, answer: Any) -> None:
        if path in self.server.silent:
            self.server.closing.wait(20)
            return
        status, answer = answer if isinstance(answer, tuple) else (404 if answer is None else 200, answer)
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        with suppress(OSError):  # a client that gave up
            self.wfile.write(text)

    def log_message(self, *words: Any) -> None:
        pass


class FakeVLLM(ThreadingHTTPServer):
    """The server, what was posted to it, and what it answers: a body by path, or a status with a body."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.posted: list[tuple[str, Any]] = []
        self.files: list[str] = []
        self.silent: set[str] = set()
        self.connections: list[socket.socket] = []
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

    def get_request(self) -> tuple[socket.socket, Any]:
        request, address = super().get_request()
        self.connections.append(request)
        return request, address

    def handle_error(self, *words: Any) -> None:
        pass

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def kill(self) -> None:
        """Stop listening and hang up, as when the process is gone."""
        self.closing.set()
        self.shutdown()
        self.server_close()
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def running(count: int = 1) -> Iterator[list[FakeVLLM]]:
    servers = [FakeVLLM() for _ in range(count)]
    for server in servers:
        server.start()
    try:
        yield servers
    finally:
        for server in servers:
            if not server.closing.is_set():
                server.kill()
