"""The vectors of a corpus on disk: made in blocks, so that a killed build goes on where it was, and mapped."""

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
from agentgym_flow._util.immutable import Immutable
from agentgym_flow.errors import BadIndex, BadSetting
from agentgym_flow.retrieval.arrays import mapped_array
from agentgym_flow.retrieval.encoder import Encoder, Floats
from agentgym_flow.retrieval.passage import Corpus
from agentgym_flow.seeding import stable_hash

FORMAT = 1
"""Version of the folder and of what is encoded of a passage."""

BLOCK = 256
"""Passages that are encoded and put safely on disk together."""

_VECTORS, _PAGE = "embeddings.npy", "embeddings.json"
_DTYPE = np.dtype("<f4")


class Embeddings(Immutable):
    """One vector of length 1 for each passage of a corpus. Share them between threads and, from a folder, processes.

    Made by `encode`, `build` or `open`. A copy is the object itself; a pickle of an opened one holds only the folder.

    Attributes:
        vectors: (passages, dimension), 32-bit floats.
        digest: identity of the corpus and of the encoder, in hexadecimal.
        folder: where they are mapped from; None in memory.
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

        The blocks that are done are kept in `<folder>.partial`. When it was killed, call it again with the same corpus
        and encoder: it goes on after the last whole block.

        Args:
            corpus: the passages.
            encoder: gives the vectors.
            folder: where they will be, whole or not at all.
            progress: called with the number of passages that are done, at the start and after every block.

        Raises:
            BadIndex: the partial folder is of another corpus or encoder.
            BadSetting: another process is building this folder.
            OSError: something is at `folder` already, or it cannot be written.
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

        `verify` reads them all once and compares their digest.

        Raises `BadIndex` when the folder is missing, damaged, of another version, corpus or encoder.
        """
        opened = cls.mapped(folder)
        if opened.digest != _identity(corpus, encoder):
            raise BadIndex(f"the vectors at {folder} are of another corpus or encoder; {_REMEDY}")
        if verify:
            with (Path(folder) / _VECTORS).open("rb") as file:
                if _sha256(file) != _read_page(Path(folder))["sha256"]:
                    raise BadIndex(f"{Path(folder) / _VECTORS} is damaged (its digest is another); {_REMEDY}")
        return opened

    @classmethod
    def mapped(cls, folder: str | os.PathLike[str]) -> Self:
        """Map the vectors of a folder without asking whose they are. Raises `BadIndex` as `open` does."""
        root = Path(folder)
        page = _read_page(root)
        try:
            vectors = mapped_array(root / _VECTORS)
        except (OSError, ValueError) as error:
            raise BadIndex(f"{root / _VECTORS} cannot be read ({error}); {_REMEDY}") from error
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
    """Write down whose vectors a partial folder gets, or check that an earlier attempt was at the same."""
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
    """Append to the `.npy` file what it lacks, and yield how many passages it has, at first and after every block."""
    header = _header((len(corpus), encoder.dimension))
    size = file.seek(0, os.SEEK_END)
    row = encoder.dimension * _DTYPE.itemsize
    done = max(0, size - len(header)) // row // BLOCK * BLOCK  # what stands after a whole block may be of a torn write
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
    try:
        page = json.loads(file.read_text("ascii"))
        version = page["format"]
        sound = isinstance(page["digest"], str) and isinstance(page["sha256"], str) and len(page["shape"]) == 2
    except (FileNotFoundError, NotADirectoryError):
        raise BadIndex(f"there are no vectors at {root}: {file.name} is missing; {_MAKE}") from None
    except OSError as error:
        raise BadIndex(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadIndex(f"{file} is damaged ({error}); {_REMEDY}") from None
    if version != FORMAT:
        raise BadIndex(f"the vectors at {root} have format {version!r}, this version reads {FORMAT}; {_REMEDY}")
    if not sound:
        raise BadIndex(f"{file} is damaged; {_REMEDY}")
    return page  # type: ignore[no-any-return]


@contextmanager
def _alone(file: IO[bytes], path: Path) -> Iterator[None]:
    """Keep other processes from building the same folder; a killed process lets go. Where locks exist, that is."""
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
