"""The sandbox: starts programs behind the walls that the machine offers."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import closing

from agentgym_flow.errors import BadSetting, SandboxUnavailable, UnknownOption
from agentgym_flow.sandbox.files import check_names
from agentgym_flow.sandbox.job import Job, wait_for
from agentgym_flow.sandbox.keeper.order import Walls
from agentgym_flow.sandbox.link import Link
from agentgym_flow.sandbox.probing import WALLS, order, probe
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
