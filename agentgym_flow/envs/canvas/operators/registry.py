"""The registered operators by name: the standard ones, and those of classes defined elsewhere.

Defining a class with a name registers it. An environment receives the operators to offer by name, by class, or as
`"module:Class"`, which imports the module. Names in logs are never imported; they must be registered already.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agentgym_flow._util.importing import find_modules_here, imported
from agentgym_flow.errors import BadSetting, UnknownOption, shown

if TYPE_CHECKING:
    from agentgym_flow.envs.canvas.operators.base import Operator

_registered: dict[str, Operator] = {}

OPERATORS: Mapping[str, Operator] = MappingProxyType(_registered)
"""All registered operators by name."""

STANDARD = (
    "Plan", "Decompose", "Programmer", "Custom", "AnswerGenerate", "CustomCodeGenerate", "Test", "Review", "Verify",
    "Revise", "Format", "ScEnsemble", "MdEnsemble", "Aggregate",
)  # fmt: skip
"""The operators of this package in the order in which they are shown: the default of environments."""


def register(name: str, operator: Operator) -> None:
    """Register an operator; a class that is defined again replaces the old one.

    Raises `BadSetting` if another class has this name, ignoring case.
    """
    for known, other in _registered.items():
        if known.lower() == name.lower() and path_of(other) != path_of(operator):
            raise BadSetting(f"operator {path_of(operator)}: {path_of(other)} is called {known}; choose another name")
    _registered[name] = operator


def path_of(operator: Operator) -> str:
    """Return `module:Class` of an operator."""
    return f"{type(operator).__module__}:{type(operator).__qualname__}"


def logged_name(operator: Operator) -> str:
    """Return the name of an operator in logs: the name of a standard one, else `module:Class`."""
    return operator.name if operator.name in STANDARD else path_of(operator)


def registered(named: str) -> Operator | None:
    """Return the registered operator with this name or `module:Class`, or None. Imports nothing."""
    if ":" not in named:
        return _registered.get(named)
    return next((one for one in _registered.values() if path_of(one) == named), None)


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
    known = _registered.get(str(named.__dict__.get("name", ""))) if isinstance(named, type) else None
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
