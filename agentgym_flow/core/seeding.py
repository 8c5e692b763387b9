"""Random numbers from a fixed algorithm: the same key gives the same numbers on every machine and in every version.

NumPy guarantees the raw bits of a bit generator, but not the results of `Generator` methods, and Python's `hash` of a
string differs between processes. So task content and simulated noise come from `Stream`: SHA-256 in counter mode, with
methods that are completely defined here. Golden values in `tests/test_seeding.py` pin them.
The task that a seed draws, and the identity of a task, are computed here too.
"""

from __future__ import annotations

import copy
import hashlib
import json
import operator
import struct
from collections.abc import Mapping, MutableSequence, Sequence
from typing import Any, SupportsIndex, TypeVar, cast

import numpy as np
import numpy.typing as npt

from agentgym_flow.errors import UnknownTask

T = TypeVar("T")

_JSON = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True)
_AS_THEY_ARE = frozenset({str, int, bool, type(None)})
_WORD = 1 << 32
_WORDS_OF_BLOCK = struct.Struct(">8I")


def _exact(value: Any) -> Any:
    if value is None or isinstance(value, (str, int)):  # nearly all values; the slow test for a Mapping comes last
        return value
    if isinstance(value, (list, tuple)):
        return [item if type(item) in _AS_THEY_ARE else _exact(item) for item in value]
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError(f"canonical JSON has no place for {value!r}")
        return value.hex()
    if isinstance(value, (dict, Mapping)):
        return {key: item if type(item) in _AS_THEY_ARE else _exact(item) for key, item in value.items()}
    return value


def canonical(value: Any) -> bytes:
    """Return compact ASCII JSON with sorted keys and floats as `float.hex()`, so that equal values give equal bytes.

    Raises `ValueError` for NaN and infinities, and `TypeError` for types that JSON does not have.
    """
    return _JSON.encode(_exact(value)).encode("ascii")


def stable_hash(value: Any) -> str:
    """Return the SHA-256 of `canonical(value)` as 64 hex digits."""
    return hashlib.sha256(canonical(value)).hexdigest()


def seasonal(name: str, season: str) -> str:
    """Return `name`, usually a split, as part of a stream's key, with the season appended unless it is `""`.

    All task generators use it in their keys, so a season changes all their streams, and `""` changes none.
    """
    return f"{name}@{season}" if season else name


class Stream:
    """A deterministic stream of random draws, identified by a key.

    Block *i* is the SHA-256 of the 32-byte digest of the canonical key, followed by *i* as 8 big-endian bytes. A block
    gives eight 32-bit big-endian words, and every method consumes whole words in order. Streams can be pickled and
    copied.

    Args:
        key: JSON-serialisable parts, for example `Stream("sokoban", "train", 17)`.
    """

    __slots__ = ("_counter", "_prefix", "_words", "key")

    def __init__(self, *key: Any) -> None:
        self.key = key
        self._prefix = hashlib.sha256(canonical(list(key))).digest()
        self._counter = 0
        self._words: list[int] = []

    def __repr__(self) -> str:
        return f"Stream{self.key!r}"

    def __copy__(self) -> Stream:
        return copy.deepcopy(self)  # copies must not share the list of words

    def child(self, *more: Any) -> Stream:
        """Return an independent stream with the key of this one and `more`. This stream does not advance."""
        return Stream(*self.key, *more)

    def word(self) -> int:
        """Return the next 32-bit word."""
        if not self._words:
            block = hashlib.sha256(self._prefix + self._counter.to_bytes(8, "big")).digest()
            self._counter += 1
            self._words = list(_WORDS_OF_BLOCK.unpack(block))
            self._words.reverse()
        return self._words.pop()

    def below(self, n: int) -> int:
        """Return an integer in `range(n)`, exactly uniform. Raises `ValueError` if `n` < 1.

        Up to 2**32 the method is multiply-and-shift of one word with rejection, above it is rejection of whole words.
        """
        if n < 1:
            raise ValueError(f"below() needs n >= 1, got {n}")
        if n <= _WORD:
            product = self.word() * n
            if product & 0xFFFFFFFF < n:
                threshold = (_WORD - n) % n
                while product & 0xFFFFFFFF < threshold:
                    product = self.word() * n
            return product >> 32
        bits = (n - 1).bit_length()
        count = -(-bits // 32)
        while True:
            value = 0
            for _ in range(count):
                value = value << 32 | self.word()
            value >>= 32 * count - bits
            if value < n:
                return value

    def uniform(self) -> float:
        """Return a float in [0, 1) with 53 random bits (two words)."""
        return ((self.word() >> 5) << 26 | self.word() >> 6) / (1 << 53)

    def choice(self, items: Sequence[T]) -> T:
        """Return one of `items`, drawn uniformly. Raises `ValueError` if there are none."""
        return items[self.below(len(items))]

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Shuffle `items` in place (Fisher-Yates from the end)."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Return `count` elements of `items` at different places, in random order. Raises `ValueError` for too few."""
        if count > len(items):
            raise ValueError(f"cannot draw {count} different elements from {len(items)}")
        pool = list(items)
        self.shuffle(pool)
        return pool[:count]


def task_identity(env_id: str, dynamics: Mapping[str, Any], data: Mapping[str, str], content: Any) -> str:
    """Return the identity of a decision problem: the name of the environment and 24 hex digits.

    The hash covers the id of the text environment, the settings `dynamics`, the digests of the data (not their names,
    because renamed data stays the same) and the JSON-serialisable task `content`.
    """
    name = env_id.rpartition("/")[2].rpartition("-v")[0].lower()
    return f"{name}:{stable_hash([env_id, dynamics, sorted(data.values()), content])[:24]}"


def choose_task(
    rng: np.random.Generator,
    seed: int | None,
    fixed: object,
    num_tasks: int,
    split: str,
    among: Sequence[int] | npt.NDArray[np.int64] | None = None,
) -> tuple[int, int]:
    """Return the task of a new episode and 64 random bits for its noise.

    The task is `fixed`; if that is None, it is drawn from `among`, or from all tasks. A fixed task without a seed does
    not use `rng`, and its bits are 0. Raises `UnknownTask` if the fixed task does not exist.
    """
    # Raw bits are the only output of NumPy that is guaranteed across versions.
    bits = 0 if fixed is not None and seed is None else int(rng.bit_generator.random_raw())
    if fixed is not None:
        return check_task(fixed, num_tasks, split), bits
    return draw_task(bits, num_tasks) if among is None else int(among[draw_task(bits, len(among))]), bits


def draw_task(bits: int, num_tasks: int) -> int:
    """Return the task for 64 random bits: the task at the fraction `bits / 2**64` of the split.

    This is one multiplication, so batched environments can draw many tasks at once. The bias is below
    `num_tasks / 2**64`.
    """
    return bits * num_tasks >> 64


def check_task(task: object, num_tasks: int, split: str) -> int:
    """Return `task` as an index into the split. Raises `UnknownTask` unless it is an integer in `range(num_tasks)`."""
    try:
        index = operator.index(cast("SupportsIndex", task))
    except TypeError:
        index = -1
    if isinstance(task, bool) or not 0 <= index < num_tasks:
        raise UnknownTask(f"task {task!r} does not exist: split {split!r} has the tasks 0 to {num_tasks - 1}")
    return index
