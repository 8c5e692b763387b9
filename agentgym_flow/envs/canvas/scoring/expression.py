"""Trees of mathematical expressions, and their values: exact where that is possible, and always within bounds.

Nothing here reads text (see `parser`), and nothing hands text to an interpreter. A tree is small, because the parser
bounds its size; the values of its parts are bounded here, so that no power or factorial can fill the memory.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

MAX_BITS = 4096
"""A fraction whose numerator or denominator would need more bits is computed as a float, or not at all."""

CONSTANTS: Mapping[str, complex] = {"pi": math.pi, "e": math.e, "i": 1j}
"""The names that stand for one number; every other name is a symbol."""


class Undefined(ArithmeticError):
    """An expression has no finite value, or one that is too large to be computed. Never leaves this package."""


@dataclass(frozen=True, slots=True)
class Number:
    """A rational number, exactly."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Name:
    """A constant (see `CONSTANTS`), infinity (`oo`), or a symbol."""

    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator, a function or a bracket, and what it is applied to.

    Attributes:
        name: one of `+ - * / ^ ! % neg pm abs root log binomial`, a name of `FUNCTIONS`, or of a structure: `=`, `<`,
            `<=`, `list`, `set`, `union`, `matrix`, `row`, or the two brackets of a tuple or interval, as in `[)`.
        operands: at least one.
    """

    name: str
    operands: tuple[Expression, ...]


Expression = Number | Name | Operation
Value = Fraction | complex
"""An exact number, or a float with an imaginary part that may be 0."""

FUNCTIONS: Mapping[str, Callable[[complex], complex]] = {
    "sin": cmath.sin,
    "cos": cmath.cos,
    "tan": cmath.tan,
    "cot": lambda z: 1 / cmath.tan(z),
    "sec": lambda z: 1 / cmath.cos(z),
    "csc": lambda z: 1 / cmath.sin(z),
    "arcsin": cmath.asin,
    "arccos": cmath.acos,
    "arctan": cmath.atan,
    "sinh": cmath.sinh,
    "cosh": cmath.cosh,
    "tanh": cmath.tanh,
    "exp": cmath.exp,
    "ln": cmath.log,
}
"""The functions of one number, by name."""


def parts(tree: Expression) -> Iterator[Expression]:
    """Yield `tree` and everything in it, each part before its own parts, from left to right."""
    yield tree
    if isinstance(tree, Operation):
        for operand in tree.operands:
            yield from parts(operand)


def symbols(tree: Expression) -> tuple[str, ...]:
    """Return the names of the symbols of `tree`, sorted."""
    found = {part.name for part in parts(tree) if isinstance(part, Name)}
    return tuple(sorted(found - CONSTANTS.keys() - {"oo"}))


def evaluate(tree: Expression, values: Mapping[str, Value] | None = None) -> Value:
    """Return the value of `tree`, a `Fraction` where only rational steps lead to it.

    Raises `Undefined` for a structure, for a symbol that `values` does not have, and where there is no finite value
    within the bounds.
    """
    try:
        return _evaluate(tree, values or {})
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        raise Undefined(str(error)) from error


def _evaluate(tree: Expression, values: Mapping[str, Value]) -> Value:
    if isinstance(tree, Number):
        return tree.value
    if isinstance(tree, Name):
        found = values.get(tree.name, CONSTANTS.get(tree.name))
        if found is None:
            raise Undefined(tree.name)
        return found
    rule = _RULES.get(tree.name)
    if rule is None:
        return _finite(_function(tree.name)(*(inexact(_evaluate(part, values)) for part in tree.operands)))
    return _finite(rule(*(_evaluate(part, values) for part in tree.operands)))


def _function(name: str) -> Callable[[complex], complex]:
    function = FUNCTIONS.get(name)
    if function is None:
        raise Undefined(name)
    return function


def inexact(value: Value) -> complex:
    """Return `value` as a complex float. Raises `OverflowError` when it is too large for one."""
    return complex(float(value)) if isinstance(value, Fraction) else value


def _finite(value: Value) -> Value:
    if isinstance(value, Fraction):
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
            raise Undefined("too many digits")
    elif not cmath.isfinite(value):
        raise Undefined("not finite")
    return value


def _both(exact: Callable[[Fraction, Fraction], Fraction], other: Callable[[complex, complex], complex]) -> _Rule:
    def rule(left: Value, right: Value) -> Value:
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return exact(left, right)
        return other(inexact(left), inexact(right))

    return rule


def _power(base: Value, exponent: Value) -> Value:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        size = abs(exponent.numerator)
        if base in (-1, 0, 1) and size > 2:
            size = 2 + size % 2  # only whether it is odd matters
        if bits * size <= MAX_BITS:
            return base**size if exponent >= 0 else 1 / base**size
    if isinstance(exponent, Fraction) and exponent.denominator % 2 == 1:
        number = inexact(base)
        if number.imag == 0 and number.real < 0:  # the real one, as for `root`
            positive: complex = complex(-number.real) ** float(exponent)
            return -positive if exponent.numerator % 2 else positive
    power: complex = inexact(base) ** inexact(exponent)
    return power


def _root(index: Value, radicand: Value) -> Value:
    """Return the real root of a negative number where the index is odd, else the principal one."""
    if isinstance(index, Fraction) and index.denominator == 1 and index.numerator > 0:
        number = inexact(radicand)
        if number.imag == 0:
            negative = number.real < 0 and index.numerator % 2 == 1
            size = complex(-number if negative else number) ** (1 / float(index))
            if isinstance(radicand, Fraction):
                exact = _exact_root(abs(radicand) if negative else radicand, index.numerator, size.real)
                if exact is not None:
                    return -exact if negative else exact
            return -size if negative else size
    principal: complex = inexact(radicand) ** (1 / inexact(index))
    return principal


def _exact_root(radicand: Fraction, index: int, near: float) -> Fraction | None:
    """Return the rational root of a number that is not negative, if it has one, given a float near it."""
    if radicand < 0 or index > 64:
        return None
    denominator = round(float(radicand.denominator) ** (1 / index))
    guess = Fraction(round(near * denominator), denominator) if denominator else Fraction(0)
    return guess if _finite(guess) == guess and guess**index == radicand else None


def _binomial(total: Value, chosen: Value) -> Value:
    return Fraction(math.comb(_small(total), _small(chosen)))


def _factorial(number: Value) -> Value:
    return Fraction(math.factorial(_small(number)))


def _small(number: Value) -> int:
    if not isinstance(number, Fraction) or number.denominator != 1 or not 0 <= number <= 400:
        raise Undefined("neither a small nor a natural number")
    return number.numerator


_Rule = Callable[..., Value]
_RULES: Mapping[str, _Rule] = {
    "+": _both(lambda a, b: a + b, lambda a, b: a + b),
    "-": _both(lambda a, b: a - b, lambda a, b: a - b),
    "*": _both(lambda a, b: a * b, lambda a, b: a * b),
    "/": _both(lambda a, b: a / b, lambda a, b: a / b),
    "^": _power,
    "root": _root,
    "!": _factorial,
    "%": lambda a: a / 100,
    "neg": lambda a: -a,
    "abs": lambda a: abs(a) if isinstance(a, Fraction) else complex(abs(a)),
    "log": lambda base, number: cmath.log(inexact(number)) / cmath.log(inexact(base)),
    "binomial": _binomial,
}
