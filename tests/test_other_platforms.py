"""Every module can be imported where there is no POSIX: what needs it says so when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.heavy

IMPORTED_AS_ON_WINDOWS = """
import importlib, os, pkgutil, signal, socket, sys
import agentgym_flow

def every_module():
    for found in pkgutil.walk_packages(agentgym_flow.__path__, "agentgym_flow.", onerror=lambda name: None):
        if not found.name.endswith(("__main__", "mathematics_worker")):
            yield found.name

def load(names):
    failed = {}
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
    return failed

names = list(every_module())
without_extras = load(names)  # packages of others, of which some look at the platform too, are all imported now
for name in [name for name in sys.modules if name.partition(".")[0] == "agentgym_flow"]:
    del sys.modules[name]
LACKING = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}
for name in LACKING:
    sys.modules[name] = None  # importing it raises ModuleNotFoundError
for module, attributes in (
    (os, "fork geteuid getuid killpg memfd_create register_at_fork sched_getaffinity setsid"),
    (signal, "SIGALRM SIGCHLD SIGHUP SIGKILL SIGSTOP SIGXCPU setitimer"),
    (socket, "AF_UNIX SOCK_SEQPACKET"),
):
    for attribute in attributes.split():
        if hasattr(module, attribute):
            delattr(module, attribute)
import ctypes
load_library = ctypes.CDLL
ctypes.CDLL = lambda name, *rest, **more: load_library({"msvcrt": None}[name], *rest, **more)  # None is refused there
sys.platform = "win32"
for name, why in load(names).items():
    if name not in without_extras:
        print(name, why)
"""


def test_every_module_can_be_imported_on_windows() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED_AS_ON_WINDOWS], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout == ""
