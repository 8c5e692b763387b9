r"""Whether two mathematical answers are equal.

1. The same text, but for case, blanks, money signs and units.
2. Numbers within a tolerance: integers, decimals, fractions, mixed numbers, percent, roots, $\pi$, digits in a base.
3. Tuples and intervals part by part; sets and lists in any order; `x = 5` by what it says of x.
4. Formulas with symbols, which stand for real numbers: they must agree at fixed points, and then SymPy must prove it,
   in a process of its own with a limit on its time and memory (`algebra`).

What the points refute is never proved by anyone, so a wrong answer does not cost a proof. The points are the same in
every process. Every text ends soon: too large is no expression, and no expression is equal to nothing but its like.
"""

from __future__ import annotations

import cmath
import math
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from agentgym_flow.envs.canvas.scoring import algebra
from agentgym_flow.envs.canvas.scoring.cleaning import plain, same_text
from agentgym_flow.envs.canvas.scoring.expression import (
    Expression,
    Name,
    Operation,
    Undefined,
    Value,
    evaluate,
    inexact,
    parts,
    symbols,
)
from agentgym_flow.envs.canvas.scoring.parser import parse
from agentgym_flow.envs.canvas.scoring.tokens import NotMathematics
from agentgym_flow.seeding import Stream

TOLERANCE = 1e-3
"""How far a number may be from the right one."""
RELATIVE_TOLERANCE = 1e-2
"""How far relative to the right one, so that 0 is not equal to 0.0004. `compat` leaves this out, as published."""

_POINTS = 8
_AGREE = 1e-6
_BASED = re.compile(r"(?P<digits>[0-9A-Za-z]+)\s*_\s*\{?\s*(?P<base>\d{1,2})\s*\}?")
_VOWELS = frozenset("eiou")
_NAMES = frozenset(("pi", "oo", "inf", "infinity"))
_ORDERED = frozenset(("()", "[]", "(]", "[)", "row", "matrix", "<", "<="))
_ANY_ORDER = frozenset(("list", "set", "union"))
_NOT_FOR = {"set": ("()", "union"), "list": ("union",), "union": ("list", "set", "()")}
_STRUCTURES = _ORDERED | _ANY_ORDER | {"=", "pm"}


def expression_of(answer: str) -> Expression | None:
    """Return the tree of an answer, units and money signs aside; None when it is no expression, or rather a word."""
    text = plain(answer)
    if text.isalpha() and len(text) > 1 and not set(text.lower()).isdisjoint(_VOWELS) and text.lower() not in _NAMES:
        return None  # `no` is not the product of two symbols, and so not `on`
    try:
        return parse(text)
    except NotMathematics:
        return None


def needs_algebra(gold: str) -> bool:
    """Return whether answers to this gold can need SymPy: whether it is a formula with symbols."""
    tree = expression_of(gold)
    return tree is not None and bool(symbols(_said(tree)))


def equivalent(answer: str, gold: str, *, compat: bool = False) -> bool:
    """Return whether `answer` is equal to `gold`.

    Args:
        answer: what was extracted from a policy's text; any string.
        gold: the right answer.
        compat: as published: the absolute tolerance alone, and decimal numbers for those in another base.

    Raises:
        MissingExtra: `gold` is a formula with symbols (`needs_algebra`) and SymPy is not installed.
    """
    if same_text(answer, gold):
        return bool(answer.strip())
    in_base = _same_in_base(plain(answer), plain(gold), compat)
    if in_base is not None:
        return in_base
    right = expression_of(gold)
    if right is None:
        return False
    if needs_algebra(gold):
        algebra.check_installed()
    left = expression_of(answer)
    if left is None:
        return False
    return _same_equation(left, right, compat) or _equal(_said(left), _said(right), compat)


def _same_in_base(answer: str, gold: str, compat: bool) -> bool | None:
    """Compare numbers of which one names its base; None if none does.

    Digits without a base are in the gold's base, as in a question that asks for one; `compat` takes decimal ones, too.
    """
    left, right = _BASED.fullmatch(answer), _BASED.fullmatch(gold)
    if right is None:
        value = _in_base(left["digits"], left["base"]) if left else None
        plainly = _in_base(gold, "10")
        return None if value is None or plainly is None else value == plainly
    wanted = _in_base(right["digits"], right["base"])
    if wanted is None:
        return None
    digits, base = (left["digits"], left["base"]) if left else (answer, right["base"])
    return _in_base(digits, base) == wanted or (compat and left is None and _in_base(answer, "10") == wanted)


def _in_base(digits: str, base: str) -> int | None:
    try:
        return int(digits, int(base)) if len(digits) <= 100 and digits.isalnum() and int(base) >= 2 else None
    except ValueError:
        return None


def _said(tree: Expression) -> Expression:
    """Return what an equation says of the name on its left, or computes: `5` of `x = 5` and of `2 + 3 = 5`."""
    while isinstance(tree, Operation) and tree.name == "=":
        left, right = tree.operands
        if isinstance(right, Name) and not symbols(left):
            left, right = right, left
        if not isinstance(left, Name) and (symbols(left) or symbols(right)):
            return tree
        tree = right
    return tree


