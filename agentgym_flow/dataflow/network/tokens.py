"""The tokens of a manager's HTTP clients: one for trainers, one for workers.

The token of workers allows playing and committing episodes, but not training. Each token is in a file that only its
owner can read, or in the environment; never in the arguments of a command, which all users of a machine can see.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from agentgym_flow.errors import BadSetting
from agentgym_flow.retrieval.protocol import check_token

VARIABLE = "AGENTGYM_FLOW_TOKEN"
"""The environment variable with the token."""

WORKERS = ".worker"
"""The suffix of the file with the token of workers, beside that of trainers."""


def new_token() -> str:
    """Return a random token of 256 bits."""
    return secrets.token_urlsafe(32)


def token_in(file: Path) -> str:
    """Return the token in a file; if it is missing, create it with a new token, readable only by its owner.

    Raises `BadSetting` if others may read the file, or it has no token.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_token(file)
    token = new_token()
    with os.fdopen(descriptor, "w", encoding="ascii") as out:
        out.write(token + "\n")
    return token


def tokens_in(file: Path) -> tuple[str, str]:
    """Return the token of trainers, which is in `file`, and that of workers, beside it; see `token_in`."""
    return token_in(file), token_in(workers_file(file))


def workers_file(file: Path) -> Path:
    """Return the file with the token of workers, if that of trainers is in `file`."""
    return file.with_name(file.name + WORKERS)


def read_token(file: Path | None = None) -> str:
    """Return the token in a file, or in the environment if `file` is None.

    Raises `BadSetting` if there is none, or others may read the file.
    """
    if file is None:
        if not (token := os.environ.get(VARIABLE, "")):
            raise BadSetting(f"the manager's token is missing: name its file with --token-file, or set {VARIABLE}")
        return check_token(token)
    with file.open(encoding="utf-8", errors="replace") as opened:
        if os.name == "posix" and os.fstat(opened.fileno()).st_mode & 0o077:
            raise BadSetting(f"other users can read or change {file}: run chmod 600 {file}")
        return check_token(opened.read(4096).strip())
