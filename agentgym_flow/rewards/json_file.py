"""State graphs on disk: compact JSON, written next to its place and then renamed, so that it is whole or not there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from agentgym_flow.errors import BadData


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` to `path`. `OSError` (a full disk, a missing folder) passes through; nothing new is left."""
    place = Path(path)
    partial = place.with_name(f"{place.name}.{os.getpid()}.partial")
    try:
        partial.write_text(json.dumps(value, allow_nan=False, separators=(",", ":")) + "\n", "ascii")
        partial.replace(place)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def read_json(path: str | os.PathLike[str], what: str) -> Any:
    """Return the content of `path`. Raises `BadData` saying that `what` is missing or cannot be read."""
    try:
        return json.loads(Path(path).read_text("ascii"))
    except FileNotFoundError:
        raise BadData(f"there is no {what} at {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadData(f"{path} is not a readable {what} ({error})") from None
