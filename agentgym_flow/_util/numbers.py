"""Checks of numeric settings; `agentgym_flow.core` has those for integers."""

from __future__ import annotations

import math
from typing import TypeGuard


def is_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a finite number; booleans are not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
