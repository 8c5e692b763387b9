"""The operators of workflows: one class each, and which of them an environment offers.

`base` defines operators, `standard` has those of this package, `odds` are for the simulator, `model` is what operators
work with, and `calls` is the interface to backends. Names in logs are never imported; they must be registered already.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from agentgym_flow._util.importing import find_modules_here, imported
from agentgym_flow.envs.canvas.operators import standard  # noqa: F401 (registers its operators)
from agentgym_flow.envs.canvas.operators.base import (
    INPUTS,
    NEEDS,
    OPERATORS,
    OUTPUTS,
    STANDARD,
    Checker,
    Ensemble,
    FieldType,
    Need,
    Operator,
    Planner,
    Reviser,
    Role,
    Solver,
    path_of,
)
from agentgym_flow.errors import BadSetting, UnknownOption, shown

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
    "Descriptions",
    "Ensemble",
    "FieldType",
    "Need",
    "Offer",
    "Operator",
    "OperatorNames",
    "Planner",
    "Reviser",
    "Role",
    "Solver",
    "logged_name",
    "of_role",
    "operators_of",
    "registered",
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


def logged_name(operator: Operator) -> str:
    """Return the name of an operator in logs: the name of a standard one, else `module:Class`."""
    return operator.name if operator.name in STANDARD else path_of(operator)


def registered(named: str) -> Operator | None:
    """Return the registered operator with this name or `module:Class`, or None. Imports nothing."""
    if ":" not in named:
        return OPERATORS.get(named)
    return next((one for one in OPERATORS.values() if path_of(one) == named), None)


def operators_of(named: object) -> tuple[Operator, ...]:
    """Return the operators that a user names.

    Args:
        named: a list of names, classes and texts `"module:Class"`. Such modules are imported, which runs their code;
            the current directory is searched as well.

    Raises:
        UnknownOption: there is no such operator, module or class.
        BadSetting: it is not a list, an item is invalid, or an operator occurs twice.
    """
    if not isinstance(named, list | tuple):
        raise BadSetting(f"operators must be a list of names or classes, got {shown(named)}")
    found = tuple([_operator(one) for one in named])
    if len({one.name for one in found}) != len(found):
        raise BadSetting(f"operators is a list of different names or classes, got {shown(named)}")
    return found


def _operator(named: Any) -> Operator:
    if isinstance(named, str):
        known = registered(named)
        if known is not None:
            return known
        if ":" not in named:
            raise UnknownOption.among(named, OPERATORS)
        find_modules_here()
        named = imported(named, UnknownOption)
    known = OPERATORS.get(str(named.__dict__.get("name", ""))) if isinstance(named, type) else None
    if known is None or type(known) is not named:
        raise BadSetting(f"an operator is a name or a class derived from Operator with a name, got {shown(named)}")
    return known


class OperatorNames:
    """The setting `operators` of a log: a list of names or `module:Class` of registered operators."""

    def check(self, name: str, value: object) -> None:
        """Raise `BadSetting` unless `value` is such a list, and `UnknownOption` for unknown names."""
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise BadSetting(f"{name} must be a list of names, got {shown(value)}")
        for one in value:
            if registered(one) is not None:
                continue
            module, colon, _ = one.partition(":")
            if not colon:
                raise UnknownOption.among(one, OPERATORS)
            if module in sys.modules:
                raise BadSetting(f"{one:.80} is not an operator")
            raise BadSetting(f"{one:.80} is not imported because a log names it; if you trust it: --import {module}")


LONGEST_DESCRIPTION = 300
"""The maximum length of a description."""


class Descriptions:
    """The setting `descriptions`: name of an operator -> a text in one line."""

    def check(self, name: str, value: object) -> None:
        """Raise `BadSetting` unless `value` is such a mapping."""
        if not isinstance(value, Mapping):
            raise BadSetting(f"{name} must map names of operators to texts, got {shown(value)}")
        for one, text in value.items():
            fits = isinstance(text, str) and text.strip() and text.isprintable() and len(text) <= LONGEST_DESCRIPTION
            if not isinstance(one, str) or not fits:
                raise BadSetting(
                    f"{name} must map names of operators to texts in one line of at most {LONGEST_DESCRIPTION} "
                    f"characters, got {shown(one)}: {shown(text)}"
                )


@dataclass(frozen=True)
class Offer:
    """The usable operators of an episode.

    Attributes:
        operators: the operators in the order in which they are shown; as objects, so unpickling imports their modules.
        replaced: name -> a description that replaces the operator's own.

    Raises `UnknownOption` if a description is for an operator that is not usable.
    """

    operators: tuple[Operator, ...] = tuple([OPERATORS[name] for name in STANDARD])
    replaced: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.replaced:
            if name not in self.names:
                raise UnknownOption.among(name, self.names)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the operators."""
        return tuple([operator.name for operator in self.operators])

    @cached_property
    def others(self) -> tuple[str, ...]:
        """The names of the operators that are not standard."""
        return tuple([name for name in self.names if name not in STANDARD])

    @cached_property
    def descriptions(self) -> Mapping[str, str]:
        """Name -> the description of the operator."""
        return {operator.name: self.replaced.get(operator.name, operator.summary) for operator in self.operators}

    @cached_property
    def meets(self) -> Mapping[str, tuple[str, ...]]:
        """Need -> the operators that meet it."""
        return {need: tuple([one.name for one in self.operators if need in one.meets]) for need in NEEDS}
