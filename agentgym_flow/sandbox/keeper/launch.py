"""One sandbox: three processes, of which only the last runs what the caller sent.

The outer one builds the walls and waits. The guard, the first process within, starts the program, holds it to its time
and reports how it ended; when the guard goes, the kernel ends all that is left in there. The program's process gives up
every right, closes every file and becomes a fresh interpreter: nothing of ours is in its memory.
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
from agentgym_flow.sandbox.keeper.order import Order

if sys.platform != "win32":  # there this module can be imported and does nothing
    import fcntl

# Sets iterate in the same order in every run.
ENVIRONMENT = {"PYTHONHASHSEED": "0"}
_ABOVE_ALL = 100  # where descriptors wait while 0, 1, 2, ... are put in place
_MOST_DESCRIPTORS = 65536
_LONGEST_WAIT_S = 3600


def outer(control: int, outputs: list[int]) -> None:
    """Run the order that comes over `control`, with `outputs` as the program's descriptors 1, 2, 3, ...

    Sends `{"failure": reason}` when a wall could not be built: then nothing has been run.
    """
    message = wire.receive(control)
    if message is None:
        return
    order = Order.from_json(message)
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
    """Return a descriptor from which `text` can be read, and which cannot be written to."""
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(text.encode("utf-8", "surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def _fill(folder: Path, files: dict[str, str], user: int | None) -> None:
    """Write `files` into `folder` and give all of it to `user`, if there is one; no other user can read it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    if user is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user)


def _guard(order: Order, folder: str, user: int | None, control: int, descriptors: list[int]) -> NoReturn:
    """Start the program and see it to its end. Never returns."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # no process of the program's user may look into this one
    trouble, report = os.pipe()
    program = os.fork()
    if program == 0:
        _become_program(order, folder, user, descriptors, report)
    for descriptor in (report, *descriptors):
        os.close(descriptor)
    with open(trouble, encoding="utf-8", closefd=True) as pipe:
        failure = pipe.read()  # until the program's process has become the interpreter, which closes the pipe
    if failure:
        os.waitpid(program, 0)
        _tell(control, {"failure": failure})
    else:
        _tell(control, {**_watched(program, order, control), "folder": folder})
    os._exit(0)


def _tell(control: int, message: dict[str, Any]) -> None:
    with suppress(OSError):  # the caller went away; there is nobody to tell
        wire.send(control, message)


def _watched(program: int, order: Order, control: int) -> dict[str, Any]:
    """Wait for `program`, end it when it has used up its time or the caller hangs up, and return how it ended."""
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
    if not order.walls.namespaces:  # with them, the kernel does this and more when the guard ends
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(program, signal.SIGKILL)  # it is still there to give the group its name
    _, status, usage = os.wait4(program, 0)
    code = os.waitstatus_to_exitcode(status)
    return {"code": code, "stopped": stopped, "cpu_seconds": usage.ru_utime + usage.ru_stime}


def _cpu_seconds(process: int) -> float:
    """Return the CPU time that `process` has used, all its threads together."""
    whole_process = 2
    try:
        return time.clock_gettime((~process << 3) | whole_process)
    except OSError:
        return 0.0  # it has just ended


def _become_program(order: Order, folder: str, user: int | None, descriptors: list[int], report: int) -> NoReturn:
    """Give up all rights and become the interpreter; write into `report` what went wrong if that fails."""
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
        # Nothing bounds what fills a folder of the machine's own disk, so there the program may only read.
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
