"""Nearest-neighbour search: exact with NumPy, or approximate with faiss for millions of vectors.

The final order is by the exact inner product of the stored vectors, and equal scores are in document order. So an
approximate index may miss a passage, but never gives it a wrong score.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.files import whole
from agentgym_flow._util.shared import Shared
from agentgym_flow.errors import BadIndex, BadSetting, MissingExtra, UnknownOption
from agentgym_flow.retrieval.arrays import json_errors
from agentgym_flow.retrieval.bm25 import DocumentHit
from agentgym_flow.retrieval.embeddings import Embeddings
from agentgym_flow.retrieval.encoder import Floats

KINDS = ("flat", "ivf", "hnsw", "pq")
"""Exact; inverted lists or neighbour graph with a byte per dimension; inverted lists with a byte per 8 dimensions."""

FLAT_LIMIT = 100_000
"""`kind_for` chooses the exact index up to this number of passages."""

_SCORES_AT_ONCE = 1 << 24  # 64 MB
_ROWS_AT_ONCE = 1 << 14
_OVERSHOOT = {"ivf": 2, "hnsw": 2, "pq": 16}  # candidates per requested passage
_PIECE = 8  # dimensions that `pq` encodes in one byte
_SMALLEST_PQ = 256  # one training vector for each value of a byte
_TRAINING_ROWS = 39  # the number of training vectors per centroid that faiss recommends


class VectorIndex(Protocol):
    """Finds the nearest vectors. Implementations are thread-safe and can be pickled."""

    def __len__(self) -> int:
        """Return the number of vectors."""
        ...

    def search(self, queries: Floats, topk: int) -> list[list[DocumentHit]]:
        """Return for each row of `queries` at most `topk` hits, best first; ties are in document order."""
        ...


class FlatIndex:
    """Exact search over all vectors; equal vectors get equal scores.

    A matrix product gives approximate scores, whose rounding depends on the machine and the other rows. All candidates
    within its error bound are then scored individually.
    """

    def __init__(self, embeddings: Embeddings) -> None:
        self._embeddings = embeddings

    def __len__(self) -> int:
        return len(self._embeddings)

    def search(self, queries: Floats, topk: int) -> list[list[DocumentHit]]:
        """Return for each row of `queries` the `topk` nearest, best first."""
        vectors = self._embeddings.vectors
        count, dimension = vectors.shape
        # For unit vectors, the rounding error of a sum in any order is at most half of this.
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


class FaissIndex(Shared):
    """A memory-mapped approximate index, written by `build_faiss`.

    Args:
        embeddings: the vectors in the folder.
        kind: `"ivf"`, `"hnsw"` or `"pq"`.
        effort: the number of lists (ivf, pq) or nodes (hnsw) to visit per query; None for a default based on the number
            of passages. More is slower and misses less.
        verify: read the file and compare its digest. A damaged file can crash the process, so skip this only for a
            file that was verified before.

    Raises:
        MissingExtra: faiss is not installed.
        BadIndex: the file is missing, damaged, or built from other vectors.
        BadSetting: the vectors are only in memory, or `effort` is below 1.
    """

    def __init__(self, embeddings: Embeddings, kind: str, *, effort: int | None = None, verify: bool = True) -> None:
        if effort is not None and effort < 1:
            raise BadSetting(f"effort must be at least 1, got {effort}")
        file = _file(embeddings, kind)
        self._embeddings, self._kind, self._effort = embeddings, kind, effort
        faiss = _faiss()
        page = _read_page(file, embeddings)
        if verify and _sha256(file) != page["sha256"]:
            raise BadIndex(f"{file} is damaged (its digest differs); {_REMEDY}")
        try:
            self._index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise BadIndex(f"{file} cannot be read ({error}); {_REMEDY}") from error
        if (self._index.ntotal, self._index.d) != embeddings.vectors.shape:
            raise BadIndex(f"{file} has fewer or more vectors than its folder; {_REMEDY}")
        if kind == "hnsw":
            self._index.hnsw.efSearch = effort or 64
        else:
            self._index.nprobe = min(effort or max(64, self._index.nlist // 10), self._index.nlist)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), effort=self._effort, verify=False), (self._embeddings, self._kind)

    def __len__(self) -> int:
        return len(self._embeddings)

    def search(self, queries: Floats, topk: int) -> list[list[DocumentHit]]:
        """Return for each row of `queries` at most `topk` near vectors, best first."""
        if not len(queries):
            return []
        wanted = min(topk * _OVERSHOOT[self._kind], len(self))
        _, numbers = self._index.search(np.ascontiguousarray(queries, np.float32), wanted)
        return [
            nearest(query, self._embeddings.vectors, row[row >= 0], topk)
            for query, row in zip(queries, numbers, strict=True)
        ]


def nearest(query: Floats, vectors: Floats, candidates: npt.NDArray[np.intp], topk: int) -> list[DocumentHit]:
    """Return the best `topk` of `candidates`, with their inner products rounded once to 32 bits."""
    scores = (vectors[candidates].astype(np.float64) * query.astype(np.float64)).sum(axis=1).astype(np.float32)
    best = np.lexsort((candidates, -scores))[:topk]
    return [DocumentHit(int(candidates[at]), float(scores[at])) for at in best]


def kind_for(count: int) -> str:
    """Return the default kind for `count` passages: exact up to `FLAT_LIMIT`, otherwise inverted lists."""
    return "flat" if count <= FLAT_LIMIT else "ivf"


def check_kind(kind: str) -> str:
    """Return `kind`. Raises `UnknownOption` if it is not in `KINDS`."""
    if kind not in KINDS:
        raise UnknownOption.among(kind, KINDS)
    return kind


def check_buildable(kind: str, count: int, dimension: int) -> None:
    """Check that an index can be built from `count` vectors, before they are computed.

    Raises:
        UnknownOption: the kind is unknown.
        BadSetting: there are too few vectors, or the dimension does not fit.
        MissingExtra: the kind needs faiss, which is not installed.
    """
    if check_kind(kind) == "pq" and (dimension % _PIECE or count < _SMALLEST_PQ):
        raise BadSetting(
            f"an index of kind 'pq' needs at least {_SMALLEST_PQ} vectors with a multiple of {_PIECE} dimensions, got "
            f"{count} with {dimension}; choose 'flat'"
        )
    if kind != "flat":
        _faiss()


def finished_kinds(folder: Path) -> tuple[str, ...]:
    """Return the kinds of complete approximate indexes in a folder of vectors."""
    return tuple(kind for kind in KINDS if kind != "flat" and _page_of(folder / f"{kind}.faiss").exists())


def has_faiss(embeddings: Embeddings, kind: str) -> bool:
    """Return whether a complete approximate index of this kind exists for these vectors."""
    return _page_of(_file(embeddings, kind)).exists()


def build_faiss(embeddings: Embeddings, kind: str, *, progress: Callable[[int], object] | None = None) -> None:
    """Write an approximate index into the folder of the vectors, replacing one of the same kind.

    Args:
        embeddings: vectors mapped from a folder.
        kind: `"ivf"`, `"hnsw"` or `"pq"`.
        progress: called from time to time with the number of vectors in the index.

    Raises:
        MissingExtra: faiss is not installed.
        BadSetting: the vectors are only in memory, or too few for this kind.
        UnknownOption: the kind is unknown.
        OSError: the file cannot be written.
    """
    file = _file(embeddings, kind)
    vectors = embeddings.vectors
    check_buildable(kind, *vectors.shape)
    faiss = _faiss()
    lists = max(1, min(int(4 * math.sqrt(len(vectors))), len(vectors) // _TRAINING_ROWS))
    index = faiss.index_factory(vectors.shape[1], _recipe(kind, vectors.shape[1], lists), faiss.METRIC_INNER_PRODUCT)
    if kind == "pq":
        index.pq.cp.min_points_per_centroid = 1  # suppresses warnings about few passages
    wanted = max(lists, _SMALLEST_PQ) * _TRAINING_ROWS
    index.train(np.ascontiguousarray(vectors[:: max(1, len(vectors) // wanted)][:wanted]))  # evenly spaced
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        index.add(np.ascontiguousarray(vectors[start : start + _ROWS_AT_ONCE]))
        if progress:
            progress(int(index.ntotal))
    _page_of(file).unlink(missing_ok=True)  # of a replaced index
    with whole(file) as unfinished:
        faiss.write_index(index, str(unfinished))
    with whole(_page_of(file)) as unfinished:
        page = {"digest": embeddings.digest, "sha256": _sha256(file)}
        unfinished.write_text(json.dumps(page) + "\n", "ascii")


_REMEDY = "remove it and build it again"


def _recipe(kind: str, dimension: int, lists: int) -> str:
    """Return the factory string of faiss."""
    if kind == "hnsw":
        return "HNSW32,SQ8"
    if kind == "ivf":
        return f"IVF{lists},SQ8"
    return f"IVF{lists},PQ{dimension // _PIECE}np"  # np: without polysemous training, which is not used


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
    missing = (
        f"there is no index {file}; make it with: agentgym-flow retriever build "
        f"SOURCE FOLDER --kind dense --index {file.stem}; SOURCE is not read again"
    )
    with json_errors(_page_of(file), missing, _REMEDY):
        page: dict[str, str] = json.loads(_page_of(file).read_text("ascii"))
        same = page["digest"] == embeddings.digest and isinstance(page["sha256"], str)
    if not same:
        raise BadIndex(f"{file} was made of other vectors; {_REMEDY}")
    return page


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise BadIndex(f"cannot read {file}: {error.strerror}; {_REMEDY}") from error
