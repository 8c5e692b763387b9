"""What the tests of the backends share: calls of every operator, and a server of chat completions that does as told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fault_server import FaultServer, Handler, Step, faults

from agentgym_flow.envs.canvas.backends.openai_compatible import OpenAIBackend
from agentgym_flow.envs.canvas.operators import OPERATORS
from agentgym_flow.envs.canvas.operators.calls import Input, OpCall, Value

GIVEN: dict[str, Input] = {
    "problem": "How many apples are left?",
    "entry_point": "",
    "tests": (),
    "plan": None,
    "pieces": (),
    "previous": None,
    "solution": Value(text="four apples"),
    "candidates": (Value(text="four"), Value(text="five"), Value(text="six")),
    "notes": None,
}


def call_of(operator: str, instruction: str = "", *, place: str = "1", seed: int = 0, **inputs: Input) -> OpCall:
    given = {name: {**GIVEN, **inputs}[name] for name in OPERATORS[operator].inputs}
    return OpCall(operator, "task", place, 0, given, instruction, seed)


CUSTOM = call_of("Custom")


def completion(text: str | None, *, ended: str = "stop", read: int = 10, written: int = 5) -> bytes:
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    choices = [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": ended}]
    return json.dumps({"object": "chat.completion", "choices": choices, "usage": usage}).encode()


def says(text: str | None, **more: Any) -> Step:
    return lambda handler: handler.reply(200, completion(text, **more), Content_Type="application/json")


class _Script:
    """Steps in their order, then one of them for ever."""

    def __init__(self, steps: list[Step], default: Step) -> None:
        self.steps, self.default = steps, default

    def pop(self, _: int) -> Step:
        return self.steps.pop(0) if self.steps else self.default


@contextmanager
def chat_server(*script: Step, default: Step | None = None, port: int = 0) -> Iterator[FaultServer]:
    with faults(port=port) as server:
        server.script = _Script(list(script), default or says("four"))  # type: ignore[assignment]
        yield server


def backend_at(server: FaultServer, **settings: Any) -> OpenAIBackend:
    quick = {"timeout": 5.0, "deadline": 20.0, "backoff": 0.01, "retries": 2}
    return OpenAIBackend("tiny", f"{server.url}/v1", **{**quick, **settings})


__all__ = ["CUSTOM", "Handler", "backend_at", "call_of", "chat_server", "completion", "says"]
