"""BM25 with Lucene's scores and rankings: an inverted index of NumPy arrays, in memory or mapped from a folder.

For N non-empty documents, of which n contain term t, and a document of length L that contains t f times:

    idf(t)      = ln(1 + (N - n + 0.5) / (n + 0.5))
    score(t, d) = w - w / (1 + f / (k1 (1 - b + b L / mean length))),   w = (count of t in the query) * idf(t)

as in Lucene's `BM25Similarity` (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond",
2009, without the constant factor k1 + 1). Lucene's arithmetic decides near-ties, so it is reproduced: L is stored in
one byte, the score of a term is a 32-bit float, scores are added as 64-bit floats, and the sum is rounded to 32 bits.
Equal scores rank by document number, or in an order given by the caller (Anserini orders by document id). IEEE 754
rounds every operation exactly, so rankings are the same on all machines.

`plain` adds up the scores of all documents that contain a term. `Ranker.best` returns the same result with less work,
by the MaxScore rule of Turtle and Flood ("Query evaluation: strategies and optimizations", 1995): a term contributes at
most its weight, so once k documents score more than the weights of all common terms together, only documents with one
of the rarer terms can be among the best k. The remaining candidates are scored like in `plain`, so scores and order are
identical to the last bit.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.sharing import Shared
from agentgym_flow.errors import BadIndex, BadSetting
from agentgym_flow.retrieval.analyser import analyse
from agentgym_flow.retrieval.index_files import (
    Arrays,
    MergedSegments,
    SegmentBuilder,
    check_settings,
    digest_of,
    read_folder,
    write_folder,
)

PROGRESS_EVERY = 1000
"""The number of documents between two progress reports."""

REMEMBERED = 1 << 16
"""The number of query terms whose numbers are cached: a lookup takes longer than ranking a few documents."""


class DocumentHit(NamedTuple):
    """A document that a query found: its number, from 0 in the order of building, and its score."""

    document: int
    score: float


class BM25(Shared):
    """A read-only index, created by `build` or `open`. It can be shared by threads and, if opened, by processes.

    A pickle of an opened index contains only the name of its folder.

    Attributes:
        digest: SHA-256 of the content in hexadecimal, a function of the texts and settings, but not of `ties`.
    """

    def __init__(
        self, arrays: Arrays, settings: dict[str, Any], folder: str | None = None, ties: Ties | None = None
    ) -> None:
        self._arrays = arrays
        self._settings = settings
        self._folder = folder
        self.digest = digest_of(arrays, settings) if folder is None else settings["digest"]
        self._starts = arrays["starts"]
        # Plain buffers, because reading single values from them is faster.
        self._terms = np.ascontiguousarray(arrays["terms"]).data
        self._ends = np.ascontiguousarray(arrays["term_ends"], np.int64).data
        if ties is not None and len(ties) != len(self):
            raise BadSetting(f"ties has {len(ties)} ranks, and there are {len(self)} documents")
        self._ties = ties
        self._ranker = Ranker(len(self), ties)
        self._looked_up: dict[bytes, int] = {}

    @classmethod
    def build(
        cls,
        texts: Iterable[str],
        *,
        k1: float = 0.9,
        b: float = 0.4,
        ties: Ties | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> Self:
        """Index `texts`, which are iterated once. The default parameters are those of Anserini and Pyserini.

        Args:
            texts: one text per document; the first is document 0.
            k1: term-frequency saturation, positive.
            b: length normalisation, from 0 to 1.
            ties: (documents,): a rank for each document; among equal scores, lower ranks come first. By default, the
                order of the documents.
            progress: called with the number of documents read, every `PROGRESS_EVERY` documents and at the end.

        Raises `BadData` if there is no document, and `BadSetting` if `k1` or `b` is out of range or `ties` has another
        length.
        """
        check_settings(k1, b)
        gathered = SegmentBuilder()
        for text in texts:
            gathered.add(text)
            if progress and len(gathered) % PROGRESS_EVERY == 0:
                progress(len(gathered))
        if progress and len(gathered):
            progress(len(gathered))
        merged = MergedSegments([gathered.run()], k1, b)
        return cls(merged.arrays(), merged.settings, ties=ties)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, ties: Ties | None = None, verify: bool = True) -> Self:
        """Map an index written by `save`; pages are read on demand and shared between processes.

        Args:
            folder: the folder of the index.
            ties: as in `build`; the folder does not store them.
            verify: read every file and compare its digest, which takes about a second per gigabyte.

        Raises `BadIndex` if the folder is missing, damaged, or of another version, and `BadSetting` if `ties` has
        another length.
        """
        arrays, settings = read_folder(folder, verify=verify)
        return cls(arrays, settings, os.path.abspath(folder), ties)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the index to a new folder, atomically.

        Raises `OSError` with the name of the folder if it exists or cannot be written.
        """
        settings = {name: value for name, value in self._settings.items() if name != "digest"}
        sizes = {name: len(values) for name, values in self._arrays.items()}
        write_folder(folder, sizes, [self._arrays], settings)

    def __len__(self) -> int:
        """Return the number of documents."""
        return int(self._settings["documents"])

    def __repr__(self) -> str:
        return f"<BM25 of {len(self):,} documents, {len(self._starts) - 1:,} terms>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._folder is None:
            return type(self), (self._arrays, self._settings, None, self._ties)
        return _reopened, (type(self), self._folder, self.digest, self._ties)

    def search(self, query: str, k: int = 10) -> list[DocumentHit]:
        """Return the `k` best documents that contain a term of `query`, best first; fewer if fewer contain one.

        Raises `BadSetting` if `k` is below 1, and `BadIndex` if the index turns out to be damaged.
        """
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int = 10) -> list[list[DocumentHit]]:
        """Return the results of `search` for each query. Raises like `search`."""
        if k < 1:
            raise BadSetting(f"k must be at least 1, got {k}")
        try:
            return [self._best(Counter(analyse(query)), k) for query in queries]
        except (IndexError, ValueError, OverflowError) as error:  # numbers of documents or terms are out of range
            raise BadIndex(f"the index at {self._folder} is damaged ({error}); build it again") from error

    def _best(self, query: Counter[str], k: int) -> list[DocumentHit]:
        # In the order of term numbers, so that the order of the words cannot affect the rounding of a sum.
        numbered = sorted((self._number(term.encode()), times) for term, times in query.items())
        terms = []
        for number, times in numbered:
            if number >= 0:
                span = slice(self._starts[number], self._starts[number + 1])
                weight = np.float32(times) * self._arrays["idf"][number]
                terms.append(Postings(self._arrays["documents"][span], self._arrays["saturations"][span], weight))
        if not terms:
            return []
        documents, scores = self._ranker.best(terms, k)
        return [
            DocumentHit(document, score) for document, score in zip(documents.tolist(), scores.tolist(), strict=True)
        ]

    def _number(self, term: bytes) -> int:
        """Return the number of `term` in the sorted table of terms, or -1."""
        known = self._looked_up.get(term)
        if known is not None:
            return known
        number = bisect_left(range(len(self._starts) - 1), term, key=self._term)
        if number == len(self._starts) - 1 or self._term(number) != term:
            number = -1
        if len(self._looked_up) >= REMEMBERED:
            self._looked_up.clear()
        self._looked_up[term] = number
        return number

    def _term(self, number: int) -> bytes:
        return self._terms[self._ends[number] : self._ends[number + 1]].tobytes()


def _reopened(kind: type[BM25], folder: str, digest: str, ties: Ties | None) -> BM25:
    """Restore a pickled index. Raises `BadIndex` if the folder has another index now."""
    index = kind.open(folder, ties=ties, verify=False)
    if index.digest != digest:
        raise BadIndex(f"the index at {folder} is not the one that was pickled; it was replaced since")
    return index


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
