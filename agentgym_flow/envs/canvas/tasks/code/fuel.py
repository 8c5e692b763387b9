"""Run trusted programs in this process, with a bounded number of steps instead of a bounded time.

Only programs that tasks derive from their own references run here, never those of a policy. Each iteration of a loop or
comprehension and each function call costs one unit of fuel, so a program ends the same way on every machine.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable
from itertools import islice
from types import CodeType
from typing import Any, NamedTuple

from agentgym_flow.core import stable_hash

FUEL = 2_000
"""The fuel of one call; a right program uses less than a tenth of it."""
ENDLESS = "it did not end"
"""The error of a call that used up its fuel."""
_LONGEST_RANGE = 100_000
_SPEND = "_spend"

_ALLOWED = (
    "abs all any bool chr dict divmod enumerate filter float int isinstance iter len list map max min next ord pow"
    " reversed round set sorted str sum tuple zip Exception IndexError KeyError StopIteration ValueError"
)


class OutOfFuel(BaseException):
    """The fuel is used up. Not an `Exception`, so that no program can catch it."""


class FunctionCase(NamedTuple):
    """A call with its expected value.

    Attributes:
        arguments: literals.
        wanted: the expected value, a literal.
        take: for a generator, the number of values that are compared, as a list; else 0.
    """

    arguments: tuple[Any, ...]
    wanted: Any = None
    take: int = 0

    def call(self, name: str) -> str:
        """Return the call as source text."""
        called = f"{name}({', '.join(map(repr, self.arguments))})"
        return f"list(islice({called}, {self.take}))" if self.take else called

    def check(self, name: str) -> str:
        """Return the case as an assertion."""
        return f"assert {self.call(name)} == {self.wanted!r}"


class CallOutcome(NamedTuple):
    """The outcome of a call: its value, or in `error` the reason why there is none."""

    value: Any = None
    error: str = ""

    def __str__(self) -> str:
        return self.error or f"it gave {self.value!r}"


def compiled(tree: ast.Module) -> CodeType:
    """Return the code of a program instrumented to spend fuel. Changes `tree`."""
    statement = ast.parse(f"{_SPEND}()").body[0]
    assert isinstance(statement, ast.Expr)
    for node in list(ast.walk(tree)):
        if isinstance(node, ast.For | ast.While | ast.FunctionDef):
            node.body.insert(0, statement)
        elif isinstance(node, ast.comprehension):
            node.ifs.insert(0, statement.value)
    return compile(tree, "<program>", "exec")


def calls(code: CodeType, name: str, cases: Iterable[FunctionCase]) -> list[CallOutcome]:
    """Return the outcome of the function `name` for each case; each call starts with the full `FUEL`.

    After a call that does not end, the others are assumed not to end either.
    """
    left = FUEL

    def spend() -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            raise OutOfFuel
        return True

    space: dict[str, Any] = {"__builtins__": _BUILTINS, _SPEND: spend}
    try:
        exec(code, space)
    except Exception as error:
        return [CallOutcome(error=f"it raised {type(error).__name__}") for _ in cases]
    function: Callable[..., Any] = space[name]
    found: list[CallOutcome] = []
    for case in cases:
        left = FUEL
        found.append(found[-1] if found and found[-1].error == ENDLESS else _came(function, case))
    return found


def same(came: CallOutcome, case: FunctionCase) -> bool:
    """Return whether the outcome of a call is the expected value."""
    return not came.error and bool(came.value == case.wanted)


def digest(outcomes: Iterable[CallOutcome]) -> str:
    """Return a digest of the outcomes of calls."""
    # Logs and digests of tasks depend on this text, which therefore does not change with the name of the class.
    return stable_hash([f"Came(value={one.value!r}, error={one.error!r})" for one in outcomes])[:16]


def fresh(value: Any) -> Any:
    """Return a deep copy of a literal, which a program may modify."""
    if isinstance(value, list):
        return [fresh(item) for item in value]
    if isinstance(value, dict):
        return {key: fresh(item) for key, item in value.items()}
    return tuple(fresh(item) for item in value) if isinstance(value, tuple) else value


def _came(function: Callable[..., Any], case: FunctionCase) -> CallOutcome:
    try:
        value = function(*fresh(case.arguments))
        return CallOutcome(list(islice(value, case.take)) if case.take else value)
    except (OutOfFuel, RecursionError):  # the recursion limit depends on the caller's depth
        return CallOutcome(error=ENDLESS)
    except Exception as error:
        return CallOutcome(error=f"it raised {type(error).__name__}")


def _range(*bounds: int) -> range:
    found = range(*bounds)
    if len(found) > _LONGEST_RANGE:
        raise OutOfFuel
    return found


_BUILTINS = {name: getattr(builtins, name) for name in _ALLOWED.split()} | {"range": _range}