def _equal(left: Expression, right: Expression, compat: bool) -> bool:
    left, right = _spread(left), _spread(right)
    kinds = tuple(tree.name if isinstance(tree, Operation) else "" for tree in (left, right))
    if not _STRUCTURES.isdisjoint(kinds):
        return _same_structure(left, right, compat)
    found, wanted = _readings(left), _readings(right)
    if wanted and found:
        return any(_close(a, b, compat) for a in found for b in wanted)
    return _same_formula(left, right)


def _spread(tree: Expression) -> Expression:
    r"""Return `a \pm b` as the list of both, `3 < x` as an interval, a list of one as that; all else as it is."""
    if isinstance(tree, Operation) and tree.name == "pm":
        return Operation("list", (Operation("+", tree.operands), Operation("-", tree.operands)))
    if isinstance(tree, Operation) and tree.name in _ANY_ORDER and len(tree.operands) == 1:
        return tree.operands[0]
    if isinstance(tree, Operation) and tree.name in ("<", "<="):
        low, high = tree.operands
        closed = tree.name == "<="
        if isinstance(high, Name) and not symbols(low):
            return Operation("[)" if closed else "()", (low, Name("oo")))
        if isinstance(low, Name) and not symbols(high):
            return Operation("(]" if closed else "()", (Operation("neg", (Name("oo"),)), high))
    return tree


def _same_structure(left: Expression, right: Expression, compat: bool) -> bool:
    if not isinstance(left, Operation) or not isinstance(right, Operation):
        return False
    if len(left.operands) != len(right.operands):
        return False
    if right.name in _ANY_ORDER and left.name in (*_ANY_ORDER, "()") and left.name not in _NOT_FOR.get(right.name, ()):
        return _same_in_some_order(left.operands, right.operands, compat)
    if left.name != right.name and (left.name, right.name) != ("list", "()"):
        return False
    if left.name == "=":
        return _same_equation(left, right, compat)
    pairs = zip(left.operands, right.operands, strict=True)
    return all(_equal(_said(ours), _said(theirs), compat) for ours, theirs in pairs)


def _same_equation(left: Expression, right: Expression, compat: bool) -> bool:
    """Compare two equations by the differences of their sides; false when one is none."""
    if not isinstance(left, Operation) or not isinstance(right, Operation) or {left.name, right.name} != {"="}:
        return False
    if any(isinstance(side, Operation) and side.name in _STRUCTURES for side in left.operands + right.operands):
        return False
    ours, theirs = Operation("-", left.operands), Operation("-", right.operands)
    if not symbols(theirs):
        return False
    return _same_formula(ours, theirs) or _same_formula(Operation("neg", (ours,)), theirs)


def _same_in_some_order(left: Sequence[Expression], right: Sequence[Expression], compat: bool) -> bool:
    remaining = list(right)
    for ours in left:
        place = next((i for i, theirs in enumerate(remaining) if _equal(_said(ours), _said(theirs), compat)), None)
        if place is None:
            return False
        del remaining[place]
    return True


def _readings(tree: Expression) -> tuple[Value, ...]:
    """Return the numbers that a constant expression may mean: `25%` is 0.25, and 25 where the percent is understood."""
    if isinstance(tree, Name) and tree.name == "oo":
        return (complex(math.inf),)
    if isinstance(tree, Operation) and tree.name == "neg" and tree.operands[0] == Name("oo"):
        return (complex(-math.inf),)
    try:
        value = evaluate(tree)
        if isinstance(tree, Operation) and tree.name == "%":
            return value, evaluate(tree.operands[0])
    except Undefined:
        return ()
    return (value,)


def _close(value: Value, wanted: Value, compat: bool) -> bool:
    if isinstance(value, Fraction) and isinstance(wanted, Fraction):
        error: Fraction | float = abs(value - wanted)
        size: Fraction | float = abs(wanted)
    else:
        try:
            ours, theirs = inexact(value), inexact(wanted)
        except OverflowError:
            return False
        if not cmath.isfinite(ours) or not cmath.isfinite(theirs):
            return ours == theirs
        error, size = abs(ours - theirs), abs(theirs)
        if error <= 1e-12 * size or (size < 1e-12 and error < 1e-12):  # `e^{i\pi} + 1` is 0 but for its rounding
            return True
    return error <= TOLERANCE and (compat or error == 0 or error <= RELATIVE_TOLERANCE * size)


def _same_formula(left: Expression, right: Expression) -> bool:
    names = symbols(Operation("list", (left, right)))
    if not names or any(isinstance(part, Operation) and part.name in _STRUCTURES for part in parts(left)):
        return False
    agreeing = 0
    for point in range(_POINTS):
        values = {name: _coordinate(name, point) for name in names}
        try:
            ours, theirs = inexact(evaluate(left, values)), inexact(evaluate(right, values))
        except (Undefined, OverflowError):
            continue
        if abs(ours - theirs) > _AGREE * max(1.0, abs(ours), abs(theirs)):
            return False
        agreeing += 1
    return agreeing >= 2 and algebra.proves_equal(left, right)


@lru_cache(maxsize=1024)
def _coordinate(name: str, point: int) -> complex:
    """Return where a symbol is at a point: all are positive at the first two, negative at the third, either then."""
    draw = Stream("canvas.points", name, point)
    size = 0.4 + 1.6 * draw.uniform()
    return complex(-size if point == 2 or (point > 2 and draw.below(2)) else size)
