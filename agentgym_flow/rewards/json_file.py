"""Read and write state graphs as compact JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from agentgym_flow._util.files import write_atomically
from agentgym_flow.errors import BadData


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` to `path` atomically and create its folder. Raises `OSError`, for example if the disk is full."""
    with write_atomically(Path(path)) as partial:
        partial.write_text(json.dumps(value, allow_nan=False, separators=(",", ":")) + "\n", "ascii")


def read_json(path: str | os.PathLike[str], what: str) -> Any:
    """Return the content of `path`. Raises `BadData` if `what` is missing or cannot be read."""
    try:
        return json.loads(Path(path).read_text("ascii"))
    except FileNotFoundError:
        raise BadData(f"there is no {what} at {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadData(f"{path} is not a readable {what} ({error})") from None
