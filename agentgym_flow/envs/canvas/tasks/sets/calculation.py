"""Calculations such as `(16-3-4)*2`, `20%*50` or `a*b/2`: parsed into trees and computed exactly.

The parser accepts its grammar only; no text reaches a Python interpreter. Length, depth and the size of numbers are
bounded, so parsing and computing always end soon.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

MAX_CHARACTERS = 250
"""The maximum length of a text."""
MAX_DEPTH = 30
"""The maximum nesting of brackets and powers."""
MAX_BITS = 4096
"""The maximum number of bits of a numerator or denominator."""


class BadCalculation(ValueError):
    """A text is not a calculation or is too large, or a calculation has no value. Never leaves this package."""


@dataclass(frozen=True, slots=True)
class Number:
    """An exact rational number."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Name:
    """A number referred to by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator (`+ - * / ^ %` or `neg`) with its one or two operands."""

    name: str
    operands: tuple[Expression, ...]


Expression = Number | Name | Operation


def parts(tree: Expression) -> Iterator[Expression]:
    """Yield `tree` and all its parts in pre-order, from left to right."""
    yield tree
    if isinstance(tree, Operation):
        for operand in tree.operands:
            yield from parts(operand)


def with_leaves(tree: Expression, new: Callable[[Number | Name], Expression]) -> Expression:
    """Return `tree` with every leaf replaced by `new(leaf)`."""
    if isinstance(tree, Operation):
        return Operation(tree.name, tuple(with_leaves(operand, new) for operand in tree.operands))
    return new(tree)


# ---------------------------------------------------------------- values
def evaluate(tree: Expression, values: Mapping[str, Fraction] | None = None) -> Fraction:
    """Return the value of `tree`.

    Raises `BadCalculation` for a name that is not in `values`, a division by zero, an exponent that is not an integer,
    and a number beyond `MAX_BITS`.
    """
    if isinstance(tree, Number):
        return tree.value
    if isinstance(tree, Name):
        if values is None or tree.name not in values:
            raise BadCalculation(f"{tree.name} has no value")
        return values[tree.name]
    try:
        value = _RULES[tree.name](*(evaluate(part, values) for part in tree.operands))
    except ZeroDivisionError as error:
        raise BadCalculation("a division by zero") from error
    if _bits(value) > MAX_BITS:
        raise BadCalculation("too many digits")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or _bits(base) * abs(exponent) > MAX_BITS:
        raise BadCalculation("an exponent that is not an integer, or is too large")
    return base**exponent.numerator


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


_RULES: Mapping[str, Callable[..., Fraction]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "^": _power,
    "%": lambda a: a / 100,
    "neg": lambda a: -a,
}

# ---------------------------------------------------------------- reading
_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+|[A-Za-z]\w*|\S)", re.ASCII)
_MIXED = re.compile(r"(?<![\d.])(\d+)\s+(\d+\s*/\s*\d+)(?![\d.])", re.ASCII)
_LETTERS, _DIGITS = string.ascii_letters, string.digits
_SPELLINGS = {
    "**": "^",
    "\N{MULTIPLICATION SIGN}": "*",
    "\N{DIVISION SIGN}": "/",
    "\N{MINUS SIGN}": "-",
    "[": "(",
    "]": ")",
    "$": "",
}


def parse(text: str) -> Expression:
    """Return the tree of a calculation. Raises `BadCalculation` if the text is not one, or is too large."""
    if len(text) > MAX_CHARACTERS:
        raise BadCalculation("too long")
    text = _MIXED.sub(r"(\1+\2)", text)
    for spelling, one in _SPELLINGS.items():
        text = text.replace(spelling, one)
    reader = _CalculationParser(_TOKEN.findall(text))
    tree = reader.sum()
    if reader.next:
        raise BadCalculation(f"{reader.next} is not expected")
    return tree


class _CalculationParser:
    """The grammar, a method for each rule, from the loosest binding to the tightest."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._place, self._depth = tokens, 0, 0

    @property
    def next(self) -> str:
        """The next token; empty at the end."""
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _take(self) -> str:
        self._place += 1
        return self._tokens[self._place - 1] if self._place <= len(self._tokens) else ""

    def sum(self) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise BadCalculation("nested too deep")
        left = self._product()
        while self.next in ("+", "-"):
            left = Operation(self._take(), (left, self._product()))
        self._depth -= 1
        return left

    def _product(self) -> Expression:
        left = self._signed()
        while self.next in ("*", "/", "("):  # `2(3+4)` is a product, too
            sign = "*" if self.next == "(" else self._take()
            left = Operation(sign, (left, self._signed()))
        return left

    def _signed(self) -> Expression:
        negative = False
        while self.next in ("+", "-"):
            negative ^= self._take() == "-"
        inner = self._power()
        return Operation("neg", (inner,)) if negative else inner

    def _power(self) -> Expression:
        base = self._primary()
        while self.next == "%":
            base = Operation(self._take(), (base,))
        if self.next != "^":
            return base
        self._take()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise BadCalculation("nested too deep")
        exponent = self._signed()
        self._depth -= 1
        return Operation("^", (base, exponent))

    def _primary(self) -> Expression:
        token = self._take()
        if token == "(":
            inner = self.sum()
            if self._take() != ")":
                raise BadCalculation("a bracket is not closed")
            return inner
        if token[:1] in _LETTERS and token:
            return Name(token)
        if token[-1:] not in _DIGITS or not token:
            raise BadCalculation(f"{token or 'the end'} is not expected")
        return Number(Fraction(token))
