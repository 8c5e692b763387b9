"""A server of the OpenAI protocol whose answers are written down before: the n-th one of a model in a dialogue."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(models: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Serve `models`, name -> its answers, the last of which it repeats; yield the base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            said = sum(message["role"] == "assistant" for message in body["messages"])
            answers = models[body["model"]]
            message = {"role": "assistant", "content": answers[min(said, len(answers) - 1)]}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
            answer = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
            content = json.dumps({**answer, "choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
