"""The arrays of an index: made from segments, the postings of consecutive documents, and stored in a folder.

A small corpus is one segment in memory. A large corpus has many on disk, which are merged in blocks of terms, so memory
depends on the number of different terms and the block size, not on the number of postings.

The folder has one `.npy` file per array, and `index.json` with the settings, shapes and digests. It is written
atomically. Arrays are memory-mapped. Files may be missing or damaged.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
import os
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Context, Decimal
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.files import write_folder_atomically
from agentgym_flow.core import stable_hash
from agentgym_flow.errors import BadData, BadIndex, BadSetting
from agentgym_flow.retrieval.analyser import analyse


def mapped_array(file: Path, remedy: str, error: type[BadData] = BadIndex) -> npt.NDArray[Any]:
    """Map a `.npy` file of plain numbers. Raises `error`, with the remedy in its message, if it cannot be read."""
    try:
        return np.asarray(np.lib.format.open_memmap(file, mode="r"))
    except FileNotFoundError:
        raise error(f"{file} is missing; {remedy}") from None
    except Exception as cause:  # NumPy parses the header as Python code, so damage can raise anything
        raise error(f"{file} cannot be read ({cause}); {remedy}") from cause


@contextmanager
def json_errors(file: Path, missing: str, remedy: str) -> Iterator[None]:
    """Convert errors of reading and parsing a JSON file into `BadIndex`; `missing` is the message for no file."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise BadIndex(missing) from None
    except OSError as error:
        raise BadIndex(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadIndex(f"{file} is damaged ({error}); {remedy}") from None


Arrays = dict[str, npt.NDArray[Any]]

FORMAT = 1
"""The version of the folder and of everything that determines its content: the analyser, arrays and arithmetic."""

_DTYPES: dict[str, np.dtype[Any]] = {
    "terms": np.dtype("u1"),  # the sorted terms in UTF-8, concatenated
    "term_ends": np.dtype("<i8"),  # (terms + 1,): the boundaries of the terms in `terms`, in bytes
    "starts": np.dtype("<i8"),  # (terms + 1,): the boundaries of the terms' postings
    "idf": np.dtype("<f4"),  # (terms,)
    "documents": np.dtype("<i4"),  # (postings,): ascending within a term
    "saturations": np.dtype("<f4"),  # (postings,): 1 + f / norm
}
_REMEDY = "build it again with BM25.build(texts).save(folder)"


def digest_of(arrays: Arrays, settings: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the arrays and settings, in hexadecimal."""
    return _total({name: _entry(arrays[name]) for name in _DTYPES}, settings)


def write_folder(
    folder: str | os.PathLike[str], sizes: Mapping[str, int], pieces: Iterable[Arrays], settings: Mapping[str, Any]
) -> str:
    """Write an index to a new folder and return its digest.

    Args:
        folder: the folder, which is created atomically.
        sizes: array -> number of values.
        pieces: consecutive pieces of the arrays, by name; one piece at a time is in memory.
        settings: further content of `index.json`, as JSON values.

    Raises `OSError` with the name of the folder if it exists or cannot be written.
    """
    with write_folder_atomically(Path(folder)) as partial, ExitStack() as files:
        arrays = {
            name: files.enter_context(_ArrayFile(partial / f"{name}.npy", dtype, sizes[name]))
            for name, dtype in _DTYPES.items()
        }
        for piece in pieces:
            for name, values in piece.items():
                arrays[name].append(values)
        files.close()
        entries = {name: array.entry() for name, array in arrays.items()}
        digest = _total(entries, settings)
        page = {"format": FORMAT, "settings": {**settings, "digest": digest}, "arrays": entries}
        (partial / "index.json").write_text(json.dumps(page, indent=1) + "\n", "utf-8")
    return digest


class _ArrayFile:
    """A one-dimensional `.npy` file that is written in pieces; a context manager."""

    def __init__(self, path: Path, dtype: np.dtype[Any], size: int) -> None:
        self._dtype = dtype
        self._size = size
        self._hash = hashlib.sha256()
        self._file = path.open("wb")
        header = {"descr": dtype.str, "fortran_order": False, "shape": (size,)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, values: npt.NDArray[Any]) -> None:
        data = _bytes_of(values.astype(self._dtype, copy=False))
        self._hash.update(data)
        self._file.write(data)

    def entry(self) -> dict[str, Any]:
        """Return the entry of the array in `index.json`."""
        return {"dtype": self._dtype.str, "shape": [self._size], "sha256": self._hash.hexdigest()}


def read_folder(folder: str | os.PathLike[str], *, verify: bool) -> tuple[Arrays, dict[str, Any]]:
    """Return the mapped arrays and the settings, including `digest`.

    Raises `BadIndex` if the folder is missing, of another version, or differs from its `index.json`. The content of the
    arrays is compared only with `verify`.
    """
    root = Path(folder)
    page = _page(root)
    entries, settings = page["arrays"], page["settings"]
    arrays = {}
    for name in _DTYPES:
        file = root / f"{name}.npy"
        array = mapped_array(file, _REMEDY)
        found = _entry(array) if verify else {**_form(array), "sha256": entries[name]["sha256"]}
        if found != entries[name]:
            raise BadIndex(f"{file} is not the file that {root / 'index.json'} describes; {_REMEDY}")
        arrays[name] = array
    return arrays, settings


def _page(root: Path) -> dict[str, Any]:
    """Return the content of `index.json`. Raises `BadIndex` unless it has this version and agrees with its digest."""
    file = root / "index.json"
    with json_errors(file, f"there is no index at {root}: {file.name} is missing; {_REMEDY}", _REMEDY):
        page = json.loads(file.read_text("utf-8"))
        version = page["format"]
        if version == FORMAT:
            settings = {name: value for name, value in page["settings"].items() if name != "digest"}
            sound = page["settings"]["digest"] == _total(page["arrays"], settings) and page["arrays"].keys() == set(
                _DTYPES
            )
    if version != FORMAT:
        raise BadIndex(f"the index at {root} has format {version!r}, this version reads {FORMAT}; {_REMEDY}")
    if not sound:
        raise BadIndex(f"{file} is damaged (its digest differs); {_REMEDY}")
    return page  # type: ignore[no-any-return]


def _form(array: npt.NDArray[Any]) -> dict[str, Any]:
    return {"dtype": array.dtype.newbyteorder("<").str, "shape": list(array.shape)}


def _entry(array: npt.NDArray[Any]) -> dict[str, Any]:
    """Return the entry of an array in `index.json`."""
    return {**_form(array), "sha256": hashlib.sha256(_bytes_of(array)).hexdigest()}


def _bytes_of(array: npt.NDArray[Any]) -> memoryview:
    """Return the values as little-endian bytes, as in a file."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).view(np.uint8).data


def _total(entries: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    return stable_hash([FORMAT, dict(settings), dict(entries)])


_BLOCK = 1 << 22  # postings per merge step: 32 MB of the index


class IndexSegment(NamedTuple):
    """The postings of consecutive documents.

    Attributes:
        terms: the sorted terms in UTF-8, concatenated.
        term_ends: (terms + 1,): the boundaries of the terms in `terms`, in bytes.
        starts: (terms + 1,): the boundaries of the terms' postings.
        documents: (postings,): document numbers in the whole corpus, ascending within a term.
        times: (postings,): the number of occurrences of the term in the document.
        lengths: (documents,): the number of terms in each document, with repetitions.
    """

    terms: npt.NDArray[np.uint8]
    term_ends: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int32]
    times: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int64]


class SegmentBuilder:
    """Collects the texts of one run, whose first document has the number `first`."""

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self._numbers: defaultdict[str, int] = defaultdict(count().__next__)  # in order of first occurrence
        self._terms = array("i")
        self._lengths = array("q")

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._lengths)

    @property
    def size(self) -> int:
        """The number of terms in all documents; each takes about 30 bytes of memory."""
        return len(self._terms)

    def add(self, text: str) -> None:
        """Add the next document."""
        before = len(self._terms)
        self._terms.extend(map(self._numbers.__getitem__, analyse(text)))
        self._lengths.append(len(self._terms) - before)

    def run(self) -> IndexSegment:
        """Return the run, with postings sorted by term and then by document."""
        spelled = sorted(self._numbers)  # by code points, which is also the order in UTF-8
        names = [term.encode() for term in spelled]
        place = np.empty(len(spelled), np.int64)
        place[[self._numbers[term] for term in spelled]] = np.arange(len(spelled))
        lengths = np.array(self._lengths, np.int64)
        every = max(len(lengths), 1)
        # One number per pair of term and document, so that `unique` counts the occurrences.
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
    """The arrays of an index over consecutive runs.

    Args:
        runs: the runs in document order; arrays may be mapped.
        k1: term-frequency saturation, positive.
        b: length normalisation, from 0 to 1.

    Attributes:
        settings: the settings of the index.

    Raises `BadSetting` if `k1` or `b` is out of range, and `BadData` if there is no document.
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
        """Return the complete arrays in memory."""
        small, *blocks = self.pieces()
        empty = {"documents": np.zeros(0, np.int32), "saturations": np.zeros(0, np.float32)}
        for name, none in empty.items():
            small[name] = np.concatenate([none, *(block[name] for block in blocks)])
        return small

    def pieces(self, progress: Callable[[int, int], object] | None = None) -> Iterator[Arrays]:
        """Yield consecutive pieces of the arrays, by name; `progress` gets the number of merged and of all postings."""
        yield dict(self._small)
        for first, last in _blocks(self._starts):
            yield self._block(first, last)
            if progress:
                progress(int(self._starts[last]), int(self._starts[-1]))

    def _block(self, first: int, last: int) -> Arrays:
        """Return the postings of the terms in `range(first, last)`."""
        begin = self._starts[first]
        documents = np.empty(self._starts[last] - begin, np.int32)
        saturations = np.empty(len(documents), np.float32)
        free = self._starts[first:last] - begin  # the position of each term's next posting
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
    """Yield (first, last) for blocks of terms with at most `_BLOCK` postings, or a single term with more."""
    first, terms = 0, len(starts) - 1
    while first < terms:
        last = max(int(np.searchsorted(starts, starts[first] + _BLOCK, "right")) - 1, first + 1)
        yield first, last
        first = last


def _merged_terms(
    runs: Sequence[IndexSegment],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]:
    """Return all terms and their ends, and for each run the numbers of its terms among all terms."""
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
    """Yield each term of a run with the number of the run."""
    names = run.terms.tobytes()
    for start, end in pairwise(run.term_ends.tolist()):
        yield names[start:end], number


def running(sizes: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return 0 followed by the cumulative sums of `sizes`."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, np.int64))])


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
