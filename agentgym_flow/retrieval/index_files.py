"""The folder of an index: one `.npy` file per array, and `index.json` with the settings, shapes and digests.

The folder is written atomically. Arrays are memory-mapped. Files may be missing or damaged.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.files import write_folder_atomically
from agentgym_flow.core import stable_hash
from agentgym_flow.errors import BadData, BadIndex


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
