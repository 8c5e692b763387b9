"""The nearest vectors: all of them compared by NumPy, or an approximate index of faiss for millions.

Whichever finds the candidates, the final order is by the exact inner product of the stored vectors, and equal scores
rank by document order. So an approximate index may miss a passage, but never misjudges one.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.files import whole
from agentgym_flow._util.immutable import Immutable
from agentgym_flow.errors import BadIndex, BadSetting, MissingExtra, UnknownOption
from agentgym_flow.retrieval.bm25 import DocumentHit
from agentgym_flow.retrieval.embeddings import Embeddings
from agentgym_flow.retrieval.encoder import Floats

KINDS = ("flat", "ivf", "hnsw", "pq")
"""Exact; lists with a byte a dimension; a graph of neighbours, likewise; lists with a byte for 8 dimensions."""

FLAT_LIMIT = 100_000
"""Passages up to which `kind_for` chooses the exact index."""

_SCORES_AT_ONCE = 1 << 24  # 64 MB
_ROWS_AT_ONCE = 1 << 14
_OVERSHOOT = {"ivf": 2, "hnsw": 2, "pq": 16}  # candidates for each passage that is asked for
_PIECE = 8  # dimensions that the kind `pq` keeps in one byte
_SMALLEST_PQ = 256  # a byte's values, each of which is learned from a passage
_TRAINING_ROWS = 39  # that faiss wants for each thing it learns


class VectorIndex(Protocol):
    """Finds the vectors nearest to a query. Implementations are safe in threads and can be pickled."""

    def __len__(self) -> int:
        """Return the number of vectors."""
        ...

    def search(self, queries: Floats, topk: int) -> list[list[DocumentHit]]:
        """Return for each row of `queries` at most `topk` hits, best first; equal scores in document order."""
        ...


class FlatIndex:
    """Compares a query with every vector: exact, and equal vectors get equal scores.

    The scores of all come from a matrix product, whose rounding depends on the machine and on the other rows; those
    that it cannot tell from the best are summed again one by one.
    """

    def __init__(self, embeddings: Embeddings) -> None:
        self._embeddings = embeddings

    def __len__(self) -> int:
        return len(self._embeddings)

    def search(self, queries: Floats, topk: int) -> list[list[DocumentHit]]:
        """Return for each row of `queries` the `topk` nearest, best first."""
        vectors = self._embeddings.vectors
        count, dimension = vectors.shape
        # For vectors of length 1 no way of adding up the products is off by more than half of this.
        margin = np.float32(2 * dimension * np.finfo(np.float32).eps)
        at_once = max(1, _SCORES_AT_ONCE // count)
        found = []
        for start in range(0, len(queries), at_once):
            some = queries[start : start + at_once]
            for query, scores in zip(some, some @ vectors.T, strict=True):
                if topk < count:
                    least = np.partition(scores, count - topk)[count - topk] - margin
                    candidates = np.flatnonzero(scores >= least)
                else:
                    candidates = np.arange(count)
                found.append(nearest(query, vectors, candidates, topk))
        return found


class FaissIndex(Immutable):
    """An approximate index that `build_faiss` wrote, mapped.

    Args:
        embeddings: of the folder.
        kind: `"ivf"`, `"hnsw"` or `"pq"`.
        effort: how many lists (ivf, pq) or nodes (hnsw) a query looks at; None for a choice by the number of passages.
            More is slower and misses less.
        verify: read the file once and compare its digest. A damaged file can crash the process, so leave it out
            only for a file that was read before.

    Raises:
        MissingExtra: faiss is not installed.
        BadIndex: the file is missing, damaged or made of other vectors.
        BadSetting: the vectors are in memory only, or `effort` is below 1.
    """

    def __init__(self, embeddings: Embeddings, kind: str, *, effort: int | None = None, verify: bool = True) -> None:
        if effort is not None and effort < 1:
            raise BadSetting(f"effort must be at least 1, got {effort}")
        file = _file(embeddings, kind)
        self._embeddings, self._kind, self._effort = embeddings, kind, effort
        faiss = _faiss()
        page = _read_page(file, embeddings)
        if verify and _sha256(file) != page["sha256"]:
            raise BadIndex(f"{file} is damaged (its digest is another); {_REMEDY}")
        try:
            self._index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise BadIndex(f"{file} cannot be read ({error}); {_REMEDY}") from error
        if (self._index.ntotal, self._index.d) != embeddings.vectors.shape:
            raise BadIndex(f"{file} has not as many vectors as its folder; {_REMEDY}")
        if kind == "hnsw":
            self._index.hnsw.efSearch = effort or 64
        else:
            self._index.nprobe = min(effort or max(64, self._index.nlist // 10), self._index.nlist)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self._embeddings, self._kind, self._effort)

    def __len__(self) -> int:
        return len(self._embeddings)

    def search(self, queries: Floats, topk: int) -> list[list[DocumentHit]]:
        """Return for each row of `queries` at most `topk` near ones, best first."""
        if not len(queries):
            return []
        wanted = min(topk * _OVERSHOOT[self._kind], len(self))
        _, numbers = self._index.search(np.ascontiguousarray(queries, np.float32), wanted)
        return [
            nearest(query, self._embeddings.vectors, row[row >= 0], topk)
            for query, row in zip(queries, numbers, strict=True)
        ]


def nearest(query: Floats, vectors: Floats, candidates: npt.NDArray[np.intp], topk: int) -> list[DocumentHit]:
    """Return the best `topk` of the numbered `candidates`, each with its inner product rounded once to 32 bits."""
    scores = (vectors[candidates].astype(np.float64) * query.astype(np.float64)).sum(axis=1).astype(np.float32)
    best = np.lexsort((candidates, -scores))[:topk]
    return [DocumentHit(int(candidates[at]), float(scores[at])) for at in best]


def kind_for(count: int) -> str:
    """Return the kind of index that suits `count` passages: exact up to `FLAT_LIMIT`, else inverted lists."""
    return "flat" if count <= FLAT_LIMIT else "ivf"


def check_kind(kind: str) -> str:
    """Return `kind`. Raises `UnknownOption` when it is not among `KINDS`."""
    if kind not in KINDS:
        raise UnknownOption.among(kind, KINDS)
    return kind


def check_buildable(kind: str, count: int, dimension: int) -> None:
    """Check that an index of `kind` can be made of so many vectors; to be called before hours are spent on them.

    Raises:
        UnknownOption: there is no such kind.
        BadSetting: there are too few vectors for it, or they have the wrong number of dimensions.
        MissingExtra: it needs faiss, which is not installed.
    """
    if check_kind(kind) == "pq" and (dimension % _PIECE or count < _SMALLEST_PQ):
        raise BadSetting(
            f"an index of kind 'pq' needs at least {_SMALLEST_PQ} vectors with a multiple of {_PIECE} dimensions, got "
            f"{count} with {dimension}; choose 'flat'"
        )
    if kind != "flat":
        _faiss()


def finished_kinds(folder: Path) -> tuple[str, ...]:
    """Return the kinds of approximate index that `build_faiss` has finished in a folder of vectors."""
    return tuple(kind for kind in KINDS if kind != "flat" and _page_of(folder / f"{kind}.faiss").exists())


def has_faiss(embeddings: Embeddings, kind: str) -> bool:
    """Return whether `build_faiss` has finished this kind for these vectors."""
    return _page_of(_file(embeddings, kind)).exists()


def build_faiss(embeddings: Embeddings, kind: str, *, progress: Callable[[int], object] | None = None) -> None:
    """Write an approximate index beside the vectors, replacing one of the same kind.

    Args:
        embeddings: mapped from a folder.
        kind: `"ivf"`, `"hnsw"` or `"pq"`.
        progress: called with the number of vectors that are in, now and then.

    Raises:
        MissingExtra: faiss is not installed.
        BadSetting: the vectors are in memory only, or too few for this kind.
        UnknownOption: `kind` is another word.
        OSError: the file cannot be written.
    """
    file = _file(embeddings, kind)
    vectors = embeddings.vectors
    check_buildable(kind, *vectors.shape)
    faiss = _faiss()
    lists = max(1, min(int(4 * math.sqrt(len(vectors))), len(vectors) // _TRAINING_ROWS))
    index = faiss.index_factory(vectors.shape[1], _recipe(kind, vectors.shape[1], lists), faiss.METRIC_INNER_PRODUCT)
    if kind == "pq":
        index.pq.cp.min_points_per_centroid = 1  # few passages are no reason to print warnings
    wanted = max(lists, _SMALLEST_PQ) * _TRAINING_ROWS
    index.train(np.ascontiguousarray(vectors[:: max(1, len(vectors) // wanted)][:wanted]))  # spread over the corpus
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        index.add(np.ascontiguousarray(vectors[start : start + _ROWS_AT_ONCE]))
        if progress:
            progress(int(index.ntotal))
    _page_of(file).unlink(missing_ok=True)  # of an index that is being replaced
    with whole(file) as partial:
        faiss.write_index(index, str(partial))
    with whole(_page_of(file)) as partial:
        page = {"digest": embeddings.digest, "sha256": _sha256(file)}
        partial.write_text(json.dumps(page) + "\n", "ascii")


_REMEDY = "remove it and build it again"


def _recipe(kind: str, dimension: int, lists: int) -> str:
    """Return faiss's description of the index."""
    if kind == "hnsw":
        return "HNSW32,SQ8"
    if kind == "ivf":
        return f"IVF{lists},SQ8"
    return f"IVF{lists},PQ{dimension // _PIECE}np"  # np: without an order of codes that only another search uses


