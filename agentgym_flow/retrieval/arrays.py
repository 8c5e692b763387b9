"""Reads the files of indexes and stores, which may be missing or damaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

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
