"""Checks of numeric settings; `agentgym_flow.core` has those for integers."""

from __future__ import annotations

import sys
from numbers import Real
from typing import TypeGuard, cast


def is_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a number that fits a finite float, also one of NumPy's; booleans are not numbers."""
    return isinstance(value, Real) and not isinstance(value, bool) and abs(cast("float", value)) <= sys.float_info.max
