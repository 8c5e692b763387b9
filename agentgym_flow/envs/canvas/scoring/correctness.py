"""The correctness of a workflow's result, in [0, 1]: one function for all problems."""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_flow.envs.canvas.scoring import mathematics
from agentgym_flow.envs.canvas.scoring.choices import right_choice
from agentgym_flow.envs.canvas.scoring.number import NUMBER, same_number
from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.scoring.programs import RunTests, passes
from agentgym_flow.envs.canvas.scoring.questions import score_question
from agentgym_flow.errors import BadSetting

GENERATED = "arithmetic"
"""The source of the generated word problems: their answers are plain numbers, and need no extra."""


@dataclass(frozen=True, slots=True)
class Correctness:
    """What an answer is worth.

    Attributes:
        score: in [0, 1]. Mathematics, a choice and code: 0 or 1. A question: F1.
        exact: 1.0 when it is right without reserve, else 0.0: exact match of a question, and the score of all others.
    """

    score: float
    exact: float


def correctness(problem: Problem, text: str, run_tests: RunTests | None = None, *, compat: bool = False) -> Correctness:
    """Return what a text is worth as the answer to a problem.

    Args:
        problem: what was asked.
        text: the result of a workflow; any string, of any length. It never raises.
        run_tests: runs a program against tests; needed for code.
        compat: as published, for comparisons: see `questions.score_question`.

    Raises:
        BadSetting: a problem with tests, and nothing to run them.
        MissingExtra: Math-Verify is needed (see `scorer_of`) and not installed.
    """
    if problem.kind == "qa":
        found = score_question(text, problem.answers, compat=compat)
        return Correctness(found.credited, found.exact)
    if problem.kind == "code":
        if problem.hidden_tests and run_tests is None:
            raise BadSetting(f"run_tests must be given: {problem.source} {problem.id} is scored by running its tests.")
        right = run_tests is not None and passes(problem, text, run_tests)
    elif problem.options:
        right = any(right_choice(text, problem.options, letter) for letter in problem.answers)
    elif problem.source == GENERATED:
        right = any(same_number(text, answer) for answer in problem.answers)
    else:
        right = any(mathematics.equal(text, answer) for answer in problem.answers)
    return Correctness(float(right), float(right))


def scorer_of(problem: Problem) -> str:
    """Return what `correctness` decides by, with its version where that is a package of its own.

    `"f1"` (questions), `"tests"` (programs), `"choice"`, `"number"` (generated word problems), or for all other
    mathematics `"math-verify 0.9.0"`.
    """
    if problem.kind == "qa":
        return "f1"
    if problem.kind == "code":
        return "tests"
    if problem.options:
        return "choice"
    return NUMBER if problem.source == GENERATED else mathematics.scorer()
