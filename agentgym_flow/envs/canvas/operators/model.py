"""What operators work with: a model, and a runner of programs.

A request contains the form of the reply, the inputs of the operator, and its instruction. An instruction in the
workflow replaces the operator's own; the form of the reply always stays, because a program parses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias, cast

from agentgym_flow import sandbox
from agentgym_flow.core import Stream
from agentgym_flow.envs.canvas.operators import replies
from agentgym_flow.envs.canvas.operators.calls import Input, OpCall, Value
from agentgym_flow.envs.canvas.operators.registry import OPERATORS
from agentgym_flow.envs.canvas.operators.replies import OperatorFailed
from agentgym_flow.errors import SandboxFailed, SandboxUnavailable


# ---------------------------------------------------------------- programs
class Execution(NamedTuple):
    """A program to run.

    Attributes:
        code: its source text.
        function: the function that is called without arguments, or that tests of the form `check(candidate)` receive.
        tests: source texts, each of which must pass. Without tests and function, the program itself runs.
    """

    code: str
    function: str = ""
    tests: tuple[str, ...] = ()


class ExecutionResult(NamedTuple):
    """The outcome of an execution.

    Attributes:
        status: `"ok"`; `"failed"` if the program is wrong; `"error"` if it could not be executed.
        output: the returned value as text, or the output of the program.
        problem: what went wrong, in one line; empty for `"ok"`.
    """

    status: Literal["ok", "failed", "error"]
    output: str = ""
    problem: str = ""


RunCode: TypeAlias = Callable[[Execution], ExecutionResult]
"""Runs untrusted programs. Called from several threads at once."""


def in_sandbox(order: Execution) -> ExecutionResult:
    """Run a program in this process's sandbox, with its usual limits, and only if its level is `strong`."""
    try:
        if order.tests:
            return _tested(order)
        return _called(order) if order.function else _ran(order)
    except (SandboxUnavailable, SandboxFailed) as error:
        return ExecutionResult("error", problem=str(error))


def _tested(order: Execution) -> ExecutionResult:
    found = sandbox.check(order.code, "\n".join(order.tests), order.function or None)
    if found.passed:
        return ExecutionResult("ok")
    return ExecutionResult("error" if found.outcome == "unsupported" else "failed", problem=found.message)


def _called(order: Execution) -> ExecutionResult:
    found = sandbox.call(order.code, order.function)
    if not found.returned:
        return ExecutionResult("failed", problem=found.message)
    if found.value is None:
        return ExecutionResult("failed", problem=f"{order.function}() returned None")
    return ExecutionResult("ok", output=str(found.value))


def _ran(order: Execution) -> ExecutionResult:
    found = sandbox.run(order.code)
    if found.ok:
        return ExecutionResult("ok", output=found.stdout)
    last = found.stderr.rstrip().rpartition("\n")[2]
    return ExecutionResult("failed", problem=last or f"the program was ended: {found.status}")


# ---------------------------------------------------------------- the model
Messages = list[dict[str, str]]
"""A conversation; the model replies to the last message."""

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
"""The headings of inputs, in the order in which they are shown."""


class Model:
    """The model during one call of an operator.

    Args:
        call: the call.
        reply: returns the model's non-empty reply to a conversation, without thoughts, or raises `OperatorFailed`.
        run_code: returns the outcome of a program.
        repairs: the maximum number of attempts to repair a program that fails.
    """

    def __init__(self, call: OpCall, reply: Callable[[Messages], str], run_code: RunCode, repairs: int) -> None:
        self.call = call
        self.repairs = repairs
        self._reply = reply
        self.run_code = run_code

    def messages(self, *, form: str = "", **inputs: Input) -> Messages:
        """Return the request for this call.

        Args:
            form: the form of the reply; empty for the operator's own.
            inputs: replacements for inputs of the call.
        """
        return messages(self.call, form=form, **inputs)

    def ask(self, conversation: Messages | None = None, *, form: str = "", **inputs: Input) -> str:
        """Return the reply to a conversation, by default `messages`. Raises `OperatorFailed` if there is none."""
        return self._reply(self.messages(form=form, **inputs) if conversation is None else conversation)

    def chance(self, name: str) -> Stream:
        """Return a stream of random numbers for this call, the same for equal calls."""
        return Stream(name, self.call.seed, self.call.digest)


def messages(call: OpCall, *, form: str = "", **changed: Input) -> Messages:
    """Return the request for a call, see `Model.messages`."""
    operator = OPERATORS[call.operator]
    inputs: Mapping[str, Input] = {**call.inputs, **changed}
    if inputs.get("previous") == inputs.get("plan"):
        inputs = {**inputs, "previous": None}  # Plan was the previous step
    parts = [f"## {title}\n{shown}" for name, title in _TITLES.items() if (shown := _shown(inputs.get(name)))]
    parts.append(f"## Instruction\n{call.instruction or operator.instruction}")
    return [said("system", f"{_ROLE}\n\n{form or operator.form}"), said("user", "\n\n".join(parts))]


def written(conversation: Messages, model: Model, function: str, asked_for: str = "") -> Value:
    """Return a working program, with the result of `function`; without a function it only has to load.

    Raises `OperatorFailed` if there is none after all repairs.
    """
    code, ran = "", ExecutionResult("failed")
    for _ in range(model.repairs + 1):
        reply = model.ask(conversation)
        code = replies.program(reply, asked_for or function)
        # Evaluating the name of the function shows whether it is defined.
        named = f"{code}\n{asked_for}\n" if asked_for.isidentifier() else code
        ran = model.run_code(Execution(named, function))
        if ran.status != "failed":
            break
        conversation = given_back(conversation, reply, ran.problem)
    if ran.status != "ok":
        raise OperatorFailed(f"the program does not run: {ran.problem}")
    return Value(text=ran.output if function else "", code=code, data={"function": function})


def given_back(conversation: Messages, reply: str, problem: str) -> Messages:
    """Return the conversation with a request to repair the program."""
    request = f"That program failed:\n{problem}\n\nGive the whole program again, repaired."
    return [*conversation, said("assistant", reply), said("user", request)]


def solutions(given: Input) -> tuple[Value, ...]:
    """Return the solutions that an operator works on as a tuple. Raises `OperatorFailed` if there are none."""
    found = (given,) if isinstance(given, Value) else cast("tuple[Value, ...]", given or ())
    if not found:
        raise OperatorFailed("there is no solution to work on")
    return found


def said(role: str, text: str) -> dict[str, str]:
    """Return a message. Lone surrogates, which requests cannot contain, become question marks."""
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
