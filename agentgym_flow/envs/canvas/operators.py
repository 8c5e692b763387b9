"""The fourteen operators a workflow is made of: what each reads, what it makes, and what it is told by default.

These are declarations. What an operator really does is a backend's business (`calls.Backend`); what is declared here
decides which inputs the interpreter hands to it, and which of its outputs must be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Role(StrEnum):
    """What an operator does to the flow of a workflow."""

    PLANNER = "planner"
    """Reads the problem alone, and prepares what comes after it."""
    SOLVER = "solver"
    """Makes a solution."""
    CHECKER = "checker"
    """Says whether the solution passes, and why not; the solution goes on. The only operators that can be a check."""
    REVISER = "reviser"
    """Makes another solution out of the present one."""
    ENSEMBLE = "ensemble"
    """Makes one solution of several."""


class Kind(StrEnum):
    """The type of an input or an output."""

    TEXT = "text"
    """A `str`."""
    TEXTS = "texts"
    """A tuple of `str`."""
    FLAG = "flag"
    """A `bool`."""
    VALUE = "value"
    """A `calls.Value`, or None where nothing has been made yet."""
    RESULT = "result"
    """A `calls.Value`; a tuple of them after parallel branches that nothing has gathered; or None."""
    VALUES = "values"
    """A tuple of `calls.Value`, one per result there is."""


INPUTS: Mapping[str, Kind] = MappingProxyType(
    {
        "problem": Kind.TEXT,  # the raw problem
        "entry_point": Kind.TEXT,  # the name of the function that is asked for; empty when none is
        "tests": Kind.TEXTS,  # the public tests, never the hidden ones
        "plan": Kind.VALUE,  # what Plan made last
        "pieces": Kind.TEXTS,  # the sub-problems to solve here
        "previous": Kind.RESULT,  # what the node before made
        "solution": Kind.RESULT,  # the same, for an operator that works on it
        "candidates": Kind.VALUES,  # the same, one by one
        "notes": Kind.VALUE,  # what the last checker made, as long as its solution stands
    }
)
"""Every input that an operator can declare."""

OUTPUTS: Mapping[str, Kind] = MappingProxyType(
    {"text": Kind.TEXT, "items": Kind.TEXTS, "code": Kind.TEXT, "passed": Kind.FLAG, "notes": Kind.TEXT}
)
"""Every output that an operator can declare; the fields of `calls.Value` of the same names."""


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """What is known of an operator.

    Attributes:
        name: as it is written in a workflow.
        role: what it does to the flow.
        inputs: what it is given, names in `INPUTS`.
        outputs: what its result must hold, names in `OUTPUTS`. A checker may leave `text` and `code` empty: then the
            solution goes on as it was.
        summary: one line for a policy.
        needs: what has to come before it for it to be of use; empty when nothing has to.
        instruction: what it is told when the workflow does not say otherwise.
        advertised: whether the published prompt offers it.
    """

    name: str
    role: Role
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    summary: str
    needs: str
    instruction: str
    advertised: bool = True


_SPECS = (
    OperatorSpec(
        "Plan", Role.PLANNER, ("problem",), ("text", "items"),
        summary="writes a numbered plan for the problem",
        needs="",
        instruction="Write a short numbered plan for solving the problem. Name the quantities or facts each step needs."
        " Do not solve it yet.",
    ),
    OperatorSpec(
        "Decompose", Role.PLANNER, ("problem",), ("text", "items"),
        summary="splits the problem into sub-problems; parallel branches right after it share them out",
        needs="",
        instruction="Split the problem into numbered sub-problems that can be solved one by one. Do not solve them.",
    ),
    OperatorSpec(
        "Programmer", Role.SOLVER, ("problem", "entry_point", "plan", "pieces", "previous"), ("text", "code"),
        summary="writes a Python program, runs it, and gives its code and its output",
        needs="",
        instruction="Write a Python program that solves the problem. If a function is asked for by name, write it;"
        " otherwise define solve() without arguments and return the answer from it.",
    ),
    OperatorSpec(
        "Custom", Role.SOLVER, ("problem", "plan", "pieces", "previous"), ("text",),
        summary="reasons in words and answers",
        needs="",
        instruction="Solve the problem with what is known so far. Reason briefly, and end with the answer.",
    ),
    OperatorSpec(
        "AnswerGenerate", Role.SOLVER, ("problem", "plan", "pieces", "previous"), ("text",),
        summary="thinks step by step and gives a short final answer",
        needs="",
        instruction="Think step by step about the problem, then give the final answer alone.",
    ),
    OperatorSpec(
        "CustomCodeGenerate", Role.SOLVER, ("problem", "entry_point", "plan", "pieces", "previous"), ("text", "code"),
        summary="writes code and does not run it",
        needs="",
        instruction="Write the Python function that is asked for. Give the code alone.",
        advertised=False,
    ),
    OperatorSpec(
        "Test", Role.CHECKER, ("problem", "entry_point", "tests", "solution"), ("passed", "notes"),
        summary="runs the public tests on the code",
        needs="a solution that is code, as Programmer makes it",
        instruction="Run the public tests on the code. If one fails, say which and why, and repair the code.",
    ),
    OperatorSpec(
        "Review", Role.CHECKER, ("problem", "solution"), ("passed", "notes"),
        summary="reads the solution critically and says what is wrong with it",
        needs="a solution",
        instruction="Read the solution critically. Say whether it answers the problem, and name each fault you find.",
    ),
    OperatorSpec(
        "Verify", Role.CHECKER, ("problem", "solution"), ("passed", "notes"),
        summary="solves the problem again by itself and compares",
        needs="a solution",
        instruction="Solve the problem again on your own, compare with the solution, and say whether they agree.",
    ),
    OperatorSpec(
        "Revise", Role.REVISER, ("problem", "solution", "notes"), ("text",),
        summary="rewrites the solution with the notes of the last checker",
        needs="a solution and a checker's notes on it",
        instruction="Rewrite the solution so that every fault in the notes is gone. Change nothing that is right.",
    ),
    OperatorSpec(
        "Format", Role.REVISER, ("problem", "solution"), ("text",),
        summary="cuts the solution down to the answer",
        needs="a solution",
        instruction="Give only the final answer that the solution arrives at, as short as the problem allows.",
    ),
    OperatorSpec(
        "ScEnsemble", Role.ENSEMBLE, ("problem", "candidates"), ("text",),
        summary="picks the most consistent of several solutions",
        needs="parallel branches",
        instruction="Compare the candidates and give the one that most of them support.",
    ),
    OperatorSpec(
        "MdEnsemble", Role.ENSEMBLE, ("problem", "candidates"), ("text",),
        summary="picks one of several solutions by repeated votes over shuffled lists",
        needs="parallel branches",
        instruction="Vote for the best candidate several times, in changing orders, and give the winner.",
        advertised=False,
    ),
    OperatorSpec(
        "Aggregate", Role.ENSEMBLE, ("problem", "pieces", "candidates"), ("text",),
        summary="combines the results of branches into one answer",
        needs="parallel branches",
        instruction="Combine the results into one answer to the whole problem.",
    ),
)  # fmt: skip

OPERATORS: Mapping[str, OperatorSpec] = MappingProxyType({spec.name: spec for spec in _SPECS})
"""Every operator by its name."""

ADVERTISED = tuple(spec.name for spec in _SPECS if spec.advertised)
"""The twelve operators that the published prompt offers."""


def of_role(role: Role) -> tuple[str, ...]:
    """Return the names of the operators with this role."""
    return tuple(spec.name for spec in _SPECS if spec.role is role)


CHECKERS = of_role(Role.CHECKER)
"""The operators that can be the check of a conditional."""

ENSEMBLES = of_role(Role.ENSEMBLE)
"""The operators that gather several results; none can begin a parallel branch."""
