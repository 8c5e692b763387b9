"""Checks of numeric settings; `agentgym_flow.core.env` has those for integers."""

from __future__ import annotations

import math
from numbers import Real
from typing import TypeGuard


def is_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a number that fits a finite float, also one of NumPy's; booleans are not numbers."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False
