"""Which documents have the highest scores for some terms, without giving every document a score.

`plain` adds up the scores of all documents that have a term. `Ranker.best` finds the same by looking at fewer, with the
MaxScore rule of Turtle and Flood ("Query evaluation: strategies and optimizations", 1995): no term gives more than its
weight, so once k documents have more than the weights of all common terms together, only documents with one of the
rarer terms can be among the k best. What stays is scored as `plain` does it: scores and order are the same to the last
bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FEW = 100_000
"""With fewer postings than this, a document counting as a tenth of one, nothing is faster than adding them all up."""

_MARGIN = 1e-6
"""A lead by less than this share may be due to the order of a sum, or may vanish when it is rounded to 32 bits."""

Ties = npt.NDArray[np.int32]
"""(documents,): a rank for each document, all different: of equal scores the lower rank comes first."""

_Documents = npt.NDArray[np.int32]
_Scores = npt.NDArray[np.float32]
_Sums = npt.NDArray[np.float64]


class Postings(NamedTuple):
    """Where a term of a query stands.

    Attributes:
        documents: ascending, at least one.
        saturations: as many: 1 + f / norm.
        weight: (times in the query) * idf: no document gets more for the term.
    """

    documents: _Documents
    saturations: _Scores
    weight: np.float32


class Ranker:
    """Ranks the documents of one index; safe in threads.

    Args:
        num_documents: how many documents there are.
        ties: (num_documents,): where each document stands among those of equal score; None: by number.
    """

    def __init__(self, num_documents: int, ties: Ties | None = None) -> None:
        self._num_documents = num_documents
        self._ties = ties
        self._spare: list[_Sums] = []  # arrays of zeros: making one for each query would take longer than the query

    def best(self, terms: Sequence[Postings], k: int) -> tuple[_Documents, _Scores]:
        """Return the k best documents that have a term, and their scores; best first."""
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
    """Return what `Ranker.best` returns, from the scores of all documents that have a term."""
    sums = np.zeros(num_documents, np.float64)
    met = np.zeros(num_documents, np.bool_)
    for term in terms:
        sums[term.documents] += _given(term)
        met[term.documents] = True
    found = np.flatnonzero(met).astype(np.int32)
    return _first(found, sums[found].astype(np.float32), k, ties)


class _Query:
    """One query.

    Args:
        terms: rarest first.
        k: how many documents are wanted.
        sums: zeros, one for each document; they are zeros again at the end.
    """

    def __init__(self, terms: Sequence[Postings], k: int, sums: _Sums) -> None:
        self._terms = terms
        self._k = k
        self._sums = sums
        weights = [float(term.weight) for term in terms]
        self._left = [math.fsum(weights[number:]) for number in range(len(weights) + 1)]
        self._pool = np.zeros(0, np.int32)  # the best documents so far, at most k
        self._bar = 0.0  # k documents are known to score as much

    def contenders(self) -> _Documents | None:
        """Return documents in order, among them all that can be of the k best; None when too few have a term."""
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
        """Complete the scores of some promising documents, those with the best sums for the newest term."""
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
        """Return the documents of the terms that were added up, without those that the other terms cannot help."""
        documents = np.concatenate([term.documents for term in self._terms[:summed]])
        found = _distinct(documents[self._sums[documents] + self._left[summed] >= self._bar])
        sums = self._sums[found]
        for number in range(summed, len(self._terms)):
            _look_up(self._terms[number], found, sums)
            able = sums + self._left[number + 1] >= self._bar
            found, sums = found[able], sums[able]
        return found


def _distinct(documents: _Documents) -> _Documents:
    """Return different documents in order; NumPy's own `unique` takes several times as long."""
    ordered = np.sort(documents)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def _look_up(term: Postings, found: _Documents, sums: _Sums) -> None:
    """Add to `sums` what the term gives to the documents `found`."""
    at = np.searchsorted(term.documents, found)
    at[at == len(term.documents)] = 0
    has = term.documents[at] == found
    sums[has] += term.weight - term.weight / term.saturations[at[has]]


def _given(term: Postings) -> _Scores:
    """Return what a term gives to its documents: at least 0 and at most its weight."""
    return term.weight - term.weight / term.saturations


def _first(found: _Documents, scores: _Scores, k: int, ties: Ties | None) -> tuple[_Documents, _Scores]:
    """Return the k best of `found`, which are ascending."""
    if len(found) > k:
        enough = scores >= np.partition(scores, len(scores) - k)[-k]
        found, scores = found[enough], scores[enough]
    order = np.lexsort((found if ties is None else ties[found], -scores))[:k]
    return found[order], scores[order]
