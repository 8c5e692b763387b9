"""The part of Lucene's `BM25Similarity` that is computed when an index is built."""

from __future__ import annotations

import math
from decimal import Context, Decimal

import numpy as np
import numpy.typing as npt

from agentgym_flow.errors import BadSetting

_LN_DIGITS = Context(prec=30)
_EXACT_LENGTHS = 24


def check_settings(k1: float, b: float) -> None:
    """Raise `BadSetting` if `k1` or `b` is out of range."""
    if not 0 < k1 < math.inf:
        raise BadSetting(f"k1 must be a positive number, got {k1!r}")
    if not 0 <= b <= 1:
        raise BadSetting(f"b must be from 0 to 1, got {b!r}")


def byte_of_length(length: int) -> int:
    """Encode the length of a document in terms as one byte, like Lucene (`SmallFloat.intToByte4`).

    Lengths below 24 are exact. Of the excess over 24, the four highest bits are kept.
    """
    rest = length - _EXACT_LENGTHS
    if rest < 8:
        return length
    shift = rest.bit_length() - 4
    return _EXACT_LENGTHS + ((shift + 1) << 3 | rest >> shift & 7)


def length_of_byte(byte: int) -> int:
    """Return the smallest length that `byte_of_length` encodes as `byte`."""
    rest = byte - _EXACT_LENGTHS
    if rest < 8:
        return byte
    return _EXACT_LENGTHS + ((rest & 7 | 8) << (rest >> 3) - 1)


def idf(frequencies: npt.NDArray[np.int64], documents: int) -> npt.NDArray[np.float32]:
    """Return the idf of each term, with a correctly rounded logarithm: math libraries differ in the last bit."""

    def of(n: int) -> np.float32:
        return np.float32(float(Decimal(1 + (documents - n + 0.5) / (n + 0.5)).ln(_LN_DIGITS)))

    different, which = np.unique(frequencies, return_inverse=True)
    return np.array([of(n) for n in different.tolist()], np.float32)[which]


def inverse_norms(lengths: npt.NDArray[np.int64], k1: float, b: float) -> npt.NDArray[np.float32]:
    """Return 1 / (k1 (1 - b + b L / mean)) for each document, in 32-bit floats from the byte that keeps L."""
    mean = np.float32(lengths.sum() / max((lengths > 0).sum(), 1))
    one = np.float32(1)
    inverse = np.zeros(256, np.float32)  # an empty document has no posting that asks for its own
    if mean:
        kept = np.array([length_of_byte(byte) for byte in range(1, 256)], np.float32)
        inverse[1:] = one / (np.float32(k1) * ((one - np.float32(b)) + np.float32(b) * kept / mean))
    different, which = np.unique(lengths, return_inverse=True)
    return inverse[[byte_of_length(length) for length in different.tolist()]][which]
