"""A backend for tests: answers as it is told, or makes a text out of its inputs, and notes every call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agentgym_flow.envs.canvas.operators import OPERATORS
from agentgym_flow.envs.canvas.operators.calls import Input, OpCall, OpResult, Value

Answer = Value | OpResult | Callable[[OpCall], Value | OpResult]


def made_of(value: Input) -> str:
    """Return an input as short text: what was made of what."""
    if isinstance(value, Value):
        return value.text
    if isinstance(value, tuple):
        return "[" + ",".join(made_of(item) for item in value) + "]"
    return value or "-"


class RecordingBackend:
    """Without other orders: the text names the operator, its instruction, and its inputs except the problem."""

    def __init__(self, answers: Mapping[str, Answer] | None = None) -> None:
        self.answers = dict(answers or {})
        self.calls: list[OpCall] = []

    def run(self, call: OpCall) -> OpResult:
        self.calls.append(call)
        answer = self.answers.get(call.operator, _default)
        result = answer(call) if callable(answer) else answer
        return result if isinstance(result, OpResult) else OpResult("ok", result)

    @property
    def operators(self) -> list[str]:
        return [call.operator for call in self.calls]

    def inputs(self, operator: str) -> dict[str, Any]:
        """Return the inputs of the last call of an operator."""
        return dict(next(call for call in reversed(self.calls) if call.operator == operator).inputs)


def _default(call: OpCall) -> Value:
    spec = OPERATORS[call.operator]
    read = [made_of(value) for name, value in call.inputs.items() if name in ("previous", "solution", "candidates")]
    value = Value(text=f"{call.operator}{call.instruction and ':' + call.instruction}({','.join(read)})")
    if "passed" in spec.outputs:
        return Value(passed=True, notes="fine")
    if "items" in spec.outputs:
        value = replace(value, items=("a", "b", "c"))
    return replace(value, code="code") if "code" in spec.outputs else value
