"""Limits and isolation levels of programs, and verdicts on how they ended."""

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
    """The resources that one program may use.

    Attributes:
        cpu_seconds: CPU time, system time included; exact to about 10 ms.
        memory_mb: address space in MiB, of which the interpreter itself takes about 20.
        output_bytes: output to each of stdout and stderr; the program is killed at the first byte beyond it.
        disk_mb: all its files together, in MiB, held in memory. Without namespaces their size cannot be limited, so its
            folder is read-only then.
        processes: the most processes at a time. With 1 it cannot start others, only threads (up to 64; without
            namespaces, as many as fit its memory). With more, `cpu_seconds` and `memory_mb` apply to each of them.
        wall_seconds: elapsed time after which a program is killed. `None`: 10 s plus 5 times `cpu_seconds`, which is
            generous, because the verdict must not depend on the load of the machine.

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
            if not smallest <= getattr(self, name) < _NO_LIMIT:  # also refuses NaN
                raise BadSetting(f"Limits({name}={getattr(self, name)!r}) is out of range; {smallest} is the least.")
        if self.wall_seconds is not None and not 0 < self.wall_seconds < _NO_LIMIT:
            raise BadSetting(f"Limits(wall_seconds={self.wall_seconds!r}) is out of range; give more than 0, or None.")

    @property
    def wall(self) -> float:
        """Seconds after which a program is killed even if it used no CPU time."""
        return 10.0 + 5.0 * self.cpu_seconds if self.wall_seconds is None else self.wall_seconds


@dataclass(frozen=True)
class Machine:
    """How well this machine can isolate programs.

    Attributes:
        level: `strong`: the kernel denies access to files, network, other processes and further resources, and a trial
            program failed to reach them. `limited`: resources are limited, but a program can reach something else.
            `none`: nothing can be run.
        walls: the means in use, of `namespaces`, `landlock`, `seccomp`, `stranger` (a user of its own) and `limits`.
        missing: why each of the others is not in use; under `trial`, what the trial program reached.
    """

    level: Level
    walls: tuple[str, ...]
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ProgramVerdict:
    """How one program ended.

    For a deterministic program that stays well within its limits, everything but `cpu_seconds` is the same in every
    run.

    Attributes:
        status: `ok` (exit code 0), `error` (another exit code), `timeout`, `memory` (an uncaught `MemoryError`),
            `output` (it wrote too much), `killed` (by a signal: a crash, or its own).
        exit_code: `None` if it was ended by a signal or by the sandbox, or wrote too much.
        stdout: its output, at most `Limits.output_bytes`; bytes that are not UTF-8 are replaced.
        stderr: the same for stderr; file names of the sandbox are relative to the program's folder.
        cpu_seconds: the CPU time it used.
        level: how it was isolated, as in `Machine`.
    """

    status: Status
    exit_code: int | None
    stdout: str
    stderr: str
    cpu_seconds: float
    level: Level

    @property
    def ok(self) -> bool:
        """Whether the program ended with exit code 0. The program controls this."""
        return self.status == "ok"


@dataclass(frozen=True)
class TestVerdict:
    """The result of tests that ran in another process than the program.

    Attributes:
        outcome: `passed`; `failed` (an assertion failed, or the tests could not use a result); `error` (the program
            raised, lacks the function, or ended early); `unsupported` (the tests pass or get something other than plain
            data, or never call the program); or how the program was ended, as in `ProgramVerdict`.
        message: what went wrong, in one line; empty when passed. It quotes the tests and the program.
        calls: how often the tests called the program.
        program: how the program's process ended.
        tests: how the process of the tests ended.
    """

    __test__ = False  # not a test class of pytest, despite its name

    outcome: Outcome
    message: str
    calls: int
    program: ProgramVerdict
    tests: ProgramVerdict

    @property
    def passed(self) -> bool:
        """Whether every test passed. A program can achieve this only by right answers."""
        return self.outcome == "passed"

    @property
    def level(self) -> Level:
        """How both processes were isolated."""
        return self.program.level


@dataclass(frozen=True)
class CallVerdict:
    """The result of calling a function of a program.

    Attributes:
        outcome: `returned`, or why it did not: `error`, `unsupported` (the value is not plain data), or how the program
            was ended, as in `ProgramVerdict`.
        value: what it returned, as plain data.
        message: what went wrong, in one line; empty when it returned. It quotes the program.
        program: how the program's process ended.
    """

    outcome: Outcome
    value: Any
    message: str
    program: ProgramVerdict

    @property
    def returned(self) -> bool:
        """Whether the function returned."""
        return self.outcome == "returned"

    @property
    def level(self) -> Level:
        """How the program was isolated."""
        return self.program.level
