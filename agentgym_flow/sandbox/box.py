"""The sandbox: which walls this machine offers, and programs behind them; and how this process confines itself."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from functools import cache
from pathlib import Path, PurePosixPath

from agentgym_flow.errors import BadSetting, SandboxFailed, SandboxUnavailable, UnknownOption
from agentgym_flow.sandbox.job import Job, Link, interpreter, wait_for
from agentgym_flow.sandbox.keeper import TRY, Order, Walls, wire
from agentgym_flow.sandbox.verdict import LEVELS, Level, Limits, Machine, ProgramVerdict

PROGRAM = "program.py"

LEAST = "AGENTGYM_FLOW_SANDBOX"
"""The environment variable with the default of `least`; `strong` if unset."""


class Sandbox:
    """Runs programs isolated from this process. Thread-safe; one per process is enough, see `default`.

    Args:
        without: walls not to use, of `namespaces`, `landlock`, `seccomp`, `stranger`, to test the others.

    Raises:
        UnknownOption: a name in `without` is not that of a wall.
    """

    def __init__(self, without: Collection[str] = ()) -> None:
        for wall in without:
            if wall not in WALLS:
                raise UnknownOption.among(wall, WALLS)
        self.link = Link()
        self._without = frozenset(without)
        self._found: tuple[Machine, Walls] | None = None

    def probe(self) -> Machine:
        """Return how well this machine can isolate programs; computed once, in about a tenth of a second."""
        return self._probed()[0]

    def run(
        self,
        program: str,
        *,
        stdin: str = "",
        files: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        least: Level | None = None,
    ) -> ProgramVerdict:
        """Run `program` as a script of this Python, with the standard library only, and return how it ended.

        Args:
            program: the source text; a syntax error is a verdict.
            stdin: what it can read from stdin.
            files: more files in its folder, by relative path; modules among them can be imported.
            limits: `Limits()` if `None`.
            least: the lowest level at which programs are run; `limited` opts in to machines without the kernel's walls.
                None: the value of the variable `LEAST`, which opts in for everything that this process runs.

        Raises:
            SandboxUnavailable: the machine does not reach `least`.
            SandboxFailed: the sandbox itself failed; the program is not to blame.
            BadSetting: a file name leads out of the folder, or the files do not fit `limits.disk_mb`.
        """
        limits = limits or Limits()
        if PROGRAM in (files or {}):
            raise BadSetting(f"{PROGRAM!r} is the program's own file; name the other one differently.")
        with closing(self.start({**(files or {}), PROGRAM: program}, [PROGRAM], stdin, limits, least)) as job:
            wait_for([job])
            return job.verdict()

    def start(
        self,
        programs: dict[str, str],
        arguments: list[str],
        stdin: str,
        limits: Limits,
        least: Level | None,
        descriptors: Collection[int] = (),
    ) -> Job:
        """Start the interpreter with `arguments` on `programs`, and `descriptors` as 3, 4, ... Raises as `run`."""
        machine, walls = self._probed()
        self._require(machine, walls, limits, least)
        check_names(programs, limits.disk_mb)
        made = order(walls, programs, arguments, stdin, limits)
        return Job(self.link, made, limits.output_bytes, machine.level, list(descriptors))

    def close(self) -> None:
        """End the keeper process; running programs continue until their calls return. The next call starts another."""
        self.link.close()

    def _probed(self) -> tuple[Machine, Walls]:
        if self._found is None:  # no lock: two threads get equal results, and a forked process cannot block
            self._found = probe(self.link, self._without)
        return self._found

    @staticmethod
    def _require(machine: Machine, walls: Walls, limits: Limits, least: Level | None) -> None:
        wanted = least or os.environ.get(LEAST) or "strong"
        if wanted not in LEVELS:
            raise UnknownOption.among(wanted, LEVELS, "" if least else f"The variable {LEAST} names it.")
        missing = "; ".join(f"{wall}: {why}" for wall, why in machine.missing.items())
        if machine.level == "none":
            raise SandboxUnavailable(f"This machine cannot isolate programs. {missing}.")
        if LEVELS.index(machine.level) < LEVELS.index(wanted):
            raise SandboxUnavailable(
                f"This machine's sandbox is {machine.level}; {wanted} was asked for. Missing: {missing}. Use a newer "
                f"kernel, or a container that allows namespaces or Landlock; or, for programs you trust, "
                f"least={machine.level!r} or the environment variable {LEAST}={machine.level}."
            )
        if limits.processes > 1 and not walls.namespaces:
            why = machine.missing["namespaces"]
            raise SandboxUnavailable(
                f"Limits(processes={limits.processes}) needs namespaces, which are unavailable: {why}."
            )


_default = Sandbox()  # starts nothing until it is used


def default() -> Sandbox:
    """Return the sandbox that the functions of this package share in this process."""
    return _default


# ---------------------------------------------------------------- probing: try every wall, then try to get out
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
            wire.send(ours.fileno(), {"wall": wall, "paths": [*readable(), *executable()]})
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
        readable=readable(),
        executable=executable(),
        files=programs,
        stdin=stdin,
        cpu_seconds=limits.cpu_seconds,
        wall_seconds=limits.wall,
        memory_mb=limits.memory_mb,
        disk_mb=limits.disk_mb,
        processes=limits.processes,
    )


# ---------------------------------------------------------------- files that a program needs
_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
_LOADER, _BASIC = ("ld-", "ld."), ("ld-", "ld.", "libc.", "libc-", "libm.", "libpython")

_LONGEST_NAME = 255


@cache
def readable() -> list[str]:
    """Return what a program may read: folders of libraries, none inside another, and links to them."""
    wanted = {*_SYSTEM, f"{sys.base_prefix}/lib", f"{sys.base_prefix}/{sys.platlibdir}"}
    wanted |= {os.path.dirname(file) for file in _loaded_libraries(_BASIC)}
    links = {path for path in wanted if os.path.islink(path) and os.path.realpath(os.path.dirname(path)) in path}
    places = {os.path.realpath(path) for path in wanted if os.path.exists(path)}
    outermost = {path for path in places if not any(str(above) in places for above in Path(path).parents)}
    return sorted(outermost) + sorted(links)


@cache
def executable() -> list[str]:
    """Return what a program may start: the interpreter, and the loader with which the kernel starts it."""
    return [os.path.realpath(file) for file in (interpreter(), *_loaded_libraries(_LOADER))]


def _loaded_libraries(prefixes: tuple[str, ...]) -> list[str]:
    """Return the libraries in this process whose names begin with one of `prefixes`."""
    try:
        lines = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    files = {line[line.index("/") :] for line in lines if "/" in line}
    return sorted(file for file in files if os.path.basename(file).startswith(prefixes) and os.path.exists(file))


def check_names(files: dict[str, str], room_mb: int) -> None:
    """Raise `BadSetting` if a name in `files` leads out of the program's folder, or the files do not fit into it."""
    folders = {str(above) for name in files for above in PurePosixPath(name).parents}
    for name in files:
        path = PurePosixPath(name)
        too_long = any(len(part.encode("utf-8", "surrogatepass")) > _LONGEST_NAME for part in path.parts)
        if name != str(path) or name in folders or path.is_absolute() or ".." in path.parts or "\0" in name or too_long:
            raise BadSetting(f"{name!r} is not a valid name in the program's folder; use a plain relative path.")
    rounding = 4096 * (len(files) + len(folders))  # files and folders take whole pages
    size = rounding + sum(len(text.encode("utf-8", "surrogatepass")) for text in files.values())
    if size > room_mb << 20:
        raise BadSetting(f"The program and its files take {size} bytes, more than Limits(disk_mb={room_mb}) allows.")


