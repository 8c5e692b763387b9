"""The keeper's loop, which forks once per request, so that the caller, which may have threads, is never forked.

A sandbox is three processes, of which only the last runs the caller's program. The outer one builds the walls and
waits. The guard, the first process inside, starts the program, enforces its time limit and reports how it ended; when
the guard ends, the kernel kills everything left inside. The program's process drops all rights, closes all files and
becomes a fresh interpreter, so its memory holds nothing of this package.
"""

from __future__ import annotations

import gc
import math
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from agentgym_flow.sandbox.keeper import RUN, Order, Walls, kernel, seccomp, wire

if sys.platform != "win32":  # there this module can be imported, but nothing is run
    import fcntl
    import resource

ENVIRONMENT = {"PYTHONHASHSEED": "0"}  # sets iterate in the same order in every run
_ABOVE_ALL = 100  # where descriptors are kept while 0, 1, 2, ... are assigned
_MOST_DESCRIPTORS = 65536  # that a process may have
_MOST_SENT = 8  # descriptors with one request
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
        user = stranger(os.getpid()) if order.walls.stranger else None
        descriptors = [_read_only(order.stdin), *outputs]
        if order.walls.namespaces:
            kernel.enter_namespaces(as_root=user is not None)
            kernel.change_root([*order.readable, *order.executable], order.disk_mb, user)
            work = kernel.WORK
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
    # On a busy machine the kernel's own limit, or the end of the program, can come before the guard has looked again.
    if stopped is None and _cpu_seconds(program) >= order.cpu_seconds:
        stopped = "cpu"
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
        become(user)
        limit_processes_and_files(order)
        _raise_walls(order, folder)
        limit_memory(order)
        os.execve(order.interpreter, [order.interpreter, *order.arguments], ENVIRONMENT)
    except BaseException as error:
        os.write(report, f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
    finally:
        os._exit(255)


def _raise_walls(order: Order, folder: str) -> None:
    own_root = order.walls.namespaces
    if order.walls.landlock:
        # Nothing limits the size of a folder on the machine's own disk, so there the program may only read.
        in_folder = kernel.ANYTHING & ~kernel.EXECUTE if own_root else kernel.READ
        kernel.restrict_files(
            [
                *((path, kernel.READ) for path in order.readable),
                *((path, kernel.READ | kernel.EXECUTE) for path in order.executable),
                *((path, kernel.READ_FILE | kernel.WRITE_FILE) for path in kernel.DEVICES),
                (folder, in_folder),
            ]
        )
    if order.walls.seccomp:
        seccomp.install(own_root, order.processes > 1, None if own_root else os.getpid())


# ---------------------------------------------------------------- limits
_MB = 1 << 20
_OPEN_FILES = 64
_STACK_MB = 8
_OWN_PROCESSES = 2  # the outer process and the guard, which count as well unless the program is another user's
_THREADS = 64


def limit_processes_and_files(order: Order) -> None:
    """Set every limit but memory; each applies to each process of the program."""
    whole_seconds = math.ceil(order.cpu_seconds) + 1  # in case the guard, which is more exact, is slow
    writable = order.disk_mb * _MB
    limits = {
        resource.RLIMIT_CPU: whole_seconds,
        resource.RLIMIT_FSIZE: writable,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_STACK: _STACK_MB * _MB,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if order.walls.namespaces or order.walls.stranger:  # otherwise all processes of the user would count
        own = 0 if order.walls.stranger else _OWN_PROCESSES
        limits[resource.RLIMIT_NPROC] = own + (_THREADS if order.processes == 1 else order.processes)
    for kind, most in limits.items():
        _lower(kind, most)


def limit_memory(order: Order) -> None:
    """Set the limit of memory; after the others, because a low limit would stop the preparations."""
    _lower(resource.RLIMIT_AS, order.memory_mb * _MB)


def _lower(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (value, value))


# ---------------------------------------------------------------- user
_FIRST, _COUNT = 2_100_000_000, 1 << 22  # above the ids of people, directories and containers; one for each pid
_NOBODY = 65534


def stranger(pid: int) -> int | None:
    """Return a user id for the process `pid` alone, or `None` if this process cannot become another user.

    With ids of their own, concurrent programs cannot reach each other, and their processes are counted separately. On
    machines with few ids (a container), it is that of nobody.
    """
    if os.geteuid() != 0:
        return None
    for user in (_FIRST + pid % _COUNT, _NOBODY):
        if _is_mapped(user, "uid_map") and _is_mapped(user, "gid_map"):
            return user
    return None


def _is_mapped(number: int, table: str) -> bool:
    rows = [[int(word) for word in line.split()] for line in Path("/proc/self", table).read_text("ascii").splitlines()]
    return any(first <= number < first + count for first, _, count in rows)


def become(user: int | None) -> None:
    """Become `user` for good, or stay the present user if None, and drop all capabilities. Raises `OSError`."""
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    kernel.drop_rights()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)  # `exec` does not bring them back


# ---------------------------------------------------------------- trials of single walls
def try_wall(control: int) -> None:
    """Build the wall that a message over `control` names; send back why that failed, or `None` if it worked."""
    message = wire.receive(control)
    if message is None:
        return
    try:
        _build(message["wall"], message["paths"])
        why = None
    except OSError as error:
        why = str(error)
    wire.send(control, {"why": why})


def _build(wall: str, paths: list[str]) -> None:
    user = stranger(os.getpid())
    if wall == "namespaces":
        kernel.enter_namespaces(as_root=user is not None)
        kernel.change_root(paths, disk_mb=1, owner=user)
    elif wall == "stranger":
        if user is None:
            raise OSError("only root can become another user")
        become(user)
    else:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if wall == "landlock":
            kernel.restrict_files([])
        else:
            seccomp.install(own_root=False, processes=False, pid=os.getpid())


# ---------------------------------------------------------------- loop
def main(descriptor: int) -> None:
    """Serve requests from socket `descriptor`, until the other side closes it."""
    # On Ctrl-C in its terminal the caller closes the socket, which ends everything here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    os.umask(0o022)
    gc.freeze()  # keep the present objects shared with every fork
    with socket.socket(fileno=descriptor) as requests:
        while True:
            kind, descriptors, _, _ = socket.recv_fds(requests, len(RUN), _MOST_SENT)
            if not kind:
                return
            try:
                if os.fork() == 0:
                    _serve(kind, requests, descriptors)
            except OSError:
                pass  # no process can be started; the caller's socket closes without an answer
            for each in descriptors:
                os.close(each)


def _serve(kind: bytes, requests: socket.socket, descriptors: list[int]) -> None:
    """Serve one request in a forked process. Never returns."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        requests.close()
        if kind == RUN:
            outer(descriptors[0], descriptors[1:])
        else:
            try_wall(descriptors[0])
    finally:
        os._exit(0)
