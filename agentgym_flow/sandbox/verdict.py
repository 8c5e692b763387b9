"""What a caller asks for and gets back: limits, levels, and how a program ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from agentgym_flow.errors import BadSetting

Level = Literal["none", "limited", "strong"]
LEVELS: tuple[Level, ...] = ("none", "limited", "strong")
Status = Literal["ok", "error", "timeout", "memory", "output", "killed"]
Outcome = Literal["passed", "returned", "failed", "error", "unsupported", "timeout", "memory", "output", "killed"]

_LEAST_MEMORY_MB = 64
_NO_LIMIT = 1 << 31


@dataclass(frozen=True)
class Limits:
    """What one program may use.

    Attributes:
        cpu_seconds: CPU time, system time included; a fraction is kept to about 10 ms.
        memory_mb: address space in MiB, of which the interpreter itself takes about 20.
        output_bytes: what it may write to stdout and stderr, each; the program is ended at the first byte more.
        disk_mb: all its files together, in MiB, held in memory. Without namespaces nothing could bound them, so there
            its folder is read-only.
        processes: how many processes it may be at a time. At 1 it can start none (threads it can, up to 64; without
            namespaces, as many as fit its memory). With more, `cpu_seconds` and `memory_mb` hold for each of them.
        wall_seconds: when a program that waits for nothing is ended. `None` stands for 10 s and 5 times `cpu_seconds`,
            generous because the verdict must not depend on how busy the machine is.

    Raises:
        BadSetting: a limit is out of range.
    """

    cpu_seconds: float = 10.0
    memory_mb: int = 512
    output_bytes: int = 65536
    disk_mb: int = 16
    processes: int = 1
    wall_seconds: float | None = None

    def __post_init__(self) -> None:
        least = {"cpu_seconds": 0.01, "memory_mb": _LEAST_MEMORY_MB, "output_bytes": 0, "disk_mb": 1, "processes": 1}
        for name, smallest in least.items():
            if not smallest <= getattr(self, name) < _NO_LIMIT:  # nor is NaN
                raise BadSetting(f"Limits({name}={getattr(self, name)!r}) is no limit; {smallest} is the least.")
        if self.wall_seconds is not None and not 0 < self.wall_seconds < _NO_LIMIT:
            raise BadSetting(f"Limits(wall_seconds={self.wall_seconds!r}) is no limit; give more than 0, or None.")

    @property
    def wall(self) -> float:
        """Seconds after which a program is ended even if it used no CPU time."""
        return 10.0 + 5.0 * self.cpu_seconds if self.wall_seconds is None else self.wall_seconds


@dataclass(frozen=True)
class Machine:
    """What this machine can hold a program with.

    Attributes:
        level: `strong`: files, network, other processes and resources are all out of reach, each by a means of the
            kernel, and a trial program failed to reach them. `limited`: resources are bounded, but something else is
            within reach. `none`: nothing can be run.
        walls: the means in use, of `namespaces`, `landlock`, `seccomp`, `stranger` (a user of its own) and `limits`.
        missing: why each of the others does not stand; under `trial`, what the trial program reached.
    """

    level: Level
    walls: tuple[str, ...]
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ProgramVerdict:
    """How one program ended.

    Everything but `cpu_seconds` is the same in every run of a program that is a function of its input and stays clear
    of its limits.

    Attributes:
        status: `ok` (it ended with exit code 0), `error` (with another one), `timeout`, `memory` (an uncaught
            `MemoryError`), `output` (it wrote too much), `killed` (by a signal: a crash, or itself).
        exit_code: what it ended with; `None` when it was ended by a signal or by us, or wrote too much.
        stdout: what it wrote, at most `Limits.output_bytes`; bytes that are not UTF-8 are replaced.
        stderr: the same for stderr; file names of the sandbox are relative to the program's folder.
        cpu_seconds: CPU time it used.
        level: what it was held with, as in `Machine`.
    """

    status: Status
    exit_code: int | None
    stdout: str
    stderr: str
    cpu_seconds: float
    level: Level

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself, with exit code 0. A program decides that freely."""
        return self.status == "ok"


@dataclass(frozen=True)
class TestVerdict:
    """What tests that ran outside of a program found out about it.

    Attributes:
        outcome: `passed`; `failed` (an assertion did not hold, or the tests could not go on with what they got);
            `error` (the program raised, lacks the function, or ended by itself); `unsupported` (the tests pass or get
            something other than plain data, or never call the program); or how the program was ended,
            as in `ProgramVerdict`.
        message: what went wrong, in one line; empty when passed. It quotes the tests and the program.
        calls: how often the tests called the program.
        program: how the program's process ended.
        tests: how the process of the tests ended.
    """

    __test__ = False  # pytest would take the name for a class of tests

    outcome: Outcome
    message: str
    calls: int
    program: ProgramVerdict
    tests: ProgramVerdict

    @property
    def passed(self) -> bool:
        """Whether every test passed. The program cannot bring this about other than by giving the right answers."""
        return self.outcome == "passed"

    @property
    def level(self) -> Level:
        """What both processes were held with."""
        return self.program.level


@dataclass(frozen=True)
class CallVerdict:
    """What a function of a program returned.

    Attributes:
        outcome: `returned`, or why it did not: `error`, `unsupported` (the value is not plain data), or how the program
            was ended, as in `ProgramVerdict`.
        value: the value, if it returned: plain data.
        message: what went wrong, in one line; empty when it returned. It quotes the program.
        program: how the program's process ended.
    """

    outcome: Outcome
    value: Any
    message: str
    program: ProgramVerdict

    @property
    def returned(self) -> bool:
        """Whether there is a value."""
        return self.outcome == "returned"

    @property
    def level(self) -> Level:
        """What the program was held with."""
        return self.program.level
