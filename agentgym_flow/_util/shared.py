"""Objects that all copies of their owner share."""

from __future__ import annotations

from typing import Any, Self


class Shared:
    """A base class whose `copy.copy` and `copy.deepcopy` return the object itself.

    For objects that are read-only, or whose state is thread-safe and belongs to all users together, such as a cache.
    """

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self
