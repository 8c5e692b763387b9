"""What Gymnasium needs of us: a space of all Unicode strings up to a length, and specs without paths.

Gymnasium's `Text` needs a list of allowed characters and checks every character, which does not suit natural language
(Farama-Foundation/Gymnasium#1317). Our space contains every `str` within its length and samples printable ASCII.
Gymnasium's shared memory does not know it, and raises an error instead of returning wrong strings. Its wrappers that
fill up missing observations, such as `FrameStackObservation`, use the empty string.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers.utils import create_zero_array

_PRINTABLE = "".join(chr(code) for code in range(32, 127)) + "\n"


class UnicodeText(spaces.Space[str]):
    """All strings of at most `max_length` characters.

    `sample()` draws up to 32 printable ASCII characters, which is enough to fuzz an environment. Vector environments
    batch the space to a `Tuple`; use `AsyncVectorEnv(..., shared_memory=False)`.

    Args:
        max_length: the largest number of characters (code points).
        seed: seeds `sample`.
    """

    def __init__(self, max_length: int, *, seed: int | np.random.Generator | None = None) -> None:
        if max_length < 0:
            raise ValueError(f"max_length must not be negative, got {max_length}")
        self.max_length = max_length
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False, because text has no numeric form of fixed size."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        """Return a random printable string. Masks are not defined for free text."""
        if mask is not None or probability is not None:
            raise ValueError("UnicodeText.sample takes neither mask nor probability")
        length = int(self.np_random.integers(0, min(32, self.max_length) + 1))
        return "".join(_PRINTABLE[i] for i in self.np_random.integers(0, len(_PRINTABLE), size=length))

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a string that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        clone = copy.copy(self)  # every clone of an environment copies its spaces: this takes a third of the usual time
        clone._np_random = copy.deepcopy(self._np_random, memo)
        return clone

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and other.max_length == self.max_length

    def __hash__(self) -> int:
        return hash((UnicodeText, self.max_length))

    def to_jsonable(self, sample_n: Iterable[str]) -> list[str]:
        """Return the batch as a list of strings."""
        return list(sample_n)

    def from_jsonable(self, sample_n: list[Any]) -> list[str]:
        """Return the strings of a JSON list."""
        return [str(x) for x in sample_n]


@create_zero_array.register(UnicodeText)
def _empty_text(space: UnicodeText) -> str:  # type: ignore[misc] # Gymnasium annotates its function for a type variable
    return ""


class PlainSpec:
    """Keeps an environment's Gymnasium spec JSON-serialisable by converting paths in its arguments to strings.

    List this class before the Gymnasium class among the bases.
    """

    _spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """The spec of the environment; None if it was not created by `gym.make`."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            spec.kwargs = {k: os.fspath(v) if isinstance(v, os.PathLike) else v for k, v in spec.kwargs.items()}
        self._spec = spec
