"""The rules of the workflow language, and the requirements for submitting a workflow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from agentgym_flow.core import check_integer, check_positive
from agentgym_flow.envs.canvas.operators import ADVERTISED, OPERATORS, STANDARD, Need
from agentgym_flow.envs.canvas.workflow import (
    Chain,
    Loop,
    OperatorNode,
    Statistics,
    every,
    statistics,
    unknown_operator,
)
from agentgym_flow.errors import BadSetting, BadWorkflow

SHORTEST_INSTRUCTION = 5
"""The minimum length of an instruction, as in the published environment."""

LONGEST_INSTRUCTION = 4000
"""The maximum length of an instruction."""


@dataclass(frozen=True, slots=True)
class Language:
    """The rules of the workflow language.

    Attributes:
        operators: the usable operators, in the order in which they are shown.
        nesting: whether structures can contain chains and other structures. If not, structures are at the top level and
            contain single operators, as published.
        first_case: the case of a conditional that is written first, in `Verify ? A : B` and in the tag `<true>`.
            `"passed"`: A runs if the solution passes the check, as the published prompt says. `"failed"`: A runs if it
            fails, as in the published code.
        most_operators: the maximum number of operators at any depth.
        most_depth: the maximum number of levels; 1 excludes structures.
        most_calls: the maximum number of calls of one run, with every round of loops counted.

    Raises:
        BadSetting: an operator does not exist, there is none, or a number is not a positive integer.
    """

    operators: tuple[str, ...] = STANDARD
    nesting: bool = True
    first_case: Literal["passed", "failed"] = "passed"
    most_operators: int = 40
    most_depth: int = 4
    most_calls: int = 200

    def __post_init__(self) -> None:
        if not self.operators:
            raise BadSetting("a language needs at least one operator")
        for name in self.operators:
            if name not in OPERATORS:
                raise BadSetting(unknown_operator(str(name), tuple(OPERATORS)))
        if self.first_case not in ("passed", "failed"):
            raise BadSetting(f"first_case is 'passed' or 'failed', got {self.first_case!r:.40}")
        for setting in ("most_operators", "most_depth", "most_calls"):
            check_positive(setting, getattr(self, setting))

    @property
    def known(self) -> tuple[str, ...]:
        """The names that are parsed as operators: all standard ones, and the other usable ones.

        Other registered operators are unknown, so that episodes do not depend on what was imported.
        """
        return _known(self.operators)

    def check(self, nodes: Chain, counted: Statistics | None = None) -> None:
        """Raise `BadWorkflow` if a top-level chain breaks a rule; the message names the rule.

        Args:
            nodes: the chain.
            counted: its statistics; None to compute them.
        """
        for node in every(nodes):
            if isinstance(node, OperatorNode):
                self.check_operator(node)
        counted = counted or statistics(nodes)
        count, levels, calls = counted.operators, counted.depth, counted.most_calls
        if count > self.most_operators:
            raise BadWorkflow(f"a workflow has at most {self.most_operators} operators, this would have {count}")
        if levels > self.most_depth:
            raise BadWorkflow(f"a workflow has at most {self.most_depth} levels, this would have {levels}")
        if calls > self.most_calls:
            raise BadWorkflow(f"a run calls at most {self.most_calls} operators, this could call {calls}")
        if not self.nesting and levels > 1:
            _check_flat(nodes)

    def check_operator(self, operator: OperatorNode) -> None:
        """Raise `BadWorkflow` if the operator is not usable, or its instruction is too short or too long."""
        if operator.name not in self.operators:
            raise BadWorkflow(f"{operator.name} cannot be used here; use one of {', '.join(self.operators)}")
        length = len(operator.instruction)
        if length and not SHORTEST_INSTRUCTION <= length <= LONGEST_INSTRUCTION:
            raise BadWorkflow(
                f"an instruction has {SHORTEST_INSTRUCTION} to {LONGEST_INSTRUCTION} characters, this has {length}"
            )


@lru_cache(maxsize=1 << 8)
def _known(operators: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*STANDARD, *operators)))


PUBLISHED = Language(operators=ADVERTISED, nesting=False, first_case="failed")
"""The published language, with the actual behaviour of its conditionals."""

LANGUAGES: Mapping[str, Language] = {"full": Language(), "published": PUBLISHED}
"""The languages by name: everything, or that of the published environment (twelve operators, no nesting, the first case
of a conditional runs if its check fails)."""


def _check_flat(nodes: Chain) -> None:
    for node in nodes:
        chains: Iterable[Chain] = node.chains
        single = node.kind != "loop"
        for chain in chains:
            if (single and len(chain) > 1) or not all(isinstance(child, OperatorNode) for child in chain):
                raise BadWorkflow("structures do not nest here: inside one there are single operators only")


_SOLVERS_FIRST = ("Custom", "Programmer", "AnswerGenerate", "Aggregate", "Revise")
"""The solvers of the published rule, in its order."""


@lru_cache(maxsize=1 << 10)
def meeting(need: Need, others: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the operators that meet a need, among the standard ones and `others`."""
    found = [name for name in (*STANDARD, *others) if need in OPERATORS[name].meets]
    order = [*_SOLVERS_FIRST, *found]
    return tuple(sorted(found, key=order.index))


