"""What operators work with: calls and their results, which backends execute, and a model with its replies.

A request contains the form of the reply, the inputs of the operator, and its instruction. An instruction in the
workflow replaces the operator's own; the form of the reply always stays, because a program parses it. An invalid reply
is a failure, never a pass or an empty result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from agentgym_flow import sandbox
from agentgym_flow.core import AnswerStore, Stream, stable_hash
from agentgym_flow.errors import SandboxFailed, SandboxUnavailable
from agentgym_flow.prompts import thoughts


@dataclass(frozen=True)
class WorkflowProblem:
    """The input of a workflow.

    Attributes:
        task_id: identifies the task for the backend.
        text: the problem in words.
        entry_point: the name of the function to write; empty if there is none.
        tests: the public tests. There is no field for hidden ones, so no operator can see them.
    """

    task_id: str
    text: str
    entry_point: str = ""
    tests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Value:
    """The output of an operator.

    Attributes:
        text: the plan, the solution or the answer. For a program, its output.
        code: the program, if there is one.
        items: the steps of a plan, or the sub-problems.
        passed: the verdict of a checker; None for other operators.
        notes: the findings of a checker.
        data: further data of the backend, which it finds again in the inputs of later calls; JSON-able and never
            modified. Nothing else reads it.
    """

    text: str = ""
    code: str = ""
    items: tuple[str, ...] = ()
    passed: bool | None = None
    notes: str = ""
    data: Any = None

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """A hashable key, equal for equal values."""
        data = "" if self.data is None else stable_hash(self.data)
        return self.text, self.code, self.items, self.passed, self.notes, data


Input: TypeAlias = str | tuple[str, ...] | Value | tuple[Value, ...] | None
"""An input of an operator; `operators.INPUTS` has the type of each."""


@dataclass(frozen=True)
class OpCall:
    """A call of one operator: everything that its result may depend on.

    Attributes:
        operator: its name.
        task_id: identifies the task.
        place: the id of its node in the workflow.
        attempt: the number of earlier calls of this node in this run; above 0 only in loops.
        inputs: its inputs by name.
        instruction: its instruction in the workflow; empty for the default one.
        seed: the seed of randomness.
    """

    operator: str
    task_id: str
    place: str
    attempt: int
    inputs: Mapping[str, Input]
    instruction: str
    seed: int

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """A hashable key, equal for equal calls, the instruction included."""
        inputs = tuple([(name, _identity(value)) for name, value in self.inputs.items()])
        return self.operator, self.task_id, self.place, self.attempt, self.instruction, self.seed, inputs

    @cached_property
    def digest(self) -> str:
        """A digest of 64 hex digits, equal for equal calls in every process."""
        return stable_hash(self.identity)


def _identity(value: Input) -> Any:
    """Return a hashable key of an input; a value differs from a tuple of one value."""
    if isinstance(value, Value):
        return value.identity
    if isinstance(value, tuple):
        return tuple([(item.identity,) if isinstance(item, Value) else item for item in value])
    return value


@dataclass(frozen=True)
class OpResult:
    """The result of a call.

    Attributes:
        status: whether the call succeeded.
        value: the output; None unless `status` is `"ok"`.
        text: for an error or a timeout, a description in our words; otherwise free for the backend, such as the raw
            reply of a model.
        tokens: the number of tokens read and written.
        cost: the cost in the backend's currency.
        latency: the duration in seconds; 0 for simulated backends.
    """

    status: Literal["ok", "error", "timeout"]
    value: Value | None = None
    text: str = ""
    tokens: int = 0
    cost: float = 0.0
    latency: float = 0.0


@runtime_checkable
class KeepsAnswers(Protocol):
    """A backend that uses a server and can reuse stored answers."""

    def keep_answers(self, store: AnswerStore | None) -> None:
        """Take answers from `store` if it has them, and add every new one to it; None to stop."""


class Backend(Protocol):
    """Executes operators."""

    def run(self, call: OpCall) -> OpResult:
        """Return the result of a call; failures of the operator are results, not exceptions.

        The interpreter may call it from several threads at once. Runs are reproducible only if the result depends on
        the call alone.
        """


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
            tested = sandbox.check(order.code, "\n".join(order.tests), order.function or None)
            status: Literal["error", "failed"] = "error" if tested.outcome == "unsupported" else "failed"
            return ExecutionResult("ok") if tested.passed else ExecutionResult(status, problem=tested.message)
        if order.function:
            called = sandbox.call(order.code, order.function)
            if not called.returned:
                return ExecutionResult("failed", problem=called.message)
            if called.value is None:
                return ExecutionResult("failed", problem=f"{order.function}() returned None")
            return ExecutionResult("ok", output=str(called.value))
        ran = sandbox.run(order.code)
        if ran.ok:
            return ExecutionResult("ok", output=ran.stdout)
        last = ran.stderr.rstrip().rpartition("\n")[2]
        return ExecutionResult("failed", problem=last or f"the program was ended: {ran.status}")
    except (SandboxUnavailable, SandboxFailed) as error:
        return ExecutionResult("error", problem=str(error))


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
        instruction: the instruction if the call has none, see `Operator`.
        form: the form of the reply, see `Operator`.
    """

    def __init__(
        self,
        call: OpCall,
        reply: Callable[[Messages], str],
        run_code: RunCode,
        repairs: int,
        *,
        instruction: str,
        form: str,
    ) -> None:
        self.call = call
        self.repairs = repairs
        self.run_code = run_code
        self._reply = reply
        self._instruction = call.instruction or instruction
        self._form = form

    def messages(self, *, form: str = "", **inputs: Input) -> Messages:
        """Return the request for this call.

        Args:
            form: the form of the reply; empty for the operator's own.
            inputs: replacements for inputs of the call.
        """
        given: Mapping[str, Input] = {**self.call.inputs, **inputs}
        if given.get("previous") == given.get("plan"):
            given = {**given, "previous": None}  # Plan was the previous step
        parts = [f"## {title}\n{text}" for name, title in _TITLES.items() if (text := _shown(given.get(name)))]
        parts.append(f"## Instruction\n{self._instruction}")
        return [message("system", f"{_ROLE}\n\n{form or self._form}"), message("user", "\n\n".join(parts))]

    def ask(self, conversation: Messages | None = None, *, form: str = "", **inputs: Input) -> str:
        """Return the reply to a conversation, by default `messages`. Raises `OperatorFailed` if there is none."""
        return self._reply(self.messages(form=form, **inputs) if conversation is None else conversation)

    def chance(self, name: str) -> Stream:
        """Return a stream of random numbers for this call, the same for equal calls."""
        return Stream(name, self.call.seed, self.call.digest)


