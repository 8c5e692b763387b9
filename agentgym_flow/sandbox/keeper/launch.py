"""One sandbox: three processes, of which only the last runs the caller's program.

The outer one builds the walls and waits. The guard, the first process inside, starts the program, enforces its time
limit and reports how it ended; when the guard ends, the kernel kills everything left inside. The program's process
drops all rights, closes all files and becomes a fresh interpreter, so its memory holds nothing of this package.
"""

from __future__ import annotations

import math
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from agentgym_flow.sandbox.keeper import identity, kernel, landlock, limits, namespaces, seccomp, wire
from agentgym_flow.sandbox.keeper.order import Order, Walls

if sys.platform != "win32":  # there this module can be imported, but nothing is run
    import fcntl

ENVIRONMENT = {"PYTHONHASHSEED": "0"}  # sets iterate in the same order in every run
_ABOVE_ALL = 100  # where descriptors are kept while 0, 1, 2, ... are assigned
_MOST_DESCRIPTORS = 65536
_LONGEST_WAIT_S = 3600


def outer(control: int, outputs: list[int]) -> None:
    """Run the order that arrives over `control`, with `outputs` as the program's descriptors 1, 2, 3, ...

    Sends `{"failure": reason}`, and runs nothing, if a wall cannot be built.
    """
    message = wire.receive(control)
    if message is None:
        return
    order = Order(**{**message, "walls": Walls(**message["walls"])})
    folder = None
    try:
        user = identity.stranger(os.getpid()) if order.walls.stranger else None
        descriptors = [_read_only(order.stdin), *outputs]
        if order.walls.namespaces:
            namespaces.enter(as_root=user is not None)
            namespaces.change_root([*order.readable, *order.executable], order.disk_mb, user)
            work = namespaces.WORK
        else:
            work = folder = tempfile.mkdtemp(prefix=f"agentgym_flow-{os.getppid()}-")
        _fill(Path(work), order.files, user)
        guard = os.fork()
        if guard == 0:
            _guard(order, work, user, control, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(guard, 0)
    except OSError as error:
        wire.send(control, {"failure": str(error)})
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _read_only(text: str) -> int:
    """Return a read-only descriptor with `text`."""
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(text.encode("utf-8", "surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def _fill(folder: Path, files: dict[str, str], user: int | None) -> None:
    """Write `files` to `folder`, and make `user`, if given, its owner; no other user can read it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    if user is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user)


def _guard(order: Order, folder: str, user: int | None, control: int, descriptors: list[int]) -> NoReturn:
    """Start the program and wait for its end. Never returns."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # processes of the program's user cannot read this one's memory
    trouble, report = os.pipe()
    program = os.fork()
    if program == 0:
        _become_program(order, folder, user, descriptors, report)
    for descriptor in (report, *descriptors):
        os.close(descriptor)
    with open(trouble, encoding="utf-8", closefd=True) as pipe:
        failure = pipe.read()  # ends when the program's process becomes the interpreter, which closes the pipe
    if failure:
        os.waitpid(program, 0)
        _tell(control, {"failure": failure})
    else:
        _tell(control, {**_watch(program, order, control), "folder": folder})
    os._exit(0)


def _tell(control: int, message: dict[str, Any]) -> None:
    with suppress(OSError):  # the caller is gone
        wire.send(control, message)


def _watch(program: int, order: Order, control: int) -> dict[str, Any]:
    """Wait for `program`, kill it when its time is over or the caller disconnects, and return how it ended."""
    handle = os.pidfd_open(program)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(control, select.POLLIN)
    stop_at = time.monotonic() + order.wall_seconds
    stopped = None
    while stopped is None:
        cpu_left = order.cpu_seconds - _cpu_seconds(program)
        wall_left = stop_at - time.monotonic()
        if min(cpu_left, wall_left) <= 0:
            stopped = "cpu" if cpu_left <= 0 else "wall"
            break
        wait_s = min(cpu_left, wall_left, _LONGEST_WAIT_S)
        ready = {descriptor for descriptor, _ in poll.poll(math.ceil(wait_s * 1000))}
        if handle in ready:
            break
        if ready:
            stopped = "caller"
    if stopped is not None:
        os.kill(program, signal.SIGKILL)
    poll.unregister(control)
    poll.poll()
    if not order.walls.namespaces:  # otherwise the kernel kills all of them when the guard ends
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(program, signal.SIGKILL)  # before `wait4`, while the group id is still in use
    _, status, usage = os.wait4(program, 0)
    code = os.waitstatus_to_exitcode(status)
    return {"code": code, "stopped": stopped, "cpu_seconds": usage.ru_utime + usage.ru_stime}


def _cpu_seconds(process: int) -> float:
    """Return the CPU time of all threads of `process`."""
    whole_process = 2
    try:
        return time.clock_gettime((~process << 3) | whole_process)
    except OSError:
        return 0.0  # it has just ended


def _become_program(order: Order, folder: str, user: int | None, descriptors: list[int], report: int) -> NoReturn:
    """Drop all rights and become the interpreter; if that fails, write the error to `report`."""
    try:
        os.setsid()
        report = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, _ABOVE_ALL)
        waiting = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_ALL) for descriptor in descriptors]
        for number, descriptor in enumerate(waiting):
            os.dup2(descriptor, number, inheritable=True)
        os.closerange(len(waiting), report)
        os.closerange(report + 1, _MOST_DESCRIPTORS)
        os.chdir(folder)
        os.umask(0o077)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        identity.become(user)
        limits.limit_processes_and_files(order)
        _raise_walls(order, folder)
        limits.limit_memory(order)
        os.execve(order.interpreter, [order.interpreter, *order.arguments], ENVIRONMENT)
    except BaseException as error:
        os.write(report, f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
    finally:
        os._exit(255)


def _raise_walls(order: Order, folder: str) -> None:
    own_root = order.walls.namespaces
    if order.walls.landlock:
        # Nothing limits the size of a folder on the machine's own disk, so there the program may only read.
        in_folder = landlock.ANYTHING & ~landlock.EXECUTE if own_root else landlock.READ
        landlock.restrict(
            [
                *((path, landlock.READ) for path in order.readable),
                *((path, landlock.READ | landlock.EXECUTE) for path in order.executable),
                *((path, landlock.READ_FILE | landlock.WRITE_FILE) for path in namespaces.DEVICES),
                (folder, in_folder),
            ]
        )
    if order.walls.seccomp:
        seccomp.install(own_root, order.processes > 1, None if own_root else os.getpid())