LONG_RESULT = 60
"""The length above which a result is long."""

_EXPLAINS = re.compile(
    r"\b(?:therefore|because|step \d|first,|in conclusion|the answer is|let us|let's)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Facts about the task and the last run that rules may use.

    Attributes:
        code: whether the task asks for code.
        tests: whether the task has public tests.
        result: the result of the last run; empty if there is none.
    """

    code: bool = False
    tests: bool = False
    result: str = ""


@dataclass(frozen=True, slots=True)
class FinishRules:
    """The requirements for `finish`. The default requires one operator.

    Attributes:
        least_operators: the minimum number of operators at any depth, at least 1.
        structure: whether a parallel, a conditional or a loop is required.
        solver: whether an operator that meets the need `solver` (`Operator.meets`) is required.
        checker: whether one that meets `checker` is required.
        test_if_tests: whether one that meets `tests` is required if the task has public tests.
        code_if_code: whether one that meets `code` is required if the task asks for code.
        format_if_long: whether one that meets `format` is required if the last result is long or contains explanations.
        others: the usable operators that are not standard, so that they count as well.

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
    others: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_integer("least_operators", self.least_operators, 1)

    def missing(self, counted: Statistics, circumstances: Circumstances | None = None) -> list[str]:
        """Return the unmet requirements of a workflow with these counts, each in a few words."""
        about = circumstances or Circumstances()
        lacks = []
        if counted.operators < self.least_operators:
            few = "operator" if self.least_operators == 1 else "operators"
            lacks.append(f"at least {self.least_operators} {few}, it has {counted.operators}")
        rules: tuple[tuple[bool, Need, str], ...] = (
            (self.solver, "solver", "a solver ({all})"),
            (self.checker, "checker", "a checker ({all})"),
            (self.test_if_tests and about.tests, "tests", "{any}, because there are tests"),
            (self.code_if_code and about.code, "code", "{any}, because code is asked for"),
            (self.format_if_long, "format", "{any}, because the result is not a short answer"),
        )
        for asked, need, say in rules:
            names = self.meeting(need) if asked else ()
            if names and counted.kinds.keys().isdisjoint(names) and (need != "format" or is_long(about.result)):
                lacks.append(say.format(all=", ".join(names), any=" or ".join(names)))
        if self.structure and not counted.parallel + counted.conditional + counted.loop:
            lacks.append("a parallel, a conditional or a loop")
        return lacks

    def meeting(self, need: Need) -> tuple[str, ...]:
        """Return the operators that meet a need, usable or not."""
        return meeting(need, self.others)

    def simplest(self, language: Language) -> Chain:
        """Return a small workflow that meets the requirements under any circumstances.

        Raises `BadSetting` if `language` has none, because episodes could never be finished.
        """
        names: list[str] = []
        for wanted, needed in (
            (self.meeting("tests"), self.test_if_tests),
            (self.meeting("code"), self.code_if_code),
            (self.meeting("checker"), self.checker),
            (self.meeting("solver"), self.solver),
            (self.meeting("format"), self.format_if_long),
        ):
            usable = [name for name in wanted if name in language.operators]
            if needed and not usable:
                raise BadSetting(f"finishing needs one of {', '.join(wanted)}, and the language has none of them")
            if needed and not set(usable) & set(names):
                names.append(usable[0])
        names += language.operators[:1] * (self.least_operators - len(names))
        nodes: Chain = tuple(map(OperatorNode, names))
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
"""The requirements of the published configuration."""

FINISH_RULES: Mapping[str, FinishRules] = {"lax": FinishRules(), "published": PUBLISHED_FINISH}
"""The requirements for `finish` by name."""


def is_long(result: str) -> bool:
    """Return whether a result is more than a short answer: long, of several lines, or with explanations."""
    text = result.strip()
    return len(text) > LONG_RESULT or "\n" in text or _EXPLAINS.search(text) is not None
