"""How the threads of numerical libraries wait for each other: commands choose it, importing the package does not."""

from __future__ import annotations

import os

PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
"""Environment variables that let waiting threads sleep: of OpenMP, and of its GNU and LLVM/Intel libraries."""


def wait_passively() -> None:
    """Let threads sleep while they wait, in this process and its children, unless one of `PASSIVE` is already set.

    By default they spin, which takes the cores from other programs and from the threads that are waited for. The
    libraries read the variables when they are loaded, so call this before torch is imported.
    """
    if not any(name in os.environ for name in PASSIVE):
        os.environ.update(PASSIVE)