def written(conversation: Messages, model: Model, function: str, asked_for: str = "") -> Value:
    """Return a working program, with the result of `function`; without a function it only has to load.

    Raises `OperatorFailed` if there is none after all repairs.
    """
    code, ran = "", ExecutionResult("failed")
    for _ in range(model.repairs + 1):
        reply = model.ask(conversation)
        code = read_program(reply, asked_for or function)
        # Evaluating the name of the function shows whether it is defined.
        named = f"{code}\n{asked_for}\n" if asked_for.isidentifier() else code
        ran = model.run_code(Execution(named, function))
        if ran.status != "failed":
            break
        conversation = repair_request(conversation, reply, ran.problem)
    if ran.status != "ok":
        raise OperatorFailed(f"the program does not run: {ran.problem}")
    return Value(text=ran.output if function else "", code=code, data={"function": function})


def repair_request(conversation: Messages, reply: str, problem: str) -> Messages:
    """Return the conversation with a request to repair the program."""
    request = f"That program failed:\n{problem}\n\nGive the whole program again, repaired."
    return [*conversation, message("assistant", reply), message("user", request)]


def solutions(given: Input) -> tuple[Value, ...]:
    """Return the solutions that an operator works on as a tuple. Raises `OperatorFailed` if there are none."""
    found = (given,) if isinstance(given, Value) else cast("tuple[Value, ...]", given or ())
    if not found:
        raise OperatorFailed("there is no solution to work on")
    return found


def message(role: str, text: str) -> dict[str, str]:
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


# ---------------------------------------------------------------- replies
T = TypeVar("T")


