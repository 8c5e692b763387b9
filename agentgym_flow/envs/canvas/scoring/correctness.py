"""The correctness of results, in [0, 1]: one function for all problems."""

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
"""The source of generated word problems, whose answers are plain numbers and need no extra package."""


@dataclass(frozen=True, slots=True)
class Correctness:
    """The correctness of an answer.

    Attributes:
        score: in [0, 1]; 0 or 1 for mathematics, multiple choice and code, the F1 for questions.
        exact: the exact match for questions, 0 or 1; otherwise the score.
    """

    score: float
    exact: float


def correctness(
    problem: Problem, text: str, run_tests: RunTests | None = None, *, reproduce_official: bool = False
) -> Correctness:
    """Return the correctness of a text as the answer to a problem.

    Args:
        problem: the problem.
        text: the result of a workflow; any string of any length.
        run_tests: runs a program against tests; required for code.
        reproduce_official: score as published, for comparisons; see `questions.score_question`.

    Raises:
        BadSetting: the problem has tests but `run_tests` is None.
        MissingExtra: Math-Verify is needed (see `scorer_of`) and not installed.
    """
    if problem.kind == "qa":
        found = score_question(text, problem.answers, reproduce_official=reproduce_official)
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
    """Return the name of the scorer that `correctness` uses.

    It is `"f1"` for questions, `"tests"` for programs, `"choice"`, `"number"` for generated word problems, or for other
    mathematics the package with its version, `"math-verify 0.9.0"`.
    """
    if problem.kind == "qa":
        return "f1"
    if problem.kind == "code":
        return "tests"
    if problem.options:
        return "choice"
    return NUMBER if problem.source == GENERATED else mathematics.scorer()
