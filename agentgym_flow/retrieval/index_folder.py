"""An index on disk: one `.npy` file an array, and `index.json`, which says what they are and must be.

The folder gets its name when everything is in it. Arrays are mapped, not read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym_flow.errors import BadIndex
from agentgym_flow.files import whole_folder
from agentgym_flow.seeding import stable_hash

Arrays = dict[str, npt.NDArray[Any]]

FORMAT = 1
"""Version of the folder and of everything that decides its content: the analyser, the arrays, the arithmetic."""

_DTYPES: dict[str, np.dtype[Any]] = {
    "terms": np.dtype("u1"),  # the terms in UTF-8, sorted, one after the other
    "term_ends": np.dtype("<i8"),  # (terms + 1,): where a term starts and ends in `terms`, in bytes
    "starts": np.dtype("<i8"),  # (terms + 1,): where a term's postings start and end
    "idf": np.dtype("<f4"),  # (terms,)
    "documents": np.dtype("<i4"),  # (postings,): ascending within a term
    "saturations": np.dtype("<f4"),  # (postings,): 1 + f / norm
}
_REMEDY = "build it again with BM25.build(texts).save(folder)"


def digest_of(arrays: Arrays, settings: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the arrays and settings, in hexadecimal."""
    return _total({name: _entry(arrays[name]) for name in _DTYPES}, settings)


def write_folder(folder: str | os.PathLike[str], arrays: Arrays, settings: Mapping[str, Any]) -> None:
    """Write arrays and settings as a new folder. Raises `OSError` naming it when it exists or cannot be written."""
    entries = {name: _entry(arrays[name]) for name in _DTYPES}
    with whole_folder(Path(folder)) as partial:
        for name, dtype in _DTYPES.items():
            np.save(partial / f"{name}.npy", arrays[name].astype(dtype, copy=False))
        page = json.dumps({"format": FORMAT, "settings": settings, "arrays": entries}, indent=1)
        (partial / "index.json").write_text(page + "\n", "utf-8")


def read_folder(folder: str | os.PathLike[str], *, verify: bool) -> tuple[Arrays, dict[str, Any]]:
    """Return the mapped arrays and the settings, among them `digest`.

    Raises `BadIndex` when the folder is missing, of another version, or not what its `index.json` says; the content of
    the arrays is compared only with `verify`.
    """
    root = Path(folder)
    page = _page(root)
    entries, settings = page["arrays"], page["settings"]
    arrays = {}
    for name in _DTYPES:
        file = root / f"{name}.npy"
        try:
            array = np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
        except FileNotFoundError:
            raise BadIndex(f"{file} is missing; {_REMEDY}") from None
        except (OSError, ValueError, EOFError) as error:
            raise BadIndex(f"{file} cannot be read ({error}); {_REMEDY}") from error
        found = _entry(array) if verify else {**_form(array), "sha256": entries[name]["sha256"]}
        if found != entries[name]:
            raise BadIndex(f"{file} is not the file that {root / 'index.json'} describes; {_REMEDY}")
        arrays[name] = array
    return arrays, settings


def _page(root: Path) -> dict[str, Any]:
    """Return what `index.json` says, if it says it of this version and agrees with its own digest."""
    file = root / "index.json"
    try:
        page = json.loads(file.read_text("utf-8"))
        version = page["format"]
        if version == FORMAT:
            settings = {name: value for name, value in page["settings"].items() if name != "digest"}
            sound = page["settings"]["digest"] == _total(page["arrays"], settings) and page["arrays"].keys() == set(
                _DTYPES
            )
    except (FileNotFoundError, NotADirectoryError):
        raise BadIndex(f"there is no index at {root}: {file.name} is missing; {_REMEDY}") from None
    except OSError as error:
        raise BadIndex(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadIndex(f"{file} is damaged ({error}); {_REMEDY}") from None
    if version != FORMAT:
        raise BadIndex(f"the index at {root} has format {version!r}, this version reads {FORMAT}; {_REMEDY}")
    if not sound:
        raise BadIndex(f"{file} is damaged (its digest is another); {_REMEDY}")
    return page  # type: ignore[no-any-return]


def _form(array: npt.NDArray[Any]) -> dict[str, Any]:
    return {"dtype": array.dtype.newbyteorder("<").str, "shape": list(array.shape)}


def _entry(array: npt.NDArray[Any]) -> dict[str, Any]:
    """Return what `index.json` says about an array."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return {**_form(array), "sha256": hashlib.sha256(little.view(np.uint8).data).hexdigest()}


def _total(entries: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    return stable_hash([FORMAT, dict(settings), dict(entries)])