# ---------------------------------------------------------------- this process itself
# For trusted code that works on untrusted data. Unlike a program in the sandbox, the process keeps its memory. It and
# the processes it starts lose, for good, the network and write access to all folders but one. They can still read
# files, because Python reads its modules when they are needed.
CONFINEMENTS = ("network", "landlock", "seccomp")
"""The walls: no network devices (a network namespace); no writing elsewhere and no TCP (Landlock); no sockets, tracing
or mounting (a filter for system calls)."""


def confine(folder: str) -> Machine:
    """Confine this process to writing in `folder` and to no network.

    If the kernel lacks a wall, the others are built. The process ends with its parent. Programs can be run in
    `default()` afterwards: its keeper is started first, outside the walls. Does nothing on systems other than Linux.

    Returns:
        The walls in force, of `CONFINEMENTS`, and why others are missing. The level is `strong` if Landlock and the
        filter stand, which together keep the process from the network and from files; `limited` with other walls only.
    """
    if sys.platform != "linux":
        return Machine("none", (), dict.fromkeys(CONFINEMENTS, f"it needs Linux, not {sys.platform}"))
    from agentgym_flow.sandbox.keeper import kernel, seccomp

    with suppress(SandboxFailed):  # running a program will raise it
        default().link.start()
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    devices = [(path, kernel.READ_FILE | kernel.WRITE_FILE) for path in kernel.DEVICES]
    allowed = [("/", kernel.READ | kernel.EXECUTE), (folder, kernel.ANYTHING), *devices]

    def no_new_rights() -> None:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.restrict_files(allowed)

    walls: dict[str, Callable[[], None]] = {
        "network": lambda: kernel.leave_network(as_root=os.geteuid() == 0),
        "landlock": no_new_rights,
        "seccomp": lambda: seccomp.install(own_root=True, processes=True, pid=None),
    }
    missing = {}
    for name, build in walls.items():
        try:
            build()
        except OSError as error:
            missing[name] = str(error)
    standing = tuple(name for name in walls if name not in missing)
    strong = {"landlock", "seccomp"} <= set(standing)
    return Machine("strong" if strong else "limited" if standing else "none", standing, missing)