def _opened(embeddings: Embeddings, kind: str, effort: int | None) -> FaissIndex:
    return FaissIndex(embeddings, kind, effort=effort, verify=False)


def _faiss() -> Any:
    try:
        return importlib.import_module("faiss")
    except ImportError:
        raise MissingExtra.of("faiss-cpu", "search") from None


def _file(embeddings: Embeddings, kind: str) -> Path:
    if check_kind(kind) == "flat":
        raise BadSetting("the kind 'flat' needs no faiss: use FlatIndex")
    if embeddings.folder is None:
        raise BadSetting(f"an index of kind {kind!r} needs vectors on disk: use Embeddings.build")
    return embeddings.folder / f"{kind}.faiss"


def _page_of(file: Path) -> Path:
    return file.with_suffix(".json")


def _read_page(file: Path, embeddings: Embeddings) -> dict[str, str]:
    try:
        page: dict[str, str] = json.loads(_page_of(file).read_text("ascii"))
        same = page["digest"] == embeddings.digest and isinstance(page["sha256"], str)
    except FileNotFoundError:
        raise BadIndex(
            f"there is no index {file}; make it with: agentgym-flow retriever build "
            f"SOURCE FOLDER --kind dense --index {file.stem}; SOURCE is not read again"
        ) from None
    except OSError as error:
        raise BadIndex(f"cannot read {_page_of(file)}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadIndex(f"{_page_of(file)} is damaged ({error}); {_REMEDY}") from None
    if not same:
        raise BadIndex(f"{file} was made of other vectors; {_REMEDY}")
    return page


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise BadIndex(f"cannot read {file}: {error.strerror}; {_REMEDY}") from error
