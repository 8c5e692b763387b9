"""The vectors of a corpus on disk, memory-mapped; they are computed in blocks, so a killed build can be resumed."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from agentgym_flow._util.files import check_free, naming, resumed_folder
from agentgym_flow._util.shared import Shared
from agentgym_flow.core import stable_hash
from agentgym_flow.errors import BadIndex, BadSetting
from agentgym_flow.retrieval.arrays import json_errors, mapped_array
from agentgym_flow.retrieval.encoder import Encoder, Floats
from agentgym_flow.retrieval.passage import Corpus

FORMAT = 1
"""The version of the folder, and of the text that is encoded for a passage."""

BLOCK = 256
"""The number of passages that are encoded and written to disk together."""

_VECTORS, _PAGE = "embeddings.npy", "embeddings.json"
_DTYPE = np.dtype("<f4")


class Embeddings(Shared):
    """A unit vector for each passage of a corpus, created by `encode`, `build` or `open`.

    The object can be shared by threads and, if opened, by processes. A pickle of an opened object contains only the
    folder.

    Attributes:
        vectors: (passages, dimension), 32-bit floats.
        digest: identity of the corpus and the encoder, in hexadecimal.
        folder: the folder of the mapped file; None in memory.
    """

    def __init__(self, vectors: Floats, digest: str, folder: Path | None = None) -> None:
        self.vectors = vectors
        self.digest = digest
        self.folder = folder

    @classmethod
    def encode(cls, corpus: Corpus, encoder: Encoder) -> Self:
        """Encode a small corpus in memory."""
        vectors = encoder.encode([corpus[number].index_text for number in range(len(corpus))])
        return cls(vectors, _identity(corpus, encoder))

    @classmethod
    def build(
        cls,
        corpus: Corpus,
        encoder: Encoder,
        folder: str | os.PathLike[str],
        *,
        progress: Callable[[int], object] | None = None,
    ) -> Self:
        """Encode a corpus into a new folder, and open it.

        Complete blocks are kept in `<folder>.partial`. To resume a killed build, call the method again with the same
        corpus and encoder.

        Args:
            corpus: the passages.
            encoder: the encoder.
            folder: the folder, which is created atomically.
            progress: called with the number of encoded passages, at the start and after every block.

        Raises:
            BadIndex: the partial folder is of another corpus or encoder.
            BadSetting: another process is building this folder.
            OSError: `folder` exists or cannot be written.
        """
        path = Path(folder)
        check_free(path)
        page = {"format": FORMAT, "digest": _identity(corpus, encoder), "shape": [len(corpus), encoder.dimension]}
        with resumed_folder(path) as partial, (partial / _VECTORS).open("a+b") as file, _alone(file, path):
            _begin(partial / _PAGE, page)
            for done in _encode_blocks(corpus, encoder, file):
                if progress:
                    progress(done)
            page["sha256"] = _sha256(file)
            (partial / _PAGE).write_text(json.dumps(page) + "\n", "ascii")
        return cls.open(path, corpus, encoder, verify=False)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], corpus: Corpus, encoder: Encoder, *, verify: bool = True) -> Self:
        """Map the vectors that `build` wrote for this corpus and encoder.

        With `verify`, read all vectors and compare their digest.

        Raises `BadIndex` if the folder is missing, damaged, or of another version, corpus or encoder.
        """
        opened = cls.mapped(folder)
        if opened.digest != _identity(corpus, encoder):
            raise BadIndex(f"the vectors at {folder} are of another corpus or encoder; {_REMEDY}")
        if verify:
            with (Path(folder) / _VECTORS).open("rb") as file:
                if _sha256(file) != _read_page(Path(folder))["sha256"]:
                    raise BadIndex(f"{Path(folder) / _VECTORS} is damaged (its digest differs); {_REMEDY}")
        return opened

    @classmethod
    def mapped(cls, folder: str | os.PathLike[str]) -> Self:
        """Map the vectors of a folder, of any corpus and encoder. Raises `BadIndex` like `open`."""
        root = Path(folder)
        page = _read_page(root)
        vectors = mapped_array(root / _VECTORS, _REMEDY)
        if vectors.dtype != _DTYPE or list(vectors.shape) != page["shape"]:
            raise BadIndex(f"{root / _VECTORS} is not the file that {root / _PAGE} describes; {_REMEDY}")
        return cls(vectors, page["digest"], root)

    def __len__(self) -> int:
        """Return the number of passages."""
        return len(self.vectors)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.folder is None:
            return type(self), (self.vectors, self.digest)
        return type(self).mapped, (os.path.abspath(self.folder),)


_REMEDY = "remove the folder and build it again"
_MAKE = "make them with: agentgym-flow retriever build SOURCE FOLDER --kind dense; SOURCE is not read again"


def _identity(corpus: Corpus, encoder: Encoder) -> str:
    return stable_hash([FORMAT, corpus.digest, encoder.digest])


def _begin(file: Path, page: dict[str, Any]) -> None:
    """Record the corpus and encoder of a partial folder, or check them against those of an earlier attempt."""
    if not file.exists():
        file.write_text(json.dumps(page) + "\n", "ascii")
        return
    try:
        earlier = json.loads(file.read_text("ascii"))
        same = {key: earlier[key] for key in page} == page
    except (ValueError, KeyError, TypeError, RecursionError):
        same = False
    if not same:
        raise BadIndex(f"{file.parent} was begun for another corpus or encoder; remove it")


def _encode_blocks(corpus: Corpus, encoder: Encoder, file: IO[bytes]) -> Iterator[int]:
    """Append the missing vectors to the `.npy` file; yield the number of passages, first and after every block."""
    header = _header((len(corpus), encoder.dimension))
    size = file.seek(0, os.SEEK_END)
    row = encoder.dimension * _DTYPE.itemsize
    done = max(0, size - len(header)) // row // BLOCK * BLOCK  # an incomplete block may be the result of a torn write
    file.truncate(len(header) + done * row if done else 0)
    if not done:
        file.write(header)
    yield done
    while done < len(corpus):
        numbers = range(done, min(done + BLOCK, len(corpus)))
        vectors = encoder.encode([corpus[number].index_text for number in numbers])
        file.write(np.ascontiguousarray(vectors, _DTYPE).tobytes())
        file.flush()
        os.fsync(file.fileno())
        done = numbers.stop
        yield done


def _header(shape: tuple[int, int]) -> bytes:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": _DTYPE.str, "fortran_order": False, "shape": shape})
    return header.getvalue()


def _sha256(file: IO[bytes]) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def _read_page(root: Path) -> dict[str, Any]:
    file = root / _PAGE
    with json_errors(file, f"there are no vectors at {root}: {file.name} is missing; {_MAKE}", _REMEDY):
        page = json.loads(file.read_text("ascii"))
        version = page["format"]
        sound = isinstance(page["digest"], str) and isinstance(page["sha256"], str) and len(page["shape"]) == 2
    if version != FORMAT:
        raise BadIndex(f"the vectors at {root} have format {version!r}, this version reads {FORMAT}; {_REMEDY}")
    if not sound:
        raise BadIndex(f"{file} is damaged; {_REMEDY}")
    return page  # type: ignore[no-any-return]


@contextmanager
def _alone(file: IO[bytes], path: Path) -> Iterator[None]:
    """Lock a build against other processes, on systems with `fcntl`. The lock ends with the process."""
    try:
        import fcntl
    except ImportError:  # Windows
        fcntl = None  # type: ignore[assignment]
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadSetting(f"another process is building {path}; wait for it or name another folder") from None
    with naming(path):
        yield
