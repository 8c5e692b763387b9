"""The process that proves equalities with SymPy; started by `algebra`, one for many proofs.

It imports nothing of this package, so that it can be started as a file. A line in is a JSON list of two trees; a line
out is `true`, `false` or `null` (not found out within the limits). Its memory is bounded, and a proof that takes too
much time of the processor ends the process: its timer has no handler, because Python would not run one while a long
number is being computed.
"""

from __future__ import annotations

import importlib
import json
import resource
import signal
import sys
from typing import Any

sympy: Any = importlib.import_module("sympy")

MEMORY = 1 << 30


def _tree(node: list[Any]) -> Any:
    name, *parts = node
    if name == "number":
        return sympy.Rational(int(parts[0]), int(parts[1]))
    if name == "name":
        known = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "oo": sympy.oo}
        return known.get(parts[0]) or sympy.Symbol(parts[0], real=True)
    return _OPERATIONS[name](*map(_tree, parts))


_OPERATIONS: dict[str, Any] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "^": lambda a, b: a**b,
    "%": lambda a: a / 100,
    "neg": lambda a: -a,
    "!": sympy.factorial,
    "abs": sympy.Abs,
    "root": lambda index, a: sympy.root(a, index),
    "log": lambda base, a: sympy.log(a, base),
    "ln": sympy.log,
    "binomial": sympy.binomial,
    "arcsin": sympy.asin,
    "arccos": sympy.acos,
    "arctan": sympy.atan,
    "exp": sympy.exp,
    **{name: getattr(sympy, name) for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")},
}


def _proved(left: list[Any], right: list[Any]) -> bool | None:
    difference = _tree(left) - _tree(right)
    for simpler in (sympy.expand, sympy.cancel, sympy.simplify):
        difference = simpler(difference)
        if difference == 0:
            return True
    found = difference.equals(0)
    return None if found is None else bool(found)


def main() -> None:
    """Prove until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    seconds = float(sys.argv[1])
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            proved = _proved(*json.loads(line))
        except Exception:  # whatever a formula leads SymPy to is no proof
            proved = None
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(proved) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
