"""Runs: the postings of some consecutive documents, and how runs become the arrays of one index.

A small corpus is one run in memory. A large one is many runs on disk, which are read in blocks of terms and merged:
memory then depends on the number of different terms and on the size of a block, not on the number of postings.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agentgym_flow.errors import BadData
from agentgym_flow.retrieval.analyser import analyse
from agentgym_flow.retrieval.index_folder import Arrays
from agentgym_flow.retrieval.similarity import check_settings, idf, inverse_norms

_BLOCK = 1 << 22  # postings that are merged at a time: 32 MB of the index


class IndexSegment(NamedTuple):
    """What is indexed of consecutive documents.

    Attributes:
        terms: the terms in UTF-8, sorted, one after the other.
        term_ends: (terms + 1,): where a term starts and ends in `terms`, in bytes.
        starts: (terms + 1,): where a term's postings start and end.
        documents: (postings,): numbers in the whole corpus, ascending within a term.
        times: (postings,): how often the term stands in the document.
        lengths: (documents,): terms a document, repeats included.
    """

    terms: npt.NDArray[np.uint8]
    term_ends: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int32]
    times: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int64]


class _Numbers(dict[str, int]):
    """Term -> a number, given when the term is met first."""

    def __missing__(self, term: str) -> int:
        self[term] = number = len(self)
        return number


class SegmentBuilder:
    """Gathers the texts of one run.

    Args:
        first: the number of the first document.
    """

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self._numbers = _Numbers()
        self._terms = array("i")
        self._lengths = array("q")

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._lengths)

    @property
    def size(self) -> int:
        """The number of terms in all documents; a run takes about 30 bytes for each while it is made."""
        return len(self._terms)

    def add(self, text: str) -> None:
        """Take in the next document."""
        before = len(self._terms)
        self._terms.extend(map(self._numbers.__getitem__, analyse(text)))
        self._lengths.append(len(self._terms) - before)

    def run(self) -> IndexSegment:
        """Return the run: postings by term in the order of their spelling, and then by document."""
        spelled = sorted(self._numbers)  # by code points, which is the order of UTF-8, too
        names = [term.encode() for term in spelled]
        place = np.empty(len(spelled), np.int64)
        place[[self._numbers[term] for term in spelled]] = np.arange(len(spelled))
        lengths = np.array(self._lengths, np.int64)
        every = max(len(lengths), 1)
        # One number for the term and the document that it stands in: sorted, equal ones are together.
        postings = place[np.asarray(self._terms)] * every
        postings += np.repeat(np.arange(len(lengths)), lengths)
        postings, times = np.unique(postings, return_counts=True)
        terms, documents = np.divmod(postings, every)
        return IndexSegment(
            np.frombuffer(b"".join(names), np.uint8),
            running([len(name) for name in names]),
            running(np.bincount(terms, minlength=len(names))),
            (documents + self._first).astype(np.int32),
            times.astype(np.int32),
            lengths,
        )


class MergedSegments:
    """The arrays of the index over some runs, whose documents follow one another.

    Args:
        runs: in the order of their documents; arrays may be mapped.
        k1: how slowly repeats of a term saturate, above 0.
        b: how much a document's length counts, from 0 to 1.

    Attributes:
        settings: what the index says of itself besides the arrays.

    Raises `BadSetting` for a `k1` or `b` out of range, and `BadData` when there is no document.
    """

    def __init__(self, runs: Sequence[IndexSegment], k1: float, b: float) -> None:
        check_settings(k1, b)
        self._runs = runs
        lengths = np.concatenate([run.lengths for run in runs]) if runs else np.zeros(0, np.int64)
        if not len(lengths):
            raise BadData("there is no document to index: the texts are empty")
        self.settings = {"documents": len(lengths), "k1": float(k1), "b": float(b)}
        self._inverse_norms = inverse_norms(lengths, k1, b)
        terms, term_ends, self._places = _merged_terms(runs)
        frequencies = np.zeros(len(term_ends) - 1, np.int64)
        for run, places in zip(runs, self._places, strict=True):
            frequencies[places] += np.diff(run.starts)
        self._starts = running(frequencies)
        self._small: Arrays = {
            "terms": terms,
            "term_ends": term_ends,
            "starts": self._starts,
            "idf": idf(frequencies, int((lengths > 0).sum())),
        }

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the arrays by name."""
        postings = int(self._starts[-1])
        small = {name: len(values) for name, values in self._small.items()}
        return {**small, "documents": postings, "saturations": postings}

    def arrays(self) -> Arrays:
        """Return the arrays, whole and in memory."""
        found = dict(self._small)
        found["documents"] = np.empty(self.sizes["documents"], np.int32)
        found["saturations"] = np.empty(self.sizes["saturations"], np.float32)
        for first, last in _blocks(self._starts):
            for name, values in self._block(first, last).items():
                found[name][self._starts[first] : self._starts[last]] = values
        return found

    def pieces(self, progress: Callable[[int, int], object] | None = None) -> Iterator[Arrays]:
        """Yield consecutive pieces of the arrays, by name; `progress` gets the postings done and their total."""
        yield self._small
        for first, last in _blocks(self._starts):
            yield self._block(first, last)
            if progress:
                progress(int(self._starts[last]), int(self._starts[-1]))

    def _block(self, first: int, last: int) -> Arrays:
        """Return the postings of the terms from `first` to before `last`."""
        begin = self._starts[first]
        documents = np.empty(self._starts[last] - begin, np.int32)
        saturations = np.empty(len(documents), np.float32)
        free = self._starts[first:last] - begin  # where a term's next posting goes
        for run, places in zip(self._runs, self._places, strict=True):
            low, high = np.searchsorted(places, [first, last])
            starts = run.starts[low : high + 1]
            span = slice(starts[0], starts[-1])
            terms, sizes = places[low:high] - first, np.diff(starts)
            to = np.repeat(free[terms] - starts[:-1], sizes) + np.arange(span.start, span.stop)
            free[terms] += sizes
            documents[to] = run.documents[span]
            times = run.times[span].astype(np.float32)
            saturations[to] = np.float32(1) + times * self._inverse_norms[run.documents[span]]
        return {"documents": documents, "saturations": saturations}


def _blocks(starts: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield (first, last) for blocks of terms with at most `_BLOCK` postings, or one term with more."""
    first, terms = 0, len(starts) - 1
    while first < terms:
        last = max(int(np.searchsorted(starts, starts[first] + _BLOCK, "right")) - 1, first + 1)
        yield first, last
        first = last


def _merged_terms(
    runs: Sequence[IndexSegment],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]:
    """Return all terms and their ends, and for each run the numbers that its terms have among all."""
    if len(runs) == 1:
        return runs[0].terms, runs[0].term_ends, [np.arange(len(runs[0].starts) - 1)]
    names, ends = bytearray(), array("q", [0])
    places = [array("q") for _ in runs]
    previous = None
    for name, number in heapq.merge(*(_named(run, number) for number, run in enumerate(runs))):
        if name != previous:
            names += name
            ends.append(len(names))
            previous = name
        places[number].append(len(ends) - 2)
    return np.frombuffer(names, np.uint8), np.array(ends, np.int64), [np.array(place, np.int64) for place in places]


def _named(run: IndexSegment, number: int) -> Iterator[tuple[bytes, int]]:
    """Yield each term of a run with the run's number."""
    names = run.terms.tobytes()
    for start, end in pairwise(run.term_ends.tolist()):
        yield names[start:end], number


def running(sizes: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return 0 and the running sums of `sizes`."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, np.int64))])
