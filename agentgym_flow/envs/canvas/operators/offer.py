"""The operators that an environment offers, with their descriptions for policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from agentgym_flow.envs.canvas.operators import NEEDS, OPERATORS, STANDARD, Operator
from agentgym_flow.errors import BadSetting, UnknownOption, shown

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
