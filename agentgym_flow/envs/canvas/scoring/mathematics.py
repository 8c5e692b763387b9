"""Compares mathematical answers with Math-Verify, in a process with limits.

Math-Verify uses SymPy, which can take hours or gigabytes for a short formula and cannot be interrupted within a process
(signals only work in the main thread). So a separate process serves all threads. It starts at the first comparison and
ends with this process.
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
from importlib.metadata import version
from pathlib import Path

from agentgym_flow.envs.canvas.scoring.extract import answering_part
from agentgym_flow.errors import MissingExtra

CPU_SECONDS = 5.0
"""The CPU time limit of a comparison; usual answers take hundredths of it."""
_WALL_SECONDS = 120.0  # for a stopped process, or a machine under heavy load

_WORKER = Path(__file__).with_name("mathematics_worker.py")
_lock = threading.Lock()
_process: subprocess.Popen[str] | None = None
_of_parents: list[subprocess.Popen[str]] = []  # kept, because only the parent may wait for them


@lru_cache(maxsize=1)
def _installed() -> bool:
    return importlib.util.find_spec("math_verify") is not None


def check_installed() -> None:
    """Raise `MissingExtra` if Math-Verify is not installed, or the system cannot limit processes."""
    if sys.platform == "win32":
        raise MissingExtra("Math-Verify runs within limits that Windows does not have: use Linux, macOS or WSL")
    if not _installed():
        raise MissingExtra.of("math-verify", "canvas")


@lru_cache(maxsize=1)
def scorer() -> str:
    """Return the name and version of the package: `math-verify 0.9.0`. Raises `MissingExtra`."""
    check_installed()
    return f"math-verify {version('math-verify')}"


def equal(text: str, gold: str) -> bool:
    """Return whether a text answers with `gold`.

    Math-Verify reads the last `<answer>` block of the text, or the line after a `####` (see `extract`), or all of it.
    There the last box counts, or what *the answer is* announces, or the last formula or number, with the settings of
    its own tasks (GSM8K, MATH, AIME). A refusal in a box or after *the answer is* is wrong, whatever precedes it.
    The result must equal `gold` within six decimals, or as a formula. An answer identical to `gold` is always right;
    one that takes longer than `CPU_SECONDS` is wrong.

    Raises `MissingExtra` if Math-Verify is not installed.
    """
    check_installed()
    answer = answering_part(text).strip()
    if answer == gold.strip():
        return bool(answer)
    return bool(answer) and _equal(json.dumps([answer, gold]))


@lru_cache(maxsize=4096)
def _equal(question: str) -> bool:
    with _lock:
        return _answer(question) == "true"


def _answer(question: str) -> str:
    """Return the line that the process answers; empty if the process ended."""
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
    if _process is not None and _process.poll() is not None:  # it was killed
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
    """End the process, if there is one. The next comparison starts a new one."""
    if _process is not None:
        _stop(_process)


def _start_anew() -> None:
    """After a fork, forget the process of the parent, and the lock that another thread may hold."""
    global _process, _lock
    if _process is not None:
        _of_parents.append(_process)
    _process, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_start_anew)


def _stop(process: subprocess.Popen[str]) -> None:
    global _process
    _process = None
    process.kill()
    with suppress(OSError), process:  # closes the pipes, which may contain a question, and waits
        pass
