"""Objects that are never copied."""

from __future__ import annotations

from typing import Any, Self


class Immutable:
    """A base class for large read-only objects: `copy.copy` and `copy.deepcopy` return the object itself."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self
