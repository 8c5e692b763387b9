"""How well this machine can isolate programs: try every wall, then run a program that tries to get out."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from agentgym_flow.errors import SandboxFailed
from agentgym_flow.sandbox import files
from agentgym_flow.sandbox.job import Job, wait_for
from agentgym_flow.sandbox.keeper import wire
from agentgym_flow.sandbox.keeper.order import TRY, Order, Walls
from agentgym_flow.sandbox.link import Link, interpreter
from agentgym_flow.sandbox.verdict import Limits, Machine

WALLS = ("namespaces", "landlock", "seccomp", "stranger")
# No site packages, no bytecode files, and the same encoding everywhere.
INTERPRETER_OPTIONS = ("-s", "-S", "-B", "-X", "utf8")

_TRIAL = """
import os, socket, sys
def reached(action):
    try:
        action()
    except OSError:
        return False
    return True
def fork():
    if os.fork() == 0:
        os._exit(0)
parent, outside = int(sys.argv[1]), sys.argv[2]
print(*[name for name, action in {
    "files of the machine": lambda: open(outside).close(),
    "folders of the machine": lambda: open(outside + ".new", "w").close(),
    "the network": socket.socket,
    "new processes": fork,
    "other processes": lambda: os.kill(parent, 0),
}.items() if reached(action)], sep=", ")
"""


def probe(link: Link, without: Collection[str]) -> tuple[Machine, Walls]:
    """Return the machine's level, and the walls to build for every program; `without` names walls not to use."""
    if sys.platform != "linux":
        why = f"programs are run safely on Linux only, not on {sys.platform}; a container or virtual machine helps"
        return Machine("none", (), dict.fromkeys(WALLS, why)), Walls(False, False, False, False)
    missing = {wall: "switched off by the caller" for wall in WALLS if wall in without}
    for wall in WALLS:
        if wall not in missing and (why := _try(link, wall)) is not None:
            missing[wall] = why
    while True:
        walls = Walls(**{wall: wall not in missing for wall in WALLS})
        trouble = _trial(link, walls)
        if trouble is None:
            break
        # Walls that can be built one by one may still lock out the interpreter, if it lies in a private folder.
        present = [wall for wall in ("stranger", "namespaces", "landlock", "seccomp") if wall not in missing]
        if not present:
            return Machine("none", (), {**missing, "limits": trouble}), walls
        missing[present[0]] = f"the interpreter does not start behind it ({trouble})"
    return _machine(link, walls, missing)


def _machine(link: Link, walls: Walls, missing: dict[str, str]) -> tuple[Machine, Walls]:
    standing = (*(wall for wall in WALLS if wall not in missing), "limits")
    reached = _escapes(link, walls)
    if "new processes" in reached and not (walls.namespaces or walls.stranger):
        return Machine("none", (), {**missing, "limits": "nothing here limits the number of processes"}), walls
    if reached:
        missing["trial"] = f"a trial program reached {reached}"
    strong = not reached and walls.seccomp and (walls.namespaces or walls.landlock)
    return Machine("strong" if strong else "limited", standing, missing), walls


def _try(link: Link, wall: str) -> str | None:
    """Return why `wall` cannot be built on this machine, or `None` if it can."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            link.request(TRY, [theirs.fileno()])
        try:
            wire.send(ours.fileno(), {"wall": wall, "paths": [*files.readable(), *files.executable()]})
            answer = wire.receive(ours.fileno())
        except OSError as error:
            return str(error)
    return "the process that tried it was killed" if answer is None else answer["why"]


def _trial(link: Link, walls: Walls) -> str | None:
    """Return why no program runs behind `walls`, or `None` if one does."""
    try:
        said = _run(link, walls, "print('here')", [])
    except SandboxFailed as error:
        return str(error)
    return None if said == "here\n" else said


def _escapes(link: Link, walls: Walls) -> str:
    """Return what a program behind `walls` can reach although it should not, in words; empty if nothing."""
    with tempfile.TemporaryDirectory(prefix="agentgym_flow-") as folder:
        os.chmod(folder, 0o777)  # so that only the walls can deny access
        outside = Path(folder, "outside.txt")
        outside.write_text("outside", "utf-8")
        return _run(link, walls, _TRIAL, [str(os.getpid()), str(outside)]).strip()


def _run(link: Link, walls: Walls, program: str, arguments: list[str]) -> str:
    limits = Limits(cpu_seconds=5, wall_seconds=60)
    made = order(walls, {"program.py": program}, ["program.py", *arguments], "", limits)
    with closing(Job(link, made, 4096, "none")) as job:
        wait_for([job])
        verdict = job.verdict()
    return verdict.stdout if verdict.ok else f"the trial failed: {verdict.status}, {verdict.stderr}"


def order(walls: Walls, programs: dict[str, str], arguments: list[str], stdin: str, limits: Limits) -> Order:
    """Return the order to run the interpreter with `arguments` in a folder with the files `programs`."""
    return Order(
        walls=walls,
        interpreter=interpreter(),
        arguments=[*INTERPRETER_OPTIONS, *arguments],
        readable=files.readable(),
        executable=files.executable(),
        files=programs,
        stdin=stdin,
        cpu_seconds=limits.cpu_seconds,
        wall_seconds=limits.wall,
        memory_mb=limits.memory_mb,
        disk_mb=limits.disk_mb,
        processes=limits.processes,
    )
