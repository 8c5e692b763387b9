"""Checks of numeric settings; `agentgym_flow.core` has those for integers."""

from __future__ import annotations

import math
from typing import TypeGuard


def is_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a finite number; booleans are not numbers."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))  # huge integers are no floats
