"""The operators of workflows: one class each, and the registry through which all other code finds them.

`base` defines operators; `planners`, `solvers`, `checkers`, `revisers` and `ensembles` are the standard ones by role;
`registry` also contains those of users; `odds` are for the simulator; `model` is what operators work with.
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
"""The twelve operators of the published prompt."""


def of_role(role: Role, names: tuple[str, ...] = STANDARD) -> tuple[str, ...]:
    """Return those of `names` that have this role, in order."""
    return tuple(name for name in names if OPERATORS[name].role is role)


SOLVERS = of_role(Role.SOLVER)
"""The standard solvers."""

CHECKERS = of_role(Role.CHECKER)
"""The standard checkers."""

ENSEMBLES = of_role(Role.ENSEMBLE)
"""The standard ensembles."""
