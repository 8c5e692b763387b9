"""What an operator is: one class that says what it reads, how it is described to a policy, and what it does.

::

    class Debate(Solver):
        name = "Debate"
        summary = "argues for and against, then answers"
        instruction = "Argue for and against each possible answer, then give the best one."
        odds = SolverOdds({Kind.TRAP: 0.3, Kind.SLIP: 0.5})

        def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
            return Value(text=model.ask())

Derive from the class of its role. Defining a class that has a name registers it; see `registry`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Literal, get_args

from agentgym_flow.envs.canvas.operators import registry, replies
from agentgym_flow.envs.canvas.operators.calls import Input, Value
from agentgym_flow.envs.canvas.operators.model import Model, solutions
from agentgym_flow.envs.canvas.operators.odds import (
    CheckerOdds,
    EnsembleOdds,
    Odds,
    PlannerOdds,
    ReviserOdds,
    SolverOdds,
)
from agentgym_flow.errors import BadSetting, shown


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


class FieldType(StrEnum):
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


INPUTS: Mapping[str, FieldType] = MappingProxyType(
    {
        "problem": FieldType.TEXT,  # the raw problem
        "entry_point": FieldType.TEXT,  # the name of the function that is asked for; empty when none is
        "tests": FieldType.TEXTS,  # the public tests, never the hidden ones
        "plan": FieldType.VALUE,  # what the last operator that leaves a plan made
        "pieces": FieldType.TEXTS,  # the sub-problems to solve here
        "previous": FieldType.RESULT,  # what the node before made
        "solution": FieldType.RESULT,  # the same, for an operator that works on it
        "candidates": FieldType.VALUES,  # the same, one by one
        "notes": FieldType.VALUE,  # what the last checker made, as long as its solution stands
    }
)
"""Every input that an operator can declare."""

OUTPUTS: Mapping[str, FieldType] = MappingProxyType(
    {
        "text": FieldType.TEXT,
        "items": FieldType.TEXTS,
        "code": FieldType.TEXT,
        "passed": FieldType.FLAG,
        "notes": FieldType.TEXT,
    }
)
"""Every output that an operator can declare; the fields of `calls.Value` of the same names."""

Need = Literal["solver", "checker", "tests", "code", "format"]
"""What the rules of `finish` may ask for, and the parts of a design that the structure reward looks for."""

NEEDS: tuple[Need, ...] = get_args(Need)
"""All needs."""

_WORDS = "done|add|delete|modify|set_prompt|finish|prompt|warn"  # of workflows, actions and moves
_NAME = re.compile(rf"(?!(?:{_WORDS}|x[0-9]*)$)[A-Za-z_]\w{{0,39}}", re.ASCII | re.IGNORECASE)
LONGEST = {"summary": 300, "instruction": 4096, "form": 4096}
"""The texts of an operator, with the most characters that each may have."""


class Operator:
    """An operator. It has no state: one object does the work of all calls, in several threads at once.

    Attributes:
        name: as it is written in a workflow: an identifier of at most 40 ASCII characters.
        role: what it does to the flow; set by the class of the role.
        inputs: what it is given, names in `INPUTS`.
        outputs: what its result must hold, names in `OUTPUTS`. A checker may leave `text` and `code` empty: then the
            solution goes on as it was.
        summary: its description for a policy, one line that goes on from the name. An environment can replace it.
        instruction: the model's instruction if the workflow has no other.
        form: the form of the model's reply.
        meets: the needs that it meets once it is part of a workflow.
        branches: a run with fewer results before it is not given to it: the call fails. 2 is for operators that make
            no sense without parallel branches.
        odds: what the simulator makes of it, of the type for its role. None: it is not offered there.

    Raises `BadSetting` when a class is defined that cannot be an operator.
    """

    name: ClassVar[str]
    role: ClassVar[Role]
    inputs: ClassVar[tuple[str, ...]]
    outputs: ClassVar[tuple[str, ...]] = ("text",)
    summary: ClassVar[str]
    instruction: ClassVar[str]
    form: ClassVar[str] = "Give your result in words, without a preface."
    meets: ClassVar[frozenset[Need]] = frozenset()
    branches: ClassVar[int] = 0
    odds: ClassVar[Odds | None] = None

    def __init_subclass__(cls) -> None:
        """Check a class that has a name, and register it."""
        super().__init_subclass__()
        if "name" in vars(cls):
            _check(cls)
            registry.register(cls.name, cls())

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return what the operator makes, with a model.

        Args:
            model: answers, and runs programs.
            inputs: what it is given, by the names in `inputs`.

        Raises `replies.OperatorFailed` when it cannot do its work; nothing is made up in its place.
        """
        raise NotImplementedError


