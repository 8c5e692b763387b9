"""Finds the documents with the highest scores for a query without scoring every document.

`plain` adds up the scores of all documents that contain a term. `Ranker.best` returns the same result with less work,
by the MaxScore rule of Turtle and Flood ("Query evaluation: strategies and optimizations", 1995): a term contributes at
most its weight, so once k documents score more than the weights of all common terms together, only documents with one
of the rarer terms can be among the best k. The remaining candidates are scored like in `plain`, so scores and order are
identical to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FEW = 100_000
"""With fewer postings than this (a document counts as a tenth of a posting), `plain` is fastest."""

_MARGIN = 1e-6
"""Smaller relative differences may result from the order of summation, or vanish when rounded to 32 bits."""

Ties = npt.NDArray[np.int32]
"""(documents,): a unique rank for each document; among equal scores, lower ranks come first."""

_Documents = npt.NDArray[np.int32]
_Scores = npt.NDArray[np.float32]
_Sums = npt.NDArray[np.float64]


class Postings(NamedTuple):
    """The postings of a query term.

    Attributes:
        documents: the documents that contain the term, ascending, at least one.
        saturations: 1 + f / norm for each document.
        weight: (count in the query) * idf, an upper bound of the term's contribution.
    """

    documents: _Documents
    saturations: _Scores
    weight: np.float32


class Ranker:
    """Ranks the documents of one index. Thread-safe.

    Args:
        num_documents: the number of documents.
        ties: (num_documents,): the order of documents with equal scores; None for document order.
    """

    def __init__(self, num_documents: int, ties: Ties | None = None) -> None:
        self._num_documents = num_documents
        self._ties = ties
        self._spare: list[_Sums] = []  # arrays of zeros for reuse; allocating one may take longer than a query

    def best(self, terms: Sequence[Postings], k: int) -> tuple[_Documents, _Scores]:
        """Return the best k documents that contain a term, and their scores; best first."""
        if sum(len(term.documents) for term in terms) + self._num_documents / 10 < FEW:
            return plain(terms, k, self._num_documents, self._ties)
        try:
            sums = self._spare.pop()
        except IndexError:
            sums = np.zeros(self._num_documents, np.float64)
        found = _Query(sorted(terms, key=lambda term: len(term.documents)), k, sums).contenders()
        self._spare.append(sums)
        if found is None:
            return plain(terms, k, self._num_documents, self._ties)
        exact = np.zeros(len(found), np.float64)
        for term in terms:
            _look_up(term, found, exact)
        return _first(found, exact.astype(np.float32), k, self._ties)


def plain(
    terms: Sequence[Postings], k: int, num_documents: int, ties: Ties | None = None
) -> tuple[_Documents, _Scores]:
    """Return the result of `Ranker.best` by scoring all documents that contain a term."""
    sums = np.zeros(num_documents, np.float64)
    met = np.zeros(num_documents, np.bool_)
    for term in terms:
        sums[term.documents] += _given(term)
        met[term.documents] = True
    found = np.flatnonzero(met).astype(np.int32)
    return _first(found, sums[found].astype(np.float32), k, ties)


class _Query:
    """The evaluation of one query.

    Args:
        terms: the terms, rarest first.
        k: the number of documents to find.
        sums: a zero for each document; reset to zeros at the end.
    """

    def __init__(self, terms: Sequence[Postings], k: int, sums: _Sums) -> None:
        self._terms = terms
        self._k = k
        self._sums = sums
        weights = [float(term.weight) for term in terms]
        self._left = [math.fsum(weights[number:]) for number in range(len(weights) + 1)]
        self._pool = np.zeros(0, np.int32)  # the best documents so far, at most k
        self._bar = 0.0  # at least k documents score this much

    def contenders(self) -> _Documents | None:
        """Return a superset of the best k documents, in order; None if too few documents contain a term."""
        summed = 0
        while summed < len(self._terms) and not self._left[summed] < self._bar:
            self._add_up(self._terms[summed])
            summed += 1
            self._raise_bar(summed)
        found = self._narrowed(summed) if self._bar else None
        for term in self._terms[:summed]:
            self._sums[term.documents] = 0
        return found

    def _add_up(self, term: Postings) -> None:
        self._sums[term.documents] += _given(term)

    def _raise_bar(self, summed: int) -> None:
        """Compute the full scores of the documents with the best partial sums, to raise the bar."""
        documents = self._terms[summed - 1].documents
        if len(documents) > self._k:
            documents = documents[np.argpartition(self._sums[documents], -self._k)[-self._k :]]
        pool = _distinct(np.concatenate([self._pool, documents]))
        scores = self._sums[pool]
        for term in self._terms[summed:]:
            _look_up(term, pool, scores)
        if len(pool) >= self._k:
            best = np.argpartition(scores, -self._k)[-self._k :]
            pool, scores = pool[best], scores[best]
            self._bar = max(self._bar, float(scores.min()) * (1 - _MARGIN))
        self._pool = pool

    def _narrowed(self, summed: int) -> _Documents:
        """Return the documents of the summed terms that can still reach the bar."""
        documents = np.concatenate([term.documents for term in self._terms[:summed]])
        found = _distinct(documents[self._sums[documents] + self._left[summed] >= self._bar])
        sums = self._sums[found]
        for number in range(summed, len(self._terms)):
            _look_up(self._terms[number], found, sums)
            able = sums + self._left[number + 1] >= self._bar
            found, sums = found[able], sums[able]
        return found


def _distinct(documents: _Documents) -> _Documents:
    """Sort and remove duplicates; several times faster than `np.unique`."""
    ordered = np.sort(documents)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def _look_up(term: Postings, found: _Documents, sums: _Sums) -> None:
    """Add the contribution of a term to `sums`, the scores of the documents `found`."""
    at = np.searchsorted(term.documents, found)
    at[at == len(term.documents)] = 0
    has = term.documents[at] == found
    sums[has] += term.weight - term.weight / term.saturations[at[has]]


def _given(term: Postings) -> _Scores:
    """Return the contributions of a term to its documents, between 0 and its weight."""
    return term.weight - term.weight / term.saturations


def _first(found: _Documents, scores: _Scores, k: int, ties: Ties | None) -> tuple[_Documents, _Scores]:
    """Return the best k of `found`, which is ascending."""
    if len(found) > k:
        enough = scores >= np.partition(scores, len(scores) - k)[-k]
        found, scores = found[enough], scores[enough]
    order = np.lexsort((found if ties is None else ties[found], -scores))[:k]
    return found[order], scores[order]
