"""The correctness of a workflow's result, in [0, 1]: one function for all problems."""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_flow.envs.canvas.data.problem import Problem
from agentgym_flow.envs.canvas.scoring.choices import right_choice
from agentgym_flow.envs.canvas.scoring.equivalence import equivalent
from agentgym_flow.envs.canvas.scoring.extract import extract_answer
from agentgym_flow.envs.canvas.scoring.programs import RunTests, passes
from agentgym_flow.envs.canvas.scoring.questions import score_question
from agentgym_flow.errors import BadSetting


@dataclass(frozen=True, slots=True)
class Correctness:
    """What an answer is worth.

    Attributes:
        score: in [0, 1]. Mathematics, a choice and code: 0 or 1. A question: F1.
        exact: 1.0 when it is right without reserve, else 0.0: exact match of a question, and the score of all others.
        how: what decided: `choice`, `f1`, `tests`, `no tests`, or for mathematics how the answer was found in the text
            (see `extract.Extracted`).
    """

    score: float
    exact: float
    how: str


def correctness(problem: Problem, text: str, run_tests: RunTests | None = None, *, compat: bool = False) -> Correctness:
    """Return what a text is worth as the answer to a problem.

    Args:
        problem: what was asked.
        text: the result of a workflow; any string, of any length. It never raises.
        run_tests: runs a program against tests; needed for code.
        compat: as published, for comparisons: see `equivalence.equivalent` and `questions.score_question`.

    Raises:
        BadSetting: a problem with tests, and nothing to run them.
        MissingExtra: the right answer is a formula with symbols, and SymPy is not installed.
    """
    if problem.kind == "qa":
        found = score_question(text, problem.answers, compat=compat)
        return Correctness(found.credited, found.exact, "f1")
    if problem.kind == "code":
        if not problem.hidden_tests:
            return Correctness(0.0, 0.0, "no tests")
        if run_tests is None:
            raise BadSetting(f"run_tests must be given: {problem.source} {problem.id} is scored by running its tests.")
        passed = float(passes(problem, text, run_tests))
        return Correctness(passed, passed, "tests")
    if problem.options:
        right = float(any(right_choice(text, problem.options, letter) for letter in problem.answers))
        return Correctness(right, right, "choice")
    extracted = extract_answer(text)
    right = float(any(equivalent(extracted.text, answer, compat=compat) for answer in problem.answers))
    return Correctness(right, right, extracted.how)
