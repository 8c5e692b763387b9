"""Compute the first raw bits of many seeded NumPy generators at once.

Creating a NumPy generator takes about 15 microseconds, which would be most of the time of the first reset of thousands
of boards. The bits are equal to those of NumPy, which guarantees the streams of `SeedSequence` and `PCG64`; tests
compare them. Arithmetic on arrays is modulo 2**32 and 2**64 without warnings.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Doubles = npt.NDArray[np.uint64]

LARGEST_SEED = (1 << 64) - 1

_POOL = 4
_INIT_A, _MULT_A, _INIT_B, _MULT_B = 0x43B0D7E5, 0x931E8875, 0x8B51F9DD, 0x58F38DED
_MIX_LEFT, _MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_HALF = np.uint32(16)

_MULT_HIGH, _MULT_LOW = np.uint64(2549297995355413924), np.uint64(4865540595714422341)
_LOW_WORD, _WORD = np.uint64(0xFFFFFFFF), np.uint64(32)
_ONE = np.uint64(1)


def first_raw_bits(seeds: Doubles, count: int) -> Doubles:
    """Return the first `count` values of `PCG64(SeedSequence(seed)).random_raw` for each seed.

    Args:
        seeds: `uint64[seeds]`.
        count: how many.

    Returns:
        `uint64[seeds, count]`.
    """
    state_high, state_low, sequence_high, sequence_low = _generated(_mixed(seeds))
    increment = sequence_high << _ONE | sequence_low >> np.uint64(63), sequence_low << _ONE | _ONE
    high, low = _add(*increment, state_high, state_low)  # a first step from 0 leaves the increment
    high, low = _step(high, low, increment)
    drawn = np.empty((len(seeds), count), np.uint64)
    for index in range(count):
        high, low = _step(high, low, increment)
        folded, turn = high ^ low, high >> np.uint64(58)
        drawn[:, index] = folded >> turn | folded << (-turn & np.uint64(63))
    return drawn


# ---------------------------------------------------------------- SeedSequence
def _mixed(seeds: Doubles) -> list[Words]:
    """Return the entropy pool of each seed."""
    constant = _INIT_A

    def hashed(value: Words) -> Words:
        nonlocal constant
        value = value ^ np.uint32(constant)
        constant = constant * _MULT_A & 0xFFFFFFFF
        value = value * np.uint32(constant)
        return value ^ value >> _HALF

    words = (seeds & _LOW_WORD).astype(np.uint32), (seeds >> _WORD).astype(np.uint32)
    pool = [hashed(words[index] if index < 2 else np.zeros_like(words[0])) for index in range(_POOL)]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                mixed = _MIX_LEFT * pool[target] - _MIX_RIGHT * hashed(pool[source])
                pool[target] = mixed ^ mixed >> _HALF
    return pool


def _generated(pool: list[Words]) -> list[Doubles]:
    """Return the four `uint64` that initialise a generator."""
    constant, words = _INIT_B, []
    for index in range(8):
        value = pool[index % _POOL] ^ np.uint32(constant)
        constant = constant * _MULT_B & 0xFFFFFFFF
        value = value * np.uint32(constant)
        words.append((value ^ value >> _HALF).astype(np.uint64))
    return [low | high << _WORD for low, high in zip(words[::2], words[1::2], strict=True)]


# ---------------------------------------------------------------- PCG64: numbers of 128 bits in two halves
def _step(high: Doubles, low: Doubles, increment: tuple[Doubles, Doubles]) -> tuple[Doubles, Doubles]:
    upper, product = _product(low)
    return _add(upper + high * _MULT_LOW + low * _MULT_HIGH, product, *increment)


def _product(number: Doubles) -> tuple[Doubles, Doubles]:
    """Return both halves of the product of `number` and the lower half of the multiplier."""
    a, b = number >> _WORD, number & _LOW_WORD
    c, d = _MULT_LOW >> _WORD, _MULT_LOW & _LOW_WORD
    lowest = b * d
    middle = a * d + (lowest >> _WORD)
    other = b * c + (middle & _LOW_WORD)
    return a * c + (middle >> _WORD) + (other >> _WORD), number * _MULT_LOW


def _add(high: Doubles, low: Doubles, more_high: Doubles, more_low: Doubles) -> tuple[Doubles, Doubles]:
    total = low + more_low
    return high + more_high + (total < low), total
