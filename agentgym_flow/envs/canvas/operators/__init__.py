"""The operators a workflow is made of: one class each, and the registry that everything else reads.

`base` says what an operator is, `planners`, `solvers`, `checkers`, `revisers` and `ensembles` are the standard ones by
role, `registry` holds them with those of others, `odds` is what the simulator makes of them, and `model` what they work
with.
"""

from __future__ import annotations

from agentgym_flow.envs.canvas.operators import checkers, ensembles, planners, revisers, solvers  # noqa: F401 (register)
from agentgym_flow.envs.canvas.operators.base import (
    INPUTS,
    NEEDS,
    OUTPUTS,
    Checker,
    Ensemble,
    FieldType,
    Need,
    Operator,
    Planner,
    Reviser,
    Role,
    Solver,
)
from agentgym_flow.envs.canvas.operators.registry import OPERATORS, STANDARD

__all__ = [
    "ADVERTISED",
    "CHECKERS",
    "ENSEMBLES",
    "INPUTS",
    "NEEDS",
    "OPERATORS",
    "OUTPUTS",
    "SOLVERS",
    "STANDARD",
    "Checker",
    "Ensemble",
    "FieldType",
    "Need",
    "Operator",
    "Planner",
    "Reviser",
    "Role",
    "Solver",
    "of_role",
]

ADVERTISED = tuple(name for name in STANDARD if name not in ("CustomCodeGenerate", "MdEnsemble"))
"""The twelve operators that the published prompt offers."""


def of_role(role: Role, names: tuple[str, ...] = STANDARD) -> tuple[str, ...]:
    """Return those of some operators that have this role, in their order."""
    return tuple(name for name in names if OPERATORS[name].role is role)


SOLVERS = of_role(Role.SOLVER)
"""The standard operators that make a solution."""

CHECKERS = of_role(Role.CHECKER)
"""The standard operators that can be the check of a conditional."""

ENSEMBLES = of_role(Role.ENSEMBLE)
"""The standard operators that gather several results; none can begin a parallel branch."""