class Planner(Operator):
    """Prepares what comes after it. By default it asks for a numbered list.

    Attributes:
        leaves: what its items are to later operators: a `plan` to follow, or `pieces`, which parallel branches right
            after it share out.
    """

    role = Role.PLANNER
    inputs: ClassVar[tuple[str, ...]] = ("problem",)
    outputs: ClassVar[tuple[str, ...]] = ("text", "items")
    form = "Give a numbered list (1., 2., ...), one entry a line, and nothing else."
    leaves: ClassVar[Literal["plan", "pieces"]] = "plan"

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return the entries of the list that the model gives."""
        reply = model.ask()
        return Value(text=reply, items=replies.steps(reply))


class Solver(Operator):
    """Makes a solution. By default the reply is the solution."""

    role = Role.SOLVER
    inputs: ClassVar[tuple[str, ...]] = ("problem", "plan", "pieces", "previous")
    meets: ClassVar[frozenset[Need]] = frozenset({"solver"})

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return the model's reply."""
        return Value(text=model.ask())


class Checker(Operator):
    """Says whether the solution passes. By default the model gives a verdict."""

    role = Role.CHECKER
    inputs: ClassVar[tuple[str, ...]] = ("problem", "solution")
    outputs: ClassVar[tuple[str, ...]] = ("passed", "notes")
    meets: ClassVar[frozenset[Need]] = frozenset({"checker"})
    form = (
        "Say what you found, then end with one line that is either `Verdict: pass` (nothing has to be changed) or "
        "`Verdict: fail`."
    )

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return the verdict that the model gives, and the rest of its reply as notes."""
        solutions(inputs["solution"])
        passed, notes = replies.verdict(model.ask())
        return Value(passed=passed, notes=notes)


class Reviser(Operator):
    """Makes another solution out of the present one. By default the reply is the solution."""

    role = Role.REVISER
    inputs: ClassVar[tuple[str, ...]] = ("problem", "solution", "notes")

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return the model's reply."""
        solutions(inputs["solution"])
        return Value(text=model.ask())


class Ensemble(Operator):
    """Makes one solution of several. It cannot begin a parallel branch. By default the reply is the solution."""

    role = Role.ENSEMBLE
    inputs: ClassVar[tuple[str, ...]] = ("problem", "candidates")

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return the model's reply."""
        solutions(inputs["candidates"])
        return Value(text=model.ask())


_ODDS: Mapping[Role, type[Odds]] = {
    Role.PLANNER: PlannerOdds,
    Role.SOLVER: SolverOdds,
    Role.CHECKER: CheckerOdds,
    Role.REVISER: ReviserOdds,
    Role.ENSEMBLE: EnsembleOdds,
}


def _check(cls: type[Operator]) -> None:
    """Raise `BadSetting` for a class that cannot be an operator, and say why."""
    what = f"operator {cls.__qualname__}"
    if not isinstance(cls.name, str) or not _NAME.fullmatch(cls.name):
        raise BadSetting(f"{what}: name must be an identifier of at most 40 ASCII characters, got {shown(cls.name)}")
    if not isinstance(getattr(cls, "role", None), Role) or cls.run is Operator.run:
        raise BadSetting(f"{what}: derive from Planner, Solver, Checker, Reviser or Ensemble, or set role and run")
    for field in LONGEST:
        text = getattr(cls, field, None)
        if not isinstance(text, str) or not text.strip() or not text.isprintable():
            raise BadSetting(f"{what}: {field} must be a text in one line, got {shown(text)}")
        if len(text) > LONGEST[field]:
            raise BadSetting(f"{what}: {field} has {len(text)} characters, more than {LONGEST[field]}")
    for field, known in (("inputs", INPUTS), ("outputs", OUTPUTS), ("meets", NEEDS)):
        names = getattr(cls, field, ())
        if not isinstance(names, list | tuple | set | frozenset) or not set(map(str, names)) <= set(known):
            raise BadSetting(f"{what}: {field} must be names among {', '.join(known)}, got {shown(names)}")
    if type(cls.branches) is not int or cls.branches < 0:
        raise BadSetting(f"{what}: branches must be a number of at least 0, got {shown(cls.branches)}")
    if cls.odds is not None and not isinstance(cls.odds, _ODDS[cls.role]):
        raise BadSetting(f"{what}: the odds of a {cls.role} are {_ODDS[cls.role].__name__}, got {shown(cls.odds)}")
