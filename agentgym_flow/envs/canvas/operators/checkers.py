"""The standard checkers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from agentgym_flow.envs.canvas.operators import replies
from agentgym_flow.envs.canvas.operators.base import Checker
from agentgym_flow.envs.canvas.operators.calls import Input, Value
from agentgym_flow.envs.canvas.operators.model import PROGRAM_FORM, Execution, Model, given_back, said
from agentgym_flow.envs.canvas.operators.odds import CheckerOdds, chances
from agentgym_flow.envs.canvas.operators.replies import OperatorFailed


class Test(Checker):
    """Runs the public tests, and has the model repair a program that fails."""

    name = "Test"
    inputs = ("problem", "entry_point", "tests", "solution")
    summary = "runs the public tests on the code"
    instruction = "Run the public tests on the code. If one fails, say which and why, and repair the code."
    form = PROGRAM_FORM
    meets = frozenset({"checker", "tests", "code"})
    odds = CheckerOdds({}, runs_tests=True)

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return the verdict of the tests, with the repaired program if there is one."""
        solution, function = inputs["solution"], str(inputs["entry_point"])
        tests = cast("tuple[str, ...]", inputs["tests"])
        if not tests:
            raise OperatorFailed("there are no public tests to run")
        if not isinstance(solution, Value):
            raise OperatorFailed("there is no single solution to test")
        code = solution.code or _found(solution.text, function)
        if not code:
            raise OperatorFailed("the solution holds no program to test")
        ran = model.run_code(Execution(code, function, tests))
        if ran.status == "ok":
            return Value(passed=True, notes="Every public test passed.")
        first, conversation = ran, model.messages()
        conversation[-1] = said("user", f"{conversation[-1]['content']}\n\n## What the tests found\n{ran.problem}")
        for _ in range(model.repairs):
            if ran.status == "error":
                break
            reply = model.ask(conversation)
            code = _found(reply, function)
            if not code:
                break  # the verdict stays as it is
            ran = model.run_code(Execution(code, function, tests))
            if ran.status == "ok":
                notes = f"Repaired; every public test passes now. Before: {first.problem}"
                return Value(code=code, passed=True, notes=notes, data=solution.data)
            conversation = given_back(conversation, reply, ran.problem)
        if ran.status == "error":
            raise OperatorFailed(f"the tests could not be run: {ran.problem}")
        return Value(passed=False, notes=first.problem)


class Review(Checker):
    """Reads the solution."""

    name = "Review"
    summary = "reads the solution critically and says what is wrong with it"
    instruction = "Read the solution critically. Say whether it answers the problem, and name each fault you find."
    odds = CheckerOdds(
        chances(
            slip=0.1, nuance=0.25, trap=0.94, omission=0.3, part=0.1, wobble=0.08, edge=0.1, corner=0.94, hop=0.3,
            distraction=0.1,
        ),
        demands=chances(convention=0.95),
    )  # fmt: skip


class Verify(Checker):
    """Solves the problem again."""

    name = "Verify"
    summary = "solves the problem again by itself and compares"
    instruction = "Solve the problem again on your own, compare with the solution, and say whether they agree."
    odds = CheckerOdds(
        chances(
            slip=0.72, nuance=0.1, trap=0.1, omission=0.3, part=0.1, wobble=0.08, edge=0.3, corner=0.08, hop=0.3,
            distraction=0.94,
        ),
        demands=chances(belief=0.95),
    )  # fmt: skip


def _found(text: str, function: str) -> str:
    """Return the program in a text, or an empty text."""
    try:
        return replies.program(text, function)
    except OperatorFailed:
        return ""
