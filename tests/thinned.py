"""Parameters of which the default suite takes a few, and the heavy one all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(values: Iterable[Any], every: int) -> list[Any]:
    """Return parameters for `pytest.mark.parametrize`: one of `every` values runs by default, the others are heavy."""
    return [
        value
        if number % every == 0
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.heavy)
        for number, value in enumerate(values)
    ]
