"""What an operator does its work with: a model that is asked, and what runs programs.

A request has the form of the reply, what the operator is given, and its instruction. The instruction of the workflow
takes the place of the operator's own, for every operator; the form of the reply stays, because a program reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from agentgym_flow.envs.canvas.operators.calls import Input, OpCall, Value
from agentgym_flow.envs.canvas.operators.programs import Executed, Execution, RunCode
from agentgym_flow.envs.canvas.operators.registry import OPERATORS
from agentgym_flow.envs.canvas.operators.replies import Failed
from agentgym_flow.seeding import Stream

Messages = list[dict[str, str]]
"""A conversation: the last message is the one to reply to."""

_ROLE = (
    "You do one step of a workflow that solves a problem. Follow the instruction, and use what you are given. "
    "A program reads your reply, so keep to its form."
)

PROGRAM_FORM = "Give one whole Python program, in a single block that begins with ```python and ends with ```."
"""The form of a reply that is a program."""

_TITLES = {
    "problem": "Problem",
    "entry_point": "Name of the function that is asked for",
    "tests": "Public tests",
    "plan": "Plan",
    "pieces": "Sub-problems",
    "previous": "What the step before made",
    "solution": "Solution",
    "candidates": "Candidates",
    "notes": "What the checker found",
}
"""The heading of each input, in the order in which they are shown."""


class Model:
    """A model at work on one call of an operator.

    Args:
        call: the call.
        reply: returns the model's reply to a conversation, without thoughts and not empty, or raises `Failed`.
        run_code: runs a program.
        repairs: how often a program that fails is given back to be repaired.
    """

    def __init__(self, call: OpCall, reply: Callable[[Messages], str], run_code: RunCode, repairs: int) -> None:
        self.call = call
        self.repairs = repairs
        self._reply = reply
        self._run_code = run_code

    def messages(self, *, form: str = "", **inputs: Input) -> Messages:
        """Return what the model is asked for this call.

        Args:
            form: the form of the reply, if it is not the operator's own.
            inputs: shown in place of the inputs of the same names.
        """
        return messages(self.call, form=form, **inputs)

    def ask(self, conversation: Messages | None = None, *, form: str = "", **inputs: Input) -> str:
        """Return the reply to a conversation; None: to what `messages` says. Raises `Failed` when there is none."""
        return self._reply(self.messages(form=form, **inputs) if conversation is None else conversation)

    def run_code(self, order: Execution) -> Executed:
        """Return what came of a program."""
        return self._run_code(order)

    def chance(self, name: str) -> Stream:
        """Return a stream of random numbers of this call: the same for equal calls."""
        return Stream(name, self.call.seed, self.call.digest)


def messages(call: OpCall, *, form: str = "", **changed: Input) -> Messages:
    """Return what a model is asked for a call, see `Model.messages`."""
    operator = OPERATORS[call.operator]
    inputs: Mapping[str, Input] = {**call.inputs, **changed}
    if inputs.get("previous") == inputs.get("plan"):
        inputs = {**inputs, "previous": None}  # Plan was the step before
    parts = [f"## {title}\n{shown}" for name, title in _TITLES.items() if (shown := _shown(inputs.get(name)))]
    parts.append(f"## Instruction\n{call.instruction or operator.instruction}")
    return [said("system", f"{_ROLE}\n\n{form or operator.form}"), said("user", "\n\n".join(parts))]


def solutions(given: Input) -> tuple[Value, ...]:
    """Return the solutions that an operator works on, one by one. Raises `Failed` when there are none."""
    found = (given,) if isinstance(given, Value) else cast("tuple[Value, ...]", given or ())
    if not found:
        raise Failed("there is no solution to work on")
    return found


def said(role: str, text: str) -> dict[str, str]:
    """Return a message. Halves of surrogate pairs, which no request can hold, become question marks."""
    return {"role": role, "content": text.encode("utf-8", "replace").decode("utf-8")}


def _shown(given: Input) -> str:
    if given is None:
        return ""
    if isinstance(given, str):
        return given
    if isinstance(given, Value):
        return _value(given)
    numbered = (_value(item) if isinstance(item, Value) else item for item in given)
    return "\n".join(f"{number}. {text}" for number, text in enumerate(numbered, 1))


def _value(value: Value) -> str:
    verdict = {True: "The solution passes.", False: "The solution fails.", None: ""}[value.passed]
    code = f"```python\n{value.code.rstrip()}\n```" if value.code else ""
    text = f"Its output:\n{value.text}" if value.code and value.text else value.text
    return "\n".join(part for part in (code, text, verdict, value.notes) if part)
