"""How operators have programs run: the form of an order and of its outcome, and the sandbox that takes such orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from agentgym_flow import sandbox
from agentgym_flow.errors import SandboxFailed, SandboxUnavailable


class Execution(NamedTuple):
    """A program to run.

    Attributes:
        code: its source text.
        function: called without arguments, if it is named and there are no tests; what tests of the form
            `check(candidate)` get, if there are some.
        tests: source texts, each of which has to pass. Without tests and function the program itself is run.
    """

    code: str
    function: str = ""
    tests: tuple[str, ...] = ()


class Executed(NamedTuple):
    """What came of it.

    Attributes:
        status: `"ok"`; `"failed"`: the program is at fault; `"error"`: nothing is known about it.
        output: what the function returned, as text, or what the program printed.
        problem: what went wrong, in a line; empty for `"ok"`.
    """

    status: Literal["ok", "failed", "error"]
    output: str = ""
    problem: str = ""


RunCode: TypeAlias = Callable[[Execution], Executed]
"""Runs programs that nobody has read. Called from several threads at once."""


def in_sandbox(order: Execution) -> Executed:
    """Run a program in this process's sandbox, with its usual limits, and only where that is `strong`."""
    try:
        if order.tests:
            return _tested(order)
        return _called(order) if order.function else _ran(order)
    except (SandboxUnavailable, SandboxFailed) as error:
        return Executed("error", problem=str(error))


def _tested(order: Execution) -> Executed:
    found = sandbox.check(order.code, "\n".join(order.tests), order.function or None)
    if found.passed:
        return Executed("ok")
    return Executed("error" if found.outcome == "unsupported" else "failed", problem=found.message)


def _called(order: Execution) -> Executed:
    found = sandbox.call(order.code, order.function)
    if not found.returned:
        return Executed("failed", problem=found.message)
    if found.value is None:
        return Executed("failed", problem=f"{order.function}() returned None")
    return Executed("ok", output=str(found.value))


def _ran(order: Execution) -> Executed:
    found = sandbox.run(order.code)
    if found.ok:
        return Executed("ok", output=found.stdout)
    last = found.stderr.rstrip().rpartition("\n")[2]
    return Executed("failed", problem=last or f"the program was ended: {found.status}")
