"""Proofs of equality by SymPy, in a process of their own with a limit on time and memory.

SymPy can take hours or gigabytes for a short formula, and nothing stops it within a process; a signal would only work
in the main thread. So one process works for all threads, is started at the first proof, and ends with this one. It
gets trees of `expression`, never text.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import selectors
import subprocess
import sys
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentgym_flow.envs.canvas.scoring.expression import Expression, Name, Number
from agentgym_flow.errors import MissingExtra

CPU_SECONDS = 5.0
"""How much time of the processor a proof may take; the formulas that answers consist of take hundredths of it."""
_WALL_SECONDS = 120.0  # for a process that is stopped, or a machine under great load

_WORKER = Path(__file__).with_name("algebra_worker.py")
_lock = threading.Lock()
_process: subprocess.Popen[str] | None = None
_of_parents: list[subprocess.Popen[str]] = []  # kept, because they are not this process's to wait for


@lru_cache(maxsize=1)
def _installed() -> bool:
    return importlib.util.find_spec("sympy") is not None


def check_installed() -> None:
    """Raise `MissingExtra` when SymPy is not installed."""
    if not _installed():
        raise MissingExtra.of("sympy", "canvas")


def proves_equal(left: Expression, right: Expression) -> bool:
    """Return whether SymPy proves two formulas equal within the limits; what it does not find out is not proved.

    Raises `MissingExtra` when SymPy is not installed.
    """
    check_installed()
    return _proves_equal(json.dumps([_plain(left), _plain(right)]))


@lru_cache(maxsize=4096)
def _proves_equal(trees: str) -> bool:
    with _lock:
        return _answer(trees) == "true"


def _plain(tree: Expression) -> list[Any]:
    if isinstance(tree, Number):
        return ["number", str(tree.value.numerator), str(tree.value.denominator)]
    if isinstance(tree, Name):
        return ["name", tree.name]
    return [tree.name, *map(_plain, tree.operands)]


def _answer(question: str) -> str:
    """Return the line that the process answers; empty when it ended over the question."""
    process = _running()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(question + "\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            answer = process.stdout.readline().strip() if selector.select(_WALL_SECONDS) else ""
    except OSError:
        answer = ""
    if not answer:
        _stop(process)
    return answer


def _running() -> subprocess.Popen[str]:
    global _process
    if _process is not None and _process.poll() is not None:  # someone ended it
        _stop(_process)
    if _process is None:
        _process = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER), str(CPU_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    return _process


@atexit.register
def close() -> None:
    """End the process, if there is one; the next proof starts another."""
    if _process is not None:
        _stop(_process)


def _start_anew() -> None:
    """In a forked process: leave the parent's process alone, and the lock that another thread may hold."""
    global _process, _lock
    if _process is not None:
        _of_parents.append(_process)
    _process, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_start_anew)


def _stop(process: subprocess.Popen[str]) -> None:
    global _process
    _process = None
    process.kill()
    with suppress(OSError), process:  # closes the pipes, a question perhaps still in one, and waits
        pass
