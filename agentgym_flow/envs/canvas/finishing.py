"""What a workflow must have before it can be handed in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentgym_flow.core import check_integer
from agentgym_flow.envs.canvas.language import Language
from agentgym_flow.envs.canvas.operators import CHECKERS
from agentgym_flow.envs.canvas.workflow.nodes import Chain, Loop, Operator
from agentgym_flow.envs.canvas.workflow.statistics import Statistics
from agentgym_flow.errors import BadSetting, BadWorkflow

SOLVERS = ("Custom", "Programmer", "AnswerGenerate", "Aggregate", "Revise")
"""Any of these counts as a solver, as published."""

LONG_RESULT = 60
"""A result with more characters is long."""

_EXPLAINS = re.compile(
    r"\b(?:therefore|because|step \d|first,|in conclusion|the answer is|let us|let's)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the rules may also look at.

    Attributes:
        code: whether the task asks for code.
        tests: whether the task has public tests.
        result: what the workflow gave when it ran last; empty when it has not.
    """

    code: bool = False
    tests: bool = False
    result: str = ""


@dataclass(frozen=True, slots=True)
class FinishRules:
    """When `finish` is accepted. The default asks for one operator.

    Attributes:
        least_operators: operators at any depth; at least 1, because there is nothing to hand in without one.
        structure: a parallel, a conditional or a loop is needed.
        solver: one of `SOLVERS` is needed.
        checker: one of Verify, Test and Review is needed.
        test_if_tests: Test is needed when the task has public tests.
        code_if_code: Programmer or Test is needed when the task asks for code.
        format_if_long: Format is needed when the last result is long or explains.

    Raises:
        BadSetting: `least_operators` is not a positive integer.
    """

    least_operators: int = 1
    structure: bool = False
    solver: bool = False
    checker: bool = False
    test_if_tests: bool = False
    code_if_code: bool = False
    format_if_long: bool = False

    def __post_init__(self) -> None:
        check_integer("least_operators", self.least_operators, 1)

    def missing(self, counted: Statistics, circumstances: Circumstances | None = None) -> list[str]:
        """Return what a workflow with these counts still lacks, each as a few words; empty when it can be handed in."""
        about = circumstances or Circumstances()
        lacks = []
        if counted.operators < self.least_operators:
            few = "operator" if self.least_operators == 1 else "operators"
            lacks.append(f"at least {self.least_operators} {few}, it has {counted.operators}")
        without = counted.kinds.keys().isdisjoint
        if self.solver and without(SOLVERS):
            lacks.append(_any_of("a solver", SOLVERS))
        if self.checker and without(CHECKERS):
            lacks.append(_any_of("a checker", CHECKERS))
        if self.test_if_tests and about.tests and without(("Test",)):
            lacks.append("Test, because there are tests")
        if self.code_if_code and about.code and without(("Programmer", "Test")):
            lacks.append("Programmer or Test, because code is asked for")
        if self.format_if_long and without(("Format",)) and is_long(about.result):
            lacks.append("Format, because the result is not a short answer")
        if self.structure and not counted.parallel + counted.conditional + counted.loop:
            lacks.append("a parallel, a conditional or a loop")
        return lacks

    def simplest(self, language: Language) -> Chain:
        """Return a small workflow that can be handed in under any circumstances.

        Raises `BadSetting` when `language` has none: an episode could never be finished.
        """
        names: list[str] = []
        for wanted, needed in (
            (("Test",), self.test_if_tests),
            (("Programmer", "Test"), self.code_if_code),
            (CHECKERS, self.checker),
            (SOLVERS, self.solver),
            (("Format",), self.format_if_long),
        ):
            usable = [name for name in wanted if name in language.operators]
            if needed and not usable:
                raise BadSetting(f"finishing needs one of {', '.join(wanted)}, and the language has none of them")
            if needed and not set(usable) & set(names):
                names.append(usable[0])
        names += language.operators[:1] * (self.least_operators - len(names))
        nodes: Chain = tuple(map(Operator, names))
        if self.structure:
            nodes = (*nodes[:-1], Loop(nodes[-1:], 1))
        try:
            language.check(nodes)
        except BadWorkflow as refusal:
            raise BadSetting(f"no workflow of the language can be finished: {refusal}") from None
        return nodes


PUBLISHED_FINISH = FinishRules(
    least_operators=5,
    structure=True,
    solver=True,
    checker=True,
    test_if_tests=True,
    code_if_code=True,
    format_if_long=True,
)
"""What the published configuration asks for."""


def is_long(result: str) -> bool:
    """Return whether a result is more than a short answer: many characters, several lines, or it explains itself."""
    text = result.strip()
    return len(text) > LONG_RESULT or "\n" in text or _EXPLAINS.search(text) is not None


def _any_of(what: str, names: Sequence[str]) -> str:
    return f"{what} ({', '.join(names)})"