class OperatorFailed(Exception):
    """An operator failed; the message gives the reason in our words.

    Attributes:
        status: the status of the result.
    """

    def __init__(self, text: str, status: Literal["error", "timeout"] = "error") -> None:
        super().__init__(text)
        self.status = status


_FENCED = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_BARE_CODE = re.compile(r"(def|class|import|from|async def)\s+\w|@\w")
_NUMBERED = re.compile(r"[*_#\s]*(?:step\s+)?\d{1,3}[*_]*\s*[.):][*_]*\s+(.*)", re.IGNORECASE)
_BULLET = re.compile(r"\s*[-*•]\s+(.*)")
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)
_AROUND = r"[\s*_`#>]*"
_END = r"[\s*_`.]*"
_VERDICT = re.compile(rf"{_AROUND}verdict{_AROUND}:{_AROUND}(pass|fail)(?:ed|s)?{_END}", re.IGNORECASE)
_CHOICE = re.compile(rf"{_AROUND}choice{_AROUND}:{_AROUND}(\d{{1,6}}){_END}", re.IGNORECASE)


def without_thoughts(reply: str) -> str:
    """Return the stripped text outside of a model's thoughts. Raises `OperatorFailed` if it is empty."""
    text = thoughts.without_thoughts(reply).strip()
    if not text:
        unclosed = thoughts.ends_in_thought(reply)
        raise OperatorFailed("the reply is a thought without an end" if unclosed else "the reply is empty")
    return text


def read_steps(reply: str) -> tuple[str, ...]:
    """Return the entries of a numbered or bulleted list. Raises `OperatorFailed` if there are none."""
    lines = reply.splitlines()
    for entry in (_NUMBERED, _BULLET):
        found: list[list[str]] = []
        for line in lines:
            if match := entry.fullmatch(line):
                found.append([match[1]])
            elif found and line.strip():
                found[-1].append(line.strip())
        entries = tuple(text for parts in found if (text := "\n".join(parts).strip()))
        if entries:
            return entries
    raise OperatorFailed("the reply holds no numbered list")


def read_program(reply: str, function: str = "") -> str:
    """Return the program in a reply: the last code block that defines `function`, else the last code block.

    Raises `OperatorFailed` if there is no code.
    """
    blocks = [text for language, text in _FENCED.findall(reply) if language.lower() in ("", "py", "python", "python3")]
    defining = [text for text in blocks if function and re.search(rf"\bdef\s+{re.escape(function)}\b", text)]
    if not blocks and "```" not in reply and _BARE_CODE.match(reply):
        blocks = [reply]
    code: str = (defining or blocks or [""])[-1].strip()
    if not code:
        raise OperatorFailed("the reply holds no block of Python code")
    return code + "\n"


def read_answer(reply: str) -> str:
    """Return the content of the last answer tag. Raises `OperatorFailed` if there is none, or it is empty."""
    found = _ANSWER.findall(reply)
    if not found or not found[-1].strip():
        raise OperatorFailed("the reply holds no <answer>")
    text: str = found[-1]
    return text.strip()


def read_verdict(reply: str) -> tuple[bool, str]:
    """Return whether the verdict is a pass, and the other lines. Raises `OperatorFailed` if it is unclear."""
    found, rest = _agreed(reply, _VERDICT, str.lower, "verdict")
    return found == "pass", rest


def read_choice(reply: str, count: int) -> int:
    """Return the index of the chosen candidate. Raises `OperatorFailed` if there is no valid choice."""
    number, _ = _agreed(reply, _CHOICE, int, "choice")
    if not 1 <= number <= count:
        raise OperatorFailed(f"the reply chooses number {number} of {count} candidates")
    return number - 1


def _agreed(reply: str, form: re.Pattern[str], read: Callable[[str], T], what: str) -> tuple[T, str]:
    """Return the value of the lines that match `form`, if they agree, and the other lines."""
    found: dict[T, None] = {}
    others = []
    for line in reply.splitlines():
        if match := form.fullmatch(line):
            found[read(match[1])] = None
        else:
            others.append(line)
    if len(found) != 1:
        raise OperatorFailed(f"the reply gives {'more than one' if found else 'no'} {what}")
    return next(iter(found)), "\n".join(others).strip()
