"""Run untrusted code: apart from this process, from the machine's files and from the network.

```python
from agentgym_flow import sandbox

sandbox.run("print(6 * 7)").stdout                                       # 42 and a new line
sandbox.call("def solve(): return 6 * 7", "solve").value                   # 42
sandbox.check("def double(x): return 2 * x", "assert double(4) == 8").passed  # True
```

`run` executes a program, `call` one of its functions. `check` tests it, with the tests in another process, so that the
verdict is out of the program's reach. Programs see the standard library of this Python, their own folder, and nothing
else. Linux only; where the kernel's means are missing, nothing is run unless the caller opts in
with `least`, or whoever starts the process with the environment variable `AGENTGYM_FLOW_SANDBOX=limited`.

How a program ends is not a pure function of its text, because time and memory are limited: a caller that promises
exact replay records verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_flow.sandbox import checking
from agentgym_flow.sandbox.box import Sandbox, default
from agentgym_flow.sandbox.verdict import (
    CallVerdict,
    Level,
    Limits,
    Machine,
    Outcome,
    ProgramVerdict,
    Status,
    TestVerdict,
)

__all__ = [
    "CallVerdict",
    "Level",
    "Limits",
    "Machine",
    "Outcome",
    "ProgramVerdict",
    "Sandbox",
    "Status",
    "TestVerdict",
    "call",
    "check",
    "default",
    "probe",
    "run",
]


def probe() -> Machine:
    """Return what this machine can hold a program with; found out once per process, in about a tenth of a second."""
    return default().probe()


def run(
    program: str,
    *,
    stdin: str = "",
    files: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    least: Level | None = None,
) -> ProgramVerdict:
    """Run `program` as a script and return how it ended; arguments and errors are those of `Sandbox.run`."""
    return default().run(program, stdin=stdin, files=files, limits=limits, least=least)


def check(
    program: str,
    tests: str,
    entry_point: str | None = None,
    *,
    names: Sequence[str] | None = None,
    limits: Limits | None = None,
    least: Level | None = None,
    sandbox: Sandbox | None = None,
) -> TestVerdict:
    """Return whether `program` passes `tests`, which run in a sandbox of their own.

    Names that `tests` read without setting them are taken from the program: its functions as stand-ins that send plain
    data across and get plain data back, its values as copies, modules of the standard library unchanged. Tests can be
    bare assertions, a function `check(candidate)` (as in HumanEval), or `unittest` classes.

    A program that is to be scored must not choose what it is scored by. `names` says what the tests take from it, and
    everything else they read must be their own: the results of the first name are judged, and what the others make can
    only be handed back to the program, such as the objects of a class that it takes.

    What this cannot judge is `unsupported`, not passed: functions that return objects, functions or classes of their
    own. Identity and attributes do not survive the way, and a value of a derived class arrives as its base class.

    Args:
        program: the source text. It is loaded under the name `program`, so `if __name__ == "__main__"` does not run.
        tests: the source text of the tests.
        entry_point: the function that `check(candidate)` gets; also what `candidate` means in the tests.
        names: the names that the tests take from the program, the function under test first; None: all that they read.
        limits: for each of the two processes; `Limits()` if `None`.
        least: as for `run`.
        sandbox: another one than the process's own.

    Raises:
        SandboxUnavailable: the machine does not reach `least`.
        SandboxFailed: the sandbox itself broke, which says nothing about the program.
    """
    return checking.check(sandbox or default(), program, tests, entry_point, names, limits or Limits(), least)


def call(
    program: str,
    function: str,
    *arguments: Any,
    limits: Limits | None = None,
    least: Level | None = None,
    sandbox: Sandbox | None = None,
) -> CallVerdict:
    """Return what `function` of `program` returns for `arguments`: plain data, as for `check`.

    Raises as `check` does, and `BadSetting` when an argument is not plain data.
    """
    return checking.call(sandbox or default(), program, function, arguments, limits or Limits(), least)
