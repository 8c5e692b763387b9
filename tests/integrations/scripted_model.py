"""A server of the OpenAI protocol whose answers are written down before: the n-th one of a model in a dialogue."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from fault_server import LoopbackHandler, LoopbackServer


@contextmanager
def serving(models: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Serve `models`, name -> its answers, the last of which it repeats; yield the base URL."""

    class Scripted(LoopbackHandler):
        def respond(self) -> None:
            body = self.body()
            said = sum(message["role"] == "assistant" for message in body["messages"])
            answers = models[body["model"]]
            message = {"role": "assistant", "content": answers[min(said, len(answers) - 1)]}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
            answer = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
            content = json.dumps({**answer, "choices": [choice], "usage": usage}).encode()
            self.reply(200, content, Content_Type="application/json")

    server = LoopbackServer(Scripted)
    server.start()
    try:
        yield f"{server.url}/v1"
    finally:
        server.kill()
